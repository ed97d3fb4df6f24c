"""The brake (S6): when most of a queue looks dead at once, the fault is more often ours than theirs.

Pure. It engages when strictly more than `share` of the in-flight jobs, of more than one worker and at least 10 in flight, are
condemned at once; it then holds and tells. After `patience` with the gate open and no sign of life from any of them it
lets 10 % of them (at least one) go per sweep. That so many have come back that the rest is no mass any more ends it only
after another `patience`: workers come back one by one. A person can release it at once. Whatever it says, no more than
`budget` jobs go per sweep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unstuck.model import Verdict
from unstuck.spelling import counted

LEAST_IN_FLIGHT = 10


@dataclass(frozen=True, slots=True)
class BrakeRules:
    """`share` is a fraction of 1, `patience` seconds."""

    budget: int = 500
    share: float = 0.5
    patience: float = 120.0


@dataclass(frozen=True, slots=True)
class Brake:
    """The brake of one queue between two sweeps; monotonic seconds."""

    engaged: bool = False
    quiet_since: float = 0.0  # since when none of the held has shown life, with the gate open
    held: frozenset[tuple[str, str]] = frozenset()  # (job, token) of the condemned when it engaged or last counted
    portion: int = 0  # how many go per sweep once patience is over
    released_by_hand: bool = False

    def decide(
        self,
        condemned: Sequence[Verdict],
        ready: Sequence[Verdict],
        in_flight: int,
        rules: BrakeRules,
        now: float,
        *,
        gate_open: bool,
        release_asked: bool = False,
    ) -> tuple[Brake, tuple[Verdict, ...], str]:
        """(the brake afterwards, which of `ready` may go now, one sentence for people or '').

        `condemned` are all stuck leases of the queue, `ready` those confirmed and reclaimable.
        """
        # Where a system records no owner, each job may be another's.
        workers = {verdict.lease.worker or (verdict.lease.job,) for verdict in condemned}
        mass = in_flight >= LEAST_IN_FLIGHT and len(workers) > 1 and len(condemned) > rules.share * in_flight
        ids = frozenset((verdict.lease.job, verdict.lease.token) for verdict in condemned)
        if self.engaged and not gate_open:  # then nothing is condemned, and nothing can be learned
            return replace(self, quiet_since=now), (), "the gate is closed: the wait begins anew"
        # Once engaged it does not end because some have come back: the others may be on their way.
        if not mass and (not ids or not self.engaged or self.released_by_hand):
            return Brake(), tuple(ready[: rules.budget]), ""
        jobs, owners = counted(in_flight, "in-flight job"), counted(len(workers), "worker")
        told = f"{len(condemned)} of {jobs} of {owners} {'looks' if len(condemned) == 1 else 'look'} stuck at once"
        if release_asked or (self.engaged and self.released_by_hand):
            after = replace(self, engaged=True, released_by_hand=True, held=ids)
            return after, tuple(ready[: rules.budget]), f"{told}; released by hand"
        # A job that is held no longer although we did not reclaim it has shown life (or ended): begin to wait anew.
        lively = self.engaged and bool(self.held - ids)
        if not self.engaged or lively:
            after = Brake(engaged=True, quiet_since=now, held=ids)
            return after, (), f"{told}; holding back for {rules.patience:.0f} s"
        waited = now - self.quiet_since
        if waited < rules.patience:
            return replace(self, held=ids), (), f"{told}; holding back for {rules.patience - waited:.0f} s more"
        if not mass:
            return Brake(), tuple(ready[: rules.budget]), ""
        portion = self.portion or max(1, math.ceil(len(condemned) / 10))
        going = tuple(ready[: min(portion, rules.budget)])
        gone = frozenset((verdict.lease.job, verdict.lease.token) for verdict in going)
        after = replace(self, portion=portion, held=ids - gone)
        return after, going, f"{told}; no sign of life for {waited:.0f} s: letting {len(going)} go per sweep"
