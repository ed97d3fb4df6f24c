"""The reference worker of our own queue; docs/protocol.md says what any worker must do."""

from unstuck.worker.context import Cancelled, Context, Handler, PermanentFailure
from unstuck.worker.options import WorkerOptions
from unstuck.worker.worker import Worker

__all__ = ["Cancelled", "Context", "Handler", "PermanentFailure", "Worker", "WorkerOptions"]
