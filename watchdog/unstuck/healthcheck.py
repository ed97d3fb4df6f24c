"""Is the agent of this container or machine healthy? ``python -m unstuck.healthcheck [URL]`` asks its ``/healthz``.

Exit status 0: it answers 200. 1: it answers something else, or nothing within three seconds; why is one line on
standard error. 2: the configuration cannot be read. Without a URL the address is where the agent listens by its own
settings (UNSTUCK_CONFIG, UNSTUCK_HTTP_LISTEN); flags of ``unstuck run`` cannot be seen from here.

A certificate is not checked: this asks our own process over the loopback address, where no certificate has a name.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unstuck.config.settings import Http

TIMEOUT_SECONDS: Final = 3.0
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 — how to reach what listens everywhere


def address(environ: Mapping[str, str]) -> str:
    """Where the agent of this environment serves. Raises ConfigurationError."""
    from unstuck.config import load

    return reached(load(None, environ).http)


def reached(listening: Http) -> str:
    """The address under which an agent with these settings answers on its own machine."""
    host = _ANYWHERE.get(listening.listen.host, listening.listen.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if listening.tls.cert else 'http'}://{shown}:{listening.listen.port}"


def ask(url: str) -> tuple[int, str]:
    """Status and first line of what ``/healthz`` at this address answers. Raises OSError or HTTPException."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no http:// or https:// address")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        lines = answer.read(2000).decode("utf-8", "replace").splitlines()
        return answer.status, lines[0] if lines else ""
    finally:
        connection.close()


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ask once; the exit status."""
    from unstuck.errors import ConfigurationError

    url = arguments[0] if arguments else ""
    try:
        url = url or address(environ)
        status, line = ask(url)
    except (ConfigurationError, ValueError) as error:
        return _tell(str(error), 2)
    except (OSError, http.client.HTTPException) as error:
        return _tell(f"{url} does not answer: {str(error) or type(error).__name__}", 1)
    return 0 if status == http.client.OK else _tell(f"{url}/healthz answers {status}: {line}", 1)


def _tell(sentence: str, code: int) -> int:
    sys.stderr.write(f"unstuck: {' '.join(sentence.split())}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
