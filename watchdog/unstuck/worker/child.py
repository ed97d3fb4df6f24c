"""The child of `--isolate process`: runs the handler, job after job, for one slot of the worker that started it.

It has one connection, the pipe to its parent; it opens none to Redis. What may go wrong: the parent is gone, then this
process ends at once, whatever the handler does; the terminal's Ctrl-C and a service manager's SIGTERM are for the parent,
which decides what becomes of the job. A copy that the handler has forked shares the pipe: it must never write to it, and
what is written names its attempt.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

from unstuck.errors import UnstuckError
from unstuck.protocol import Lease
from unstuck.worker.context import Context, Handler
from unstuck.worker.handlers import resolve
from unstuck.worker.outcomes import Outcome, decode, run

PR_SET_PDEATHSIG = 1


class Child:
    """Talks with the parent; one thread reads, the main thread runs the handler."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._process = os.getpid()
        self._jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._context: Context | None = None
        self._told: dict[str, str] = {}  # token: lost or cancelled; it may be told before the context is made
        self._telling = threading.Lock()
        self._sending = threading.Lock()
        self._asking = threading.Lock()

    def serve(self) -> None:
        """Greet the parent, then run jobs until it hangs up."""
        hello = json.loads(self._pipe.recv_bytes())
        _die_with(hello["parent"])
        sys.path[:] = hello["path"]
        try:
            handler = resolve(hello["handler"])
        except UnstuckError as error:
            self._send({"error": str(error)})
            return
        self._send({"ready": True})
        threading.Thread(target=self._listen, name="parent", daemon=True).start()
        while True:
            self._work(handler, self._jobs.get())

    def _work(self, handler: Handler, job: dict[str, Any]) -> None:
        # The lease names its queue only for the context; nothing here reaches Redis.
        lease = Lease(**{**job, "queue": cast("Any", None)})
        context = Context(lease, job["queue"], partial(self._report, lease.token))
        with self._telling:
            self._context = context
            self._heed(context)
        try:
            payload = decode(lease.payload)
        except ValueError as error:
            outcome = Outcome("failed", str(error), "payload", permanent=True)
        else:
            outcome = run(handler, payload, context)
        with self._telling:
            self._context = None
            self._told.clear()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        said = {"kind": outcome.kind, "error": outcome.error, "cause": outcome.cause, "permanent": outcome.permanent}
        self._send({"outcome": said, "token": lease.token})

    def _report(self, token: str, value: str) -> str:
        if os.getpid() != self._process:
            return "ok"  # nobody hears a copy; the answer would go to the original
        with self._asking:  # one question at a time, so that each gets its own answer
            self._send({"progress": value[:4096], "token": token})
            return self._answers.get()

    def _listen(self) -> None:
        while True:
            try:
                message = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                os._exit(0)
            if "job" in message:
                self._jobs.put(message["job"])
            elif "answer" in message:
                self._answers.put(message["answer"])
            elif "told" in message:
                with self._telling:
                    self._told[message["token"]] = message["told"]
                    if self._context is not None:
                        self._heed(self._context)

    def _heed(self, context: Context) -> None:
        what = self._told.get(context.token)
        if what == "lost":
            context.lose("its worker says so")
        elif what == "cancelled":
            context.cancel()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(json.dumps(message).encode())
        except OSError:
            os._exit(0)


def _die_with(parent: int) -> None:
    """Have the kernel end this process with its parent, where it can (Linux); the closed pipe does so everywhere."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def main() -> None:
    """Serve the parent at the file descriptor that the first argument names."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # not ignored: programs that the handler starts shall not inherit that
    Child(Connection(int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
