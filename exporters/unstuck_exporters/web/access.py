"""Who may read: everybody, holders of a client certificate, holders of a password, or both. Health is open to all.

Passwords are kept as scrypt hashes, which are dear on purpose (about 50 ms). A password that was right is remembered
as a keyed digest, so that a scrape every second costs nothing; wrong ones are checked one at a time, so that guessing
takes no more than one thread from the others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

CHALLENGE: Final = 'Basic realm="unstuck", charset="UTF-8"'


class Hash(Protocol):
    """A hashed password."""

    def matches(self, password: str) -> bool:
        """Whether this is the password."""
        ...


class Access:
    """The rules of one server. ``users``: names with hashed passwords, none: no password is asked for."""

    def __init__(self, users: Mapping[str, Hash] | None = None, *, client_certificates: bool = False) -> None:
        self._users = dict(users or {})
        self._client_certificates = client_certificates
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        self._checking = threading.Lock()

    def refusal(self, environ: Mapping[str, Any]) -> str:
        """The status line of the refusal, empty if the request may pass."""
        if self._client_certificates and environ.get("SSL_CLIENT_VERIFY") != "SUCCESS":
            return "403 Forbidden"
        if self._users and not self._known(environ.get("HTTP_AUTHORIZATION", "")):
            return "401 Unauthorized"
        return ""

    def _known(self, header: str) -> bool:
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if not colon:
            return False
        digest = hmac.digest(self._key, password.encode(), hashlib.sha256)
        right = self._right.get(user)
        if right is not None and hmac.compare_digest(right, digest):
            return True
        with self._checking:
            # An unknown name costs as much as a wrong password, so that names cannot be told by the time they take.
            wanted = self._users.get(user) or next(iter(self._users.values()))
            good = wanted.matches(password) and user in self._users
        if good:
            self._right[user] = digest
        return good
