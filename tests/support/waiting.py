"""Waiting for a condition instead of sleeping for a guess."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Short enough not to add to a test's time, long enough not to take the processor from what is waited for.
_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.05


def wait_until(predicate: Callable[[], T | None], timeout: float = 10.0, why: str = "the condition held") -> T:
    """Poll `predicate` until it gives something true, and return that.

    `timeout` is in seconds; `why` completes the sentence "waited 10 s in vain until …".
    An AssertionError raised by the predicate counts as "not yet"; the last one is shown if it never comes true.
    """
    started = time.monotonic()
    pause = _FIRST_PAUSE_SECONDS
    while True:
        complaint: AssertionError | None = None
        answer: T | None = None
        try:
            answer = predicate()
        except AssertionError as not_yet:
            complaint = not_yet
        if answer:
            return answer
        if time.monotonic() - started >= timeout:
            seen = f"the last look failed with: {complaint}" if complaint else f"the last look gave {answer!r}"
            raise AssertionError(f"waited {timeout:g} s in vain until {why}; {seen}") from complaint
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
