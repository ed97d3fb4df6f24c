"""Where a handler runs: in its slot's thread, or in a child process of its own that can be ended (`--isolate process`).

What may go wrong: a handler that holds the interpreter lock starves every thread of its process, the heartbeat too; in a
child it starves only itself. A handler that ignores the loss of its lease can be stopped only by ending its process. The
child is started by exec (never a bare fork), so it inherits neither the heartbeat's nor the control channel's connection;
it is kept warm and reused, leads a process group of its own, and dies with its parent. What it says counts only for the
attempt that it names: threads of a handler may outlive their attempt.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from unstuck.errors import UnstuckError
from unstuck.worker.attempts import Attempt
from unstuck.worker.context import Cancelled, Handler
from unstuck.worker.journal import say
from unstuck.worker.outcomes import Outcome, decode, end_copy, run

KILL_GRACE_SECONDS = 2.0
READY_WITHIN_SECONDS = 30.0


class Runner(Protocol):
    """Runs the handler for one slot."""

    def prepare(self) -> None:
        """Be ready for a job. Raises UnstuckError when that cannot be."""

    def run(self, attempt: Attempt) -> Outcome:
        """Run the handler to its end."""

    def kill(self) -> None:
        """End what can be ended, from any thread, for good."""


class InThread:
    """The handler runs in the slot's own thread; nothing but its own checks, or `--interrupt`, can end it early."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    def prepare(self) -> None:
        """Nothing to do."""

    def run(self, attempt: Attempt) -> Outcome:
        try:
            payload = decode(attempt.lease.payload)
        except ValueError as error:
            return Outcome("failed", str(error), "payload", permanent=True)
        if not attempt.interrupt:
            return run(self.handler, payload, attempt.context)
        outcome = Outcome("lost")
        process = os.getpid()
        try:
            attempt.enter()
            outcome = run(self.handler, payload, attempt.context)
        except (UnstuckError, Cancelled) as error:
            end_copy(process, error)  # the exception arrived just after the handler had returned
        while True:
            try:
                attempt.leave()
                return outcome
            except UnstuckError:
                continue

    def kill(self) -> None:
        """A thread cannot be ended."""


class InProcess:
    """The handler runs in a child process, one per slot."""

    def __init__(self, handler_name: str) -> None:
        self.handler_name = handler_name
        self.started = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._sending = threading.Lock()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_out.setblocking(False)
        self._closed = False
        self._warned = False

    def prepare(self) -> None:
        """Start the child if none is alive. Raises UnstuckError when it does not come up."""
        if self._child is not None and self._child.poll() is None:
            return
        self._end()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "unstuck.worker.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            self._pipe = Connection(ours.detach())
        if self._closed:
            self.kill()
        self.started += 1
        self._send({"path": sys.path, "handler": self.handler_name, "parent": os.getpid()})
        answer = self._receive(READY_WITHIN_SECONDS)
        if not answer or "ready" not in answer:
            self._end()
            raise UnstuckError(f"child process: {(answer or {}).get('error', 'it ended before it was ready')}")

    def run(self, attempt: Attempt) -> Outcome:
        try:
            self.prepare()
        except (UnstuckError, OSError) as error:
            return Outcome("failed", str(error), "isolation")
        lease = attempt.lease
        told: dict[str, float] = {}

        def changed(what: str) -> None:
            told[what] = time.monotonic()
            with contextlib.suppress(OSError):
                self._send({"told": what, "token": lease.token})
                self._wake_out.send(b"x")

        attempt.on_change = changed
        try:
            self._send(
                {
                    "job": {
                        "id": lease.id,
                        "queue": lease.queue.name,
                        "token": lease.token,
                        "attempt": lease.attempt,
                        "payload": lease.payload,
                        "worker": lease.worker,
                        "slot": lease.slot,
                        "claimed_ms": lease.claimed_ms,
                        "rescues": lease.rescues,
                        "failures": lease.failures,
                        "expected_by_ms": lease.expected_by_ms,
                        "version": lease.version,
                    }
                }
            )
            if attempt.context.lost or attempt.context.cancelled:  # learnt before we listened
                changed("lost" if attempt.context.lost else "cancelled")
            return self._attend(attempt, told)
        except OSError:
            return self._died(told)
        finally:
            attempt.on_change = None

    def kill(self) -> None:
        self._closed = True
        child = self._child
        if child is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    # -- while the handler runs ------------------------------------------------------------------------------------

    def _attend(self, attempt: Attempt, told: dict[str, float]) -> Outcome:
        """Serve the child until its handler has ended, or end the child when it was told and does not listen."""
        while True:
            patience = 1.0
            if told:
                patience = min(told.values()) + KILL_GRACE_SECONDS - time.monotonic()
                if patience <= 0:
                    return self._put_down(attempt, told)
            pipe = self._pipe
            if pipe is None:
                return self._died(told)
            ready = wait([pipe, self._wake_in], timeout=patience)
            if self._wake_in in ready:
                self._wake_in.recv(4096)
            if pipe not in ready:
                if self._child is not None and self._child.poll() is not None and not pipe.poll():
                    return self._died(told)
                continue
            message = self._receive(0)
            if message is None:
                return self._died(told)
            if message.get("token") != attempt.lease.token:
                self._ignore(attempt, message)
            elif "progress" in message:
                self._send({"answer": self._progress(attempt, message["progress"])})
            elif "outcome" in message:
                return Outcome(**message["outcome"])

    def _ignore(self, attempt: Attempt, message: dict[str, Any]) -> None:
        """The child speaks of an attempt that is over, or of none."""
        if "progress" in message:
            self._send({"answer": "lost"})
        if not self._warned:
            self._warned = True
            detail = f"the child spoke of {message.get('token')!r}; said once"
            say(logging.WARNING, "stranger_ignored", detail, **attempt.names)

    def _progress(self, attempt: Attempt, value: str) -> str:
        try:
            attempt.context.progress(value)
        except UnstuckError:
            return "lost"
        return "cancelled" if attempt.context.cancelled else "ok"

    def _put_down(self, attempt: Attempt, told: dict[str, float]) -> Outcome:
        say(logging.WARNING, "child_killed", f"it did not stop within {KILL_GRACE_SECONDS:g} s", **attempt.names)
        self._end()
        return Outcome("lost" if "lost" in told else "cancelled")

    def _died(self, told: dict[str, float]) -> Outcome:
        """The child is gone without an outcome: how, in words."""
        code = self._end()
        if told:
            return Outcome("lost" if "lost" in told else "cancelled")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        return Outcome("failed", f"the handler's process {how} before the handler had returned", "crash")

    # -- the child -------------------------------------------------------------------------------------------------

    def _end(self) -> int:
        """Make sure the child and its process group are gone; its exit status, 0 without one."""
        child, self._child = self._child, None
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
        if child is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)  # one that died by itself shall say how
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        return child.wait()

    def _send(self, message: dict[str, Any]) -> None:
        pipe = self._pipe
        if pipe is None:
            raise OSError("no child")
        with self._sending:
            pipe.send_bytes(json.dumps(message).encode())

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message of the child, None when there is none within `timeout` seconds or the child is gone."""
        try:
            if self._pipe is None or not self._pipe.poll(timeout):
                return None
            message: dict[str, Any] = json.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        return message
