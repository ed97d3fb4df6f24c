"""The name of a worker: `host:pid:8 hex`, new with every process, so that a reused host name never looks alive."""

from __future__ import annotations

import os
import re
import secrets
import socket

MOST_HOST = 96  # the whole name has at most 128 characters


def worker_id(host: str | None = None, pid: int | None = None) -> str:
    """A new worker name; characters of the host that the protocol does not allow become `-`."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname() if host is None else host)[:MOST_HOST] or "host"
    return f"{host}:{os.getpid() if pid is None else pid}:{secrets.token_hex(4)}"
