"""Sweeping: look at Redis and at every queue, judge, and hand over what may be reclaimed. One pass is one `sweep()`.

The order matters: the gate is assessed before the queues are looked at, so that a look during an outage is never believed;
the authority to reclaim is asked for again before every batch. What may go wrong is Redis: then the sweep raises, the gate
closes for a whole window, and everything that was watched is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from unstuck import judging
from unstuck.brake import Brake, BrakeRules
from unstuck.config import OWN, QueueSettings, Settings
from unstuck.connections import text
from unstuck.errors import classify
from unstuck.gate import Gate
from unstuck.model import (
    Capability,
    GateState,
    Mode,
    QueueSnapshot,
    Reason,
    ServerSnapshot,
    SideFinding,
    Standing,
    Verdict,
)
from unstuck.protocol import keys
from unstuck.queue import Adapter, Limits
from unstuck.server import read_server
from unstuck.spelling import counted

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.clock import Clock

NOTHING_FINISHES_AFTER_SECONDS = 600.0
MOST_WATCHED = 1_000_000  # attempts remembered over all queues; beyond, a queue's look counts as truncated
Place = tuple[str, str]  # backend, queue


@dataclass(frozen=True, slots=True)
class Judged:
    """One queue in one sweep."""

    snapshot: QueueSnapshot
    settings: QueueSettings
    verdicts: tuple[Verdict, ...] = ()
    going: tuple[Verdict, ...] = ()  # confirmed, let go by the brake: to be reclaimed if this agent may
    held: tuple[Verdict, ...] = ()  # confirmed, but held back by the brake
    brake: Brake = field(default_factory=Brake)
    brake_detail: str = ""

    @property
    def place(self) -> Place:
        return self.snapshot.backend, self.snapshot.queue


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one pass saw and thought."""

    server: ServerSnapshot
    gate: GateState
    queues: tuple[Judged, ...]
    at: float  # monotonic seconds
    unread: Mapping[str, Exception] = field(default_factory=dict)  # backend -> why it could not be looked at


def limits_of(settings: QueueSettings) -> Limits:
    """What an adapter needs of a queue's settings."""
    return Limits(
        stuck_after=settings.stuck_after,
        gone_after=settings.gone_after,
        max_rescues=settings.max_rescues,
        retry_delay=settings.retry_delay,
        dead_max=settings.dead_max,
        dead_ttl=settings.dead_ttl,
        deadline_grace=settings.deadline.grace,
    )


def may_be_reclaimed(verdict: Verdict, settings: QueueSettings) -> bool:
    """Whether this verdict is one that a reclaim may act on (mode and leadership apart)."""
    if verdict.standing is not Standing.STUCK or not verdict.confirmed or verdict.lease.exempt:
        return False
    return verdict.reason is not Reason.DEADLINE_PASSED or settings.deadline.action == "reclaim"


