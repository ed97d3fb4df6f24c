"""What the workers of a chaos run do. Each job notes its start and its commit in the ledger outside Redis."""

import contextlib
import secrets
import time
from typing import Any

from chaos.ledger import note
from unstuck.errors import LeaseLost

STEP_SECONDS = 0.05


class StaleError(Exception):
    """The store has seen a newer attempt of this job."""


def work(payload: dict[str, Any], context: Any) -> None:
    """Take `payload["ms"]` in the manner of `payload["kind"]`, and commit.

    polite: asks whether it is still current. stubborn: never asks, commits whatever has happened. spin: computes. hold: keeps
    the interpreter lock all the time (for isolated workers). fails: raises at its first attempt.
    """
    if note("start", context.id, context.token, worker=context.worker) == "stale":
        raise StaleError(context.token)
    _take(payload["kind"], payload["ms"] / 1000, context)
    if note("commit", context.id, context.token, worker=context.worker) == "refused":
        raise StaleError(context.token)


def _take(kind: str, seconds: float, context: Any) -> None:
    ends = time.monotonic() + seconds
    if kind == "fails" and context.failures == 0:
        raise RuntimeError("on purpose")
    while (left := ends - time.monotonic()) > 0:
        if kind == "hold":
            sum(range(8_000_000))  # in C, without letting go of the interpreter
        elif kind == "spin":
            sum(range(1000))
        else:
            if kind == "polite":
                context.check()
            if seconds > 0.5:
                with contextlib.suppress(LeaseLost if kind == "stubborn" else ()):
                    context.progress(f"{left:.1f} s left")
            time.sleep(min(STEP_SECONDS, left))


def work_rq(job: str, seconds: float) -> None:
    """The same for RQ, which has no tokens: each run makes up its own."""
    from rq import get_current_job

    current = get_current_job()
    token = f"1.{secrets.token_hex(8)}"
    note("start", job, token, worker=current.worker_name if current else "")
    time.sleep(seconds)
    note("commit", job, token)
