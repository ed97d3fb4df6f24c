"""TLS of the HTTP server.

What may go wrong: a client that connects and never finishes its handshake would, with cheroot's own adapter, stop the one
thread that accepts. So the server makes the handshake as its pieces come, and waits for none of them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cheroot.ssl.builtin import BuiltinSSLAdapter

from unstuck.errors import ConfigurationError

log = logging.getLogger(__name__)


class Facts(Mapping[str, Any]):
    """What the application may know of a TLS connection, asked for only once the handshake is over."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock

    def _facts(self) -> dict[str, Any]:
        shown = bool(self._sock.getpeercert())  # empty without a certificate, or if none was asked for
        return {
            "wsgi.url_scheme": "https",
            "HTTPS": "on",
            "SSL_PROTOCOL": self._sock.version() or "",
            "SSL_CLIENT_VERIFY": "SUCCESS" if shown else "NONE",
        }

    def __getitem__(self, name: str) -> Any:
        return self._facts()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("wsgi.url_scheme", "HTTPS", "SSL_PROTOCOL", "SSL_CLIENT_VERIFY"))

    def __len__(self) -> int:
        return 4


class Tls(BuiltinSSLAdapter):
    """TLS 1.2 and later, with the handshake in the serving thread and certificates that may be replaced."""

    def __init__(self, cert: str, key: str, client_ca: str) -> None:
        # The base class would parse the certificate by making a connection to itself; nothing of that is needed.
        self._files = (cert, key or cert)
        self.certificate, self.private_key = self._files
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as exc:
            raise ConfigurationError(f"http.tls: {_why(exc, *self._files)}") from exc
        if client_ca:
            try:
                self.context.load_verify_locations(client_ca)
            except (OSError, ssl.SSLError) as exc:
                raise ConfigurationError(f"http.tls.client_ca: {_why(exc, client_ca)}") from exc
            # Optional for TLS: the application lets the others read health and nothing else.
            self.context.verify_mode = ssl.CERT_OPTIONAL
        self._read = self._age()

    def wrap(self, sock: Any) -> tuple[ssl.SSLSocket, Facts]:
        self._reload()
        wrapped = self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return wrapped, Facts(wrapped)

    def _age(self) -> tuple[int, ...]:
        return tuple(Path(name).stat().st_mtime_ns for name in self._files)

    def _reload(self) -> None:
        """Take over a renewed certificate; the old one stays if the new one cannot be read (yet)."""
        try:
            if (now := self._age()) != self._read:
                self._read = now
                self.context.load_cert_chain(*self._files)
                log.info("TLS certificate read again", extra={"event": "certificate_reloaded"})
        except (OSError, ssl.SSLError) as exc:
            log.warning("TLS certificate cannot be read: %s", exc, extra={"event": "certificate_unreadable"})


def _why(exc: OSError, *files: str) -> str:
    names = " and ".join(dict.fromkeys(files)) or "no file"
    if isinstance(exc, FileNotFoundError):
        return f"{names}: no such file; set http.tls.cert and http.tls.key to PEM files"
    if isinstance(exc, PermissionError):
        return f"{names}: no permission to read; mend the file's mode or owner"
    if "KEY_VALUES_MISMATCH" in str(exc):
        return f"{names}: the key does not belong to the certificate"
    return f"{names}: not a PEM file that can be used"
