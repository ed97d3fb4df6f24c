"""What a handler's run came to, and the text of an error: its type, its message and its last frames."""

from __future__ import annotations

import json
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
    """Call the handler and say how it ended; whatever it raises ends here."""
    try:
        handler(payload, context)
    except (LeaseLost, Cancelled) as error:
        if isinstance(error, LeaseLost) and context.lost:
            return Outcome("lost")
        if isinstance(error, Cancelled) and context.cancelled:
            return Outcome("cancelled")
        return Outcome("failed", describe(error))
    except PermanentFailure as error:
        return Outcome("failed", describe(error), "permanent", permanent=True)
    except BaseException as error:  # noqa: BLE001  SystemExit of a handler must not end its slot
        return Outcome("failed", describe(error))
    return DONE
