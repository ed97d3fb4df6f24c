"""What the workers of deploy/compose.yaml do: they take the time that the job asks for."""

import time
from typing import Any


def work(payload: dict[str, Any], context: Any) -> None:
    """Take ``payload["seconds"]``, in small steps that heed a cancelled or lost job."""
    ends = time.monotonic() + float(payload["seconds"])
    while (left := ends - time.monotonic()) > 0:
        context.check()
        time.sleep(min(0.1, left))
