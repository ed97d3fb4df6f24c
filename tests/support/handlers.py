"""Handlers for worker processes. They tell what happens to them over the list `told`, and wait for a word on `go`."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import redis

from unstuck.errors import LeaseLost
from unstuck.worker import Cancelled, Context, PermanentFailure


def _client() -> Any:
    return redis.Redis.from_url(os.environ["HANDLER_REDIS"], decode_responses=True)


def tell(word: str, context: Context, **more: Any) -> None:
    said = {"word": word, "job": context.id, "token": context.token, "pid": os.getpid(), **more}
    with _client() as client:
        client.rpush("told", json.dumps(said))


def quick(payload: Any, context: Context) -> None:
    """Say that it ran."""
    tell("ran", context, payload=payload, attempt=context.attempt)


def patient(payload: Any, context: Context) -> None:
    """Say that it began; then wait for a word, heeding its context; say how it ended."""
    context.on_lease_lost(lambda: tell("called_back", context))
    tell("began", context, attempt=context.attempt)
    try:
        while not _word(context):
            context.check()
    except (LeaseLost, Cancelled) as error:
        tell(type(error).__name__, context, calls=_calls(context))
        raise
    context.progress({"at": "the end"})
    tell("ended", context)


def deaf(payload: Any, context: Context) -> None:
    """As `patient`, but never asks its context: only a word ends it."""
    tell("began", context)
    while not _word(context):
        pass
    tell("ended", context, lost=context.lost)


def greedy(payload: Any, context: Context) -> None:
    """Hold the interpreter lock for very long: a regular expression that backtracks."""
    tell("began", context)
    re.match(r"(a+)+$", "a" * 60 + "b")


def spinning(payload: Any, context: Context) -> None:
    """Run Python code for ever without asking the context; an exception from outside can end it."""
    try:
        tell("began", context)
        while True:
            sum(range(100))
    except (LeaseLost, Cancelled) as error:
        tell("interrupted", context, kind=type(error).__name__)
        raise


def stubborn(payload: Any, context: Context) -> None:
    """As `spinning`, but the first exception of each kind goes where one within a finalizer goes: nowhere."""
    swallowed: set[type[Exception]] = set()
    tell("began", context)
    while True:
        try:
            while True:
                sum(range(100))
        except (LeaseLost, Cancelled) as error:
            if type(error) in swallowed:
                tell("interrupted", context)
                raise
            swallowed.add(type(error))


def naming_files(payload: Any, context: Context) -> None:
    """Tell the name of a file that is not UTF-8 as progress, at once and with the next heartbeat; then be patient."""
    for _ in range(2):
        context.progress("caf\udce9.txt")
    patient(payload, context)


def with_a_child(payload: Any, context: Context) -> None:
    """Start a program that lives on, then be patient."""
    # It sleeps to be there when the test looks; nothing waits for the time itself.
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Thread(target=lambda: None).start()
    patient(payload, context)


def forking(payload: Any, context: Context) -> None:
    """Payload `fail`: fail on a word. Else leave a copy of this process that comes back, on a word, as the payload says."""
    if payload != "fail" and os.fork() != 0:
        return
    if payload != "fail":
        with contextlib.suppress(LeaseLost):  # a thread's copy reaches Redis, where the attempt may have ended
            context.progress("said by a copy")
    tell("began", context)
    while not _word(context):
        pass
    if payload == "exit":
        sys.exit(0)
    if payload != "return":
        raise ValueError(payload)


def failing(payload: Any, context: Context) -> None:
    tell("ran", context)
    raise ValueError("no such recipient")


def failing_oddly(payload: Any, context: Context) -> None:
    raise ValueError("no such file: caf\udce9.txt")


class Speechless(Exception):
    """Asking it what went wrong goes wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def failing_without_words(payload: Any, context: Context) -> None:
    raise Speechless


def hopeless(payload: Any, context: Context) -> None:
    raise PermanentFailure("never")


def crashing(payload: Any, context: Context) -> None:
    os.kill(os.getpid(), 11)


def exiting(payload: Any, context: Context) -> None:
    sys.exit(7)


def not_a_function_of_two(payload: Any) -> None:
    """For the message about its arguments."""


async def asynchronous(payload: Any, context: Context) -> None:
    """For the message about coroutines."""


def _word(context: Context) -> bool:
    with _client() as client:
        try:
            return client.blpop([f"go:{context.id}"], timeout=0.05) is not None
        except redis.RedisError:
            return False  # the server is away; the test brings it back


def _calls(context: Context) -> list[str]:
    """What each call of the context raises now."""
    raised = []
    calls: list[Callable[[], object]] = [
        context.check,
        lambda: context.progress(1),
        lambda: context.on_lease_lost(print),
    ]
    for call in calls:
        try:
            call()
            raised.append("")
        except Exception as error:  # noqa: BLE001
            raised.append(type(error).__name__)
    return raised
