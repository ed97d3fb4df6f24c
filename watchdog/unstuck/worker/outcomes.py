"""What a handler's run came to, and the text of an error: its type, its message and its last frames.

What may go wrong: anything that somebody else's code can do. It raises what is no `Exception`, or what has no text; it
forks, and the copy of this process comes back from the handler as well: then the copy ends here.
"""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from unstuck.errors import LeaseLost
from unstuck.worker.context import Cancelled, Context, Handler, PermanentFailure

FRAMES = 5
Kind = Literal["done", "failed", "cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the handler ended; `error`, `cause` (a short word) and `permanent` are for failures."""

    kind: Kind
    error: str = ""
    cause: str = "error"
    permanent: bool = False


DONE = Outcome("done")


def describe(error: BaseException) -> str:
    """Type, message and the last frames of an exception; no source lines and no local values."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    places = [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return "\n".join([named(error), *places])


def named(error: BaseException) -> str:
    """Type and message of an exception; the type alone where asking for the message raises: it may be anybody's code."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001  whatever it raises, the type is said
        return type(error).__name__


def decode(text: str) -> Any:
    """The payload. Raises ValueError with a sentence where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise ValueError(f"payload is not JSON ({why}); the job was not tried: enqueue JSON text") from None


def run(handler: Handler, payload: Any, context: Context) -> Outcome:
    """Call the handler and say how it ended; whatever it raises ends here. It returns only in the process that called."""
    process = os.getpid()
    try:
        handler(payload, context)
    except BaseException as error:  # noqa: BLE001  SystemExit of a handler must not end its slot
        end_copy(process, error)
        return _raised(error, context)
    end_copy(process)
    return DONE


def _raised(error: BaseException, context: Context) -> Outcome:
    if isinstance(error, LeaseLost) and context.lost:
        return Outcome("lost")
    if isinstance(error, Cancelled) and context.cancelled:
        return Outcome("cancelled")
    if isinstance(error, PermanentFailure):
        return Outcome("failed", describe(error), "permanent", permanent=True)
    return Outcome("failed", describe(error))


def end_copy(process: int, error: BaseException | None = None) -> None:
    """End this process at once, silently, unless it is `process`: a handler has forked, and its copy has come back.

    The job is the original's: a copy that went on would be a second worker under the same name, or answer for the next
    job. Whoever waits for the copy sees status 0 after a return, the status of `sys.exit`, and 1 after any other exception.
    """
    if os.getpid() == process:
        return
    code = error.code if isinstance(error, SystemExit) else error
    os._exit(code & 255 if isinstance(code, int) else code is not None)