class Sweeper:
    """The watcher: its memory lives here, from one sweep to the next."""

    def __init__(
        self,
        settings: Settings,
        adapters: Sequence[Adapter],
        reading: Redis,
        clock: Clock,
        *,
        exchanged: Callable[[str, float], None],
    ) -> None:
        self._settings = settings
        self._adapters = tuple(adapters)
        self._reading = reading
        self._clock = clock
        self._exchanged = exchanged
        self._memory: dict[Place, dict[str, judging.Watched]] = {}
        self._brakes: dict[Place, Brake] = {}
        self._released: dict[Place, int] = {}
        self._due: dict[Place, float] = {}
        self._finished: dict[Place, tuple[int, float]] = {}  # attempts ended so far, since when no more
        self.gate = Gate(window=settings.stuck_after, interval=settings.sweep_interval)

    def begin_watch(self) -> None:
        """Forget everything and watch for a full window before judging: this agent has just begun to lead."""
        self._memory.clear()
        self._brakes.clear()
        self.gate = self.gate.restarted_watch(self._clock.monotonic())

    def failed(self, error: BaseException) -> None:
        """A look or a write of this agent failed: nothing that was watched counts any more."""
        kind = classify(error)
        known = {"loading": "loading", "readonly": "readonly", "oom": "oom", "busy": "busy", "misconf": "misconf"}
        cause = known.get(kind, "noreplicas" if kind == "noreplicas" else "unreachable")
        self.gate = self.gate.failed(cause, self._clock.monotonic())
        self._memory.clear()

    def unwritable(self) -> None:
        """This agent's own write failed or hung: a Redis that takes no writes makes healthy jobs look dead."""
        self.gate = self.gate.failed("unwritable", self._clock.monotonic())

    def sweep(self) -> Sweep:
        """One pass. Raises redis-py's exceptions where Redis does not answer (then call `failed`)."""
        begun = self._clock.monotonic()
        server = read_server(self._reading)
        now = self._clock.monotonic()
        self._exchanged("info", now - begun)
        self.gate = self.gate.assess(server, now)
        judged = []
        unread = {}
        for adapter in self._adapters:
            try:
                judged += self._adapter(adapter)
            except ResponseError as refused:
                # Redis is there and refuses this one system (no rights, a registry of the wrong type): the others go on.
                if classify(refused) not in ("noperm", "wrongtype"):
                    raise
                unread[adapter.backend] = refused
                self._forget(adapter.backend, set())
        return Sweep(server, self.gate.state, tuple(judged), self._clock.monotonic(), unread)

    def _adapter(self, adapter: Adapter) -> list[Judged]:
        begun = self._clock.monotonic()
        names = sorted({*adapter.discover(), *self._named(adapter.backend)})
        every = {
            name: self._settings.for_queue(adapter.backend, name, least_stuck_after=adapter.least_stuck_after)
            for name in names
        }
        due = {name: limits_of(rules) for name, rules in every.items() if self._is_due(adapter.backend, name, rules)}
        if not due:
            return []
        snapshots = adapter.look(due)
        self._exchanged("look", self._clock.monotonic() - begun)
        self._forget(adapter.backend, set(every))
        gone_after = adapter.least_gone_after
        return [self._judge(self._stalling(one), every[one.queue], gone_after) for one in snapshots]

    def _forget(self, backend: str, but: set[str]) -> None:
        """Forget what was watched of a backend's queues that are not there any more."""
        kept: tuple[dict[Place, Any], ...] = (self._memory, self._brakes, self._released, self._due, self._finished)
        for known in kept:
            for place in [place for place in known if place[0] == backend and place[1] not in but]:
                del known[place]

    def _stalling(self, snapshot: QueueSnapshot) -> QueueSnapshot:
        """The snapshot, with a finding if its queue has been running work for long while nothing finishes."""
        if snapshot.totals is None or snapshot.error:
            return snapshot
        place, now = (snapshot.backend, snapshot.queue), self._clock.monotonic()
        ended = snapshot.totals.completed + snapshot.totals.failed
        before, since = self._finished.get(place, (ended, now))
        if ended != before or not snapshot.running or not self.gate.trustworthy_memory:
            since = now
        self._finished[place] = ended, since
        if now - since < NOTHING_FINISHES_AFTER_SECONDS:
            return snapshot
        detail = f"{counted(snapshot.running, 'job')} in flight, and none has finished for {now - since:.0f} s"
        found = SideFinding("nothing_finishes", detail, count=snapshot.running)
        return replace(snapshot, side_findings=(*snapshot.side_findings, found))

    def _named(self, backend: str) -> list[str]:
        return [rule.queue for rule in self._settings.queues if rule.backend == backend and rule.exact]

    def _is_due(self, backend: str, name: str, rules: QueueSettings) -> bool:
        now = self._clock.monotonic()
        # Half an interval of slack: a sweep that comes a little early must not skip a queue for a whole turn.
        if now < self._due.get((backend, name), 0.0) - self._settings.sweep_interval / 2:
            return False
        self._due[backend, name] = now + rules.sweep_interval
        return True

    def _judge(self, snapshot: QueueSnapshot, settings: QueueSettings, least_gone_after: float) -> Judged:
        place = snapshot.backend, snapshot.queue
        if snapshot.error:
            self._memory.pop(place, None)
            return Judged(snapshot, settings)
        now = self._clock.monotonic()
        gone_after = max(settings.gone_after, least_gone_after)
        rules = judging.Rules(gone_after, settings.confirm_after, settings.deadline.grace)
        verdicts, memory = judging.judge(
            snapshot,
            self._memory.get(place, {}),
            self.gate.state,
            rules,
            now,
            memory_holds=self.gate.trustworthy_memory,
            steady=self.gate.steady(now),
        )
        self._memory[place] = memory if self._room_for(place, memory) else {}
        condemned = [
            one
            for one in verdicts
            if one.standing is Standing.STUCK
            and (one.reason is not Reason.DEADLINE_PASSED or settings.deadline.action == "reclaim")
        ]
        ready = [one for one in condemned if may_be_reclaimed(one, settings)]
        brake = self._brakes.get(place, Brake())
        release = self._release_of(snapshot) if snapshot.backend == OWN or condemned else None
        asked = False
        if release is not None:
            asked = release > self._released.setdefault(place, release) and brake.engaged
        rules_of_brake = BrakeRules(settings.brake.budget, settings.brake.share, settings.brake.patience)
        brake, going, detail = brake.decide(
            condemned,
            ready,
            snapshot.running,
            rules_of_brake,
            now,
            gate_open=self.gate.state.open,
            release_asked=asked,
        )
        if not brake.engaged and release is not None:
            self._released[place] = release
        self._brakes[place] = brake
        chosen = {id(one) for one in going}
        held = tuple(one for one in ready if id(one) not in chosen)
        return Judged(snapshot, settings, verdicts, going, held, brake, detail)

    def _release_of(self, snapshot: QueueSnapshot) -> int | None:
        """Server time in ms at which a person last released the brake; of another system's queue its adapter knows nothing."""
        if snapshot.backend == OWN:
            return snapshot.brake_release_ms
        meta = keys.meta(keys.tag(snapshot.backend, snapshot.queue))
        try:
            noted = text(self._reading.hget(meta, "brake_release_ms"))
        except ResponseError:
            return None  # no right to our own keys, or not a hash: then nobody can release it by hand
        return int(noted) if noted.isdigit() else 0

    def _room_for(self, place: Place, memory: Mapping[str, judging.Watched]) -> bool:
        others = sum(len(known) for where, known in self._memory.items() if where != place)
        return others + len(memory) <= MOST_WATCHED


def reclaimable(judged: Judged) -> bool:
    """Whether the queue's mode and layout allow a reclaim at all."""
    return judged.settings.mode is Mode.RECLAIM and judged.snapshot.capability is Capability.RECLAIM


def is_own(judged: Judged) -> bool:
    """Whether the queue speaks our own protocol."""
    return judged.snapshot.backend == OWN
