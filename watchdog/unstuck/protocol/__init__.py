"""Our own queue, protocol version 1: key layout, Lua scripts and the Python client. docs/protocol.md is its reference."""

from unstuck.protocol.cache import BatchCache, JobCache
from unstuck.protocol.client import Queue
from unstuck.protocol.invalidation import Invalidation, InvalidationListener, LocalCache
from unstuck.protocol.leases import Claim, Enqueued, Lease, Terms
from unstuck.protocol.limits import Limits as RetryLimits

__all__ = [
    "BatchCache",
    "Claim",
    "Enqueued",
    "Invalidation",
    "InvalidationListener",
    "JobCache",
    "Lease",
    "LocalCache",
    "Queue",
    "RetryLimits",
    "Terms",
]
