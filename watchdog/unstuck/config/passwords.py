"""Passwords of the HTTP endpoint, kept as scrypt hashes: ``scrypt$N$r$p$salt$hash``, both in base64.

``python -m unstuck.config.passwords`` asks for a password and prints its hash for ``http.basic_auth``.
"""

from __future__ import annotations

import base64
import binascii
import getpass
import hashlib
import hmac
import secrets
import sys
from dataclasses import dataclass
from typing import Final

_N: Final = 2**14
_R: Final = 8
_P: Final = 1
_MAXMEM_BYTES: Final = 128 * 1024 * 1024
_COMMAND: Final = "python -m unstuck.config.passwords"


@dataclass(frozen=True, slots=True, repr=False)
class PasswordHash:
    """The hash of one user's password; never shown."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    @classmethod
    def parse(cls, text: object) -> PasswordHash:
        """Read ``scrypt$N$r$p$salt$hash``; ValueError with the mend for anything else, a bare password above all."""
        found = cls._read(str(text).split("$"))
        if found is None:
            raise ValueError(f"a hashed password is needed here; make one with `{_COMMAND}`")
        return found

    @classmethod
    def _read(cls, parts: list[str]) -> PasswordHash | None:
        if len(parts) != 6 or parts[0] != "scrypt" or not all(parts):
            return None
        try:
            n, r, p = map(int, parts[1:4])
            salt, digest = (base64.b64decode(part, validate=True) for part in parts[4:])
        except (ValueError, binascii.Error):
            return None
        # Costs that no machine can pay would turn each request into an outage.
        payable = 2 <= n <= 2**17 and n & (n - 1) == 0 and 1 <= r <= 16 and p == 1
        return cls(n, r, p, salt, digest) if payable and digest else None

    @classmethod
    def of(cls, password: str) -> PasswordHash:
        """Hash a password with a new salt; takes about 50 ms by design."""
        salt = secrets.token_bytes(16)
        return cls(_N, _R, _P, salt, _scrypt(password, (_N, _R, _P), salt, 32))

    def matches(self, password: str) -> bool:
        """Whether this is the password, compared in constant time."""
        wanted = _scrypt(password, (self.n, self.r, self.p), self.salt, len(self.digest))
        return hmac.compare_digest(wanted, self.digest)

    def text(self) -> str:
        """The form for a file."""
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"scrypt${self.n}${self.r}${self.p}${salt}${digest}"

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "PasswordHash('***')"


def _scrypt(password: str, cost: tuple[int, int, int], salt: bytes, length: int) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=length, maxmem=_MAXMEM_BYTES)


def main() -> None:
    """Ask for a password (or read one line of standard input) and print its hash."""
    password = getpass.getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        sys.exit("unstuck: an empty password protects nothing; type one")
    sys.stdout.write(PasswordHash.of(password).text() + "\n")


if __name__ == "__main__":
    main()
