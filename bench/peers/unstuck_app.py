"""Ours: the reference worker as everybody starts it."""

from typing import Any

from marking import URL, mark

from unstuck.connections import Connections
from unstuck.protocol import Queue
from unstuck.worker.context import Context


def job(payload: Any, _: Context) -> None:
    mark(payload["sent_ns"])


_queue = Queue(Connections(URL).scripting(), "bench")


def send(sent_ns: int) -> None:
    _queue.enqueue({"sent_ns": sent_ns})


def command(concurrency: int) -> list[str]:
    flags = ["--redis", URL, "--concurrency", str(concurrency), "--log-level", "warning"]
    return ["unstuck", "worker", "bench", "unstuck_app:job", *flags]
