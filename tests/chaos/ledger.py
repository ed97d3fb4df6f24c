"""The ledger outside Redis: every effect of every job, and the fence that a user's own store would have.

`python -m chaos.ledger FILE` serves it on a free port of 127.0.0.1 (printed) and appends each line to FILE. A job says
`start` and later `commit`, each with its token. The store takes a commit only under the newest token that it has seen for the
job; it knows nothing of Redis. Of two attempts with the same number (a failover can give one out twice) the later start is newer.
"""

import json
import os
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

ADDRESS = "CHAOS_LEDGER"


class Book:
    """What the ledger knows; answers are words."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, str]] = {}
        self._committed: set[tuple[str, str]] = set()

    def note(self, kind: str, job: str, token: str) -> str:
        """`ok` or `stale` to a start; `accepted`, `refused` (an older token) or `twice` (the same once more) to a commit."""
        mine = int(token.partition(".")[0]), token
        newest = self._newest.get(job)
        if kind == "start":
            if newest is not None and mine[0] < newest[0]:
                return "stale"
            self._newest[job] = mine
            return "ok"
        if newest is not None and newest[1] != token and mine[0] <= newest[0]:
            return "refused"
        self._newest[job] = mine
        if (job, token) in self._committed:
            return "twice"
        self._committed.add((job, token))
        return "accepted"


def serve(file: Path) -> None:
    """Answer until killed."""
    book, lock = Book(), threading.Lock()
    out = file.open("a", encoding="utf-8", buffering=1)

    class Line(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                said: dict[str, Any] = json.loads(line)
                with lock:
                    said["answer"] = book.note(said["kind"], said["job"], said["token"])
                    said["at"] = time.monotonic()
                    out.write(json.dumps(said) + "\n")
                self.wfile.write(said["answer"].encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Line) as server:
        print(f"port {server.server_address[1]}", flush=True)
        server.serve_forever()


_local = threading.local()


def note(kind: str, job: str, token: str, **more: Any) -> str:
    """Tell the ledger, from a job; one connection per thread. Tried again until it answers."""
    said = {"kind": kind, "job": job, "token": token, "pid": os.getpid(), "mono": time.monotonic(), "wall": time.time()}
    line = json.dumps({**said, **more}).encode() + b"\n"
    while True:
        try:
            if getattr(_local, "file", None) is None:
                host, port = os.environ[ADDRESS].split(":")
                _local.file = socket.create_connection((host, int(port)), timeout=30).makefile("rwb")
            _local.file.write(line)
            _local.file.flush()
            answer = _local.file.readline()
            if answer:
                return str(answer.decode().strip())
        except OSError:
            time.sleep(0.05)
        _local.file = None


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
