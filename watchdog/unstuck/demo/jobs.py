"""What the workers of the demo do: a job takes `seconds`, reports progress, and at its end writes one line to a ledger.

The ledger is outside Redis, so that "finished once" is proved by something that the queue cannot have tidied up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

LEDGER = "UNSTUCK_DEMO_LEDGER"
STEP_SECONDS = 0.1


def work(payload: dict[str, Any], context: Any) -> None:
    """Take `payload["seconds"]`, in steps, and note the end with the attempt's token."""
    ends = time.monotonic() + float(payload["seconds"])
    begun = time.monotonic()
    while (left := ends - time.monotonic()) > 0:
        context.progress(f"{100 * (time.monotonic() - begun) / float(payload['seconds']):.0f}%")
        time.sleep(min(STEP_SECONDS, left))
    note = os.open(Path(os.environ[LEDGER]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(note, f"{context.id} {context.token}\n".encode())  # one write: whole lines, whoever else writes
    finally:
        os.close(note)
