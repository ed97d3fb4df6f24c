"""Electing: one agent leads, by a lease with a fencing epoch; on any doubt it does not.

A leader trusts itself only until the *start* of its last successful renewal + lease - margin, on its own monotonic clock;
Redis' answer may have been long on its way. It renews only its own record, steps down on any error, and a younger epoch met
at a queue's fence deposes it at once. A standby costs one command per lease interval. What may go wrong: two agents may
both believe for a moment that they lead; the fence of each queue lets only the younger epoch write.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import getpid
from typing import TYPE_CHECKING

from unstuck.connections import text
from unstuck.errors import classify
from unstuck.protocol import keys, scripts

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.clock import Clock


def owner_name() -> str:
    """A name for this agent that no other process has or will have."""
    host = "".join(sign if sign.isalnum() or sign in ".-" else "-" for sign in socket.gethostname())[:80]
    return f"{host}:{getpid()}:{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Standing:
    """What this agent knows of the lease. `trusted_until` is monotonic seconds."""

    leading: bool = False
    epoch: int = 0
    trusted_until: float = 0.0
    leader: str = ""  # the owner of the lease, ourselves included
    leader_digest: str = ""
    leader_until_ms: int = 0
    may_write: bool = True  # False: the election was refused for want of rights; we observe alone
    trouble: str = ""  # why the last attempt failed
    error: Exception | None = None  # what it failed with; redis-py's text alone does not tell its kind


class Election:
    """This agent's part in the election. `lease` and `margin` are seconds."""

    def __init__(
        self,
        client: Redis,
        clock: Clock,
        *,
        lease: float,
        digest: str,
        owner: str | None = None,
        changed: Callable[[Standing, Standing], None] | None = None,
    ) -> None:
        self.owner = owner or owner_name()
        self.lease = lease
        self.margin = min(1.0, lease / 10)
        self.digest = digest
        self.standing = Standing()
        self._client = client
        self._clock = clock
        self._changed = changed

    @property
    def interval(self) -> float:
        """Seconds until the next attempt: a third of the lease for the leader, a whole one for a standby."""
        return self.lease / 3 if self.standing.leading else self.lease

    def trusted(self) -> bool:
        """Whether this agent may still take itself for the leader now."""
        return self.standing.leading and self._clock.monotonic() < self.standing.trusted_until

    def attempt(self) -> Standing:
        """Take or renew the lease, or learn who has it. Never raises: an error is a step down."""
        begun = self._clock.monotonic()
        try:
            lease_ms = round(self.lease * 1000)
            answer = scripts.run(self._client, "elect_leader", keys.LEADER, self.owner, lease_ms, self.digest)
        except Exception as error:  # noqa: BLE001  whatever it was: not the leader
            refused = classify(error) == "noperm"
            self._become(Standing(may_write=not refused, trouble=str(error), error=error))
            return self.standing
        leads = text(answer[0]) == "leader"
        self._become(
            Standing(
                leading=leads,
                epoch=int(answer[1]),
                trusted_until=begun + self.lease - self.margin if leads else 0.0,
                leader=text(answer[3]),
                leader_digest=text(answer[4]),
                leader_until_ms=int(answer[2]),
            )
        )
        return self.standing

    def step_down(self, why: str) -> None:
        """Stop leading now: a fence was met, or anything else that casts doubt."""
        if self.standing.leading:
            self._become(replace(self.standing, leading=False, trusted_until=0.0, trouble=why))

    def doubt(self) -> None:
        """Step down if the lease could not be renewed in time; asked before every act."""
        if self.standing.leading and not self.trusted():
            self.step_down("the lease was not renewed in time")

    def resign(self) -> None:
        """Give the lease back on a clean stop, so that a standby need not wait. Errors do not matter."""
        if self.standing.leading:
            epoch = self.standing.epoch
            self.step_down("stopping")
            try:
                scripts.run(self._client, "resign_leader", keys.LEADER, self.owner, epoch)
            except Exception:  # noqa: BLE001  the lease lapses by itself
                return

    def _become(self, after: Standing) -> None:
        before, self.standing = self.standing, after
        if self._changed is not None:
            self._changed(before, after)
