"""Inspecting: two looks at any Redis, some seconds apart, and what they prove. Writes nothing, elects nobody.

What may go wrong: a user may have few rights, or keys of ours may be somebody else's. What can be read is shown; a queue
system that cannot be looked for becomes a finding, and only when none of them can be is that an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from unstuck.config import OWN
from unstuck.connections import text
from unstuck.errors import UnstuckError, classify, explain
from unstuck.judging import Rules
from unstuck.model import GateState, QueueSnapshot, ServerSnapshot, SideFinding, Standing
from unstuck.protocol import keys
from unstuck.protocol.diagnosis import misplaced, naming, wrong_keys
from unstuck.proving import Looks, blind, conclude, gate_now
from unstuck.queue import Adapter, Limits
from unstuck.report import Document, QueueReport, document
from unstuck.server import read_server

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.config import QueueSettings, Settings

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Look:
    """Everything that one look saw. `began` and `ended` are monotonic seconds."""

    server: ServerSnapshot
    queues: Mapping[Place, QueueSnapshot]
    settings: Mapping[Place, QueueSettings]
    unread: Mapping[str, str] = field(default_factory=dict)  # queue system -> why it could not be looked for
    began: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """What two looks say together."""

    server: ServerSnapshot
    gate: GateState
    queues: tuple[QueueReport, ...]
    unread: Mapping[str, str]

    @property
    def document(self) -> Document:
        return document(self.server, self.gate, self.queues, self.unread)


def inspect(
    client: Redis, adapters: Sequence[Adapter], settings: Settings, window: float, wait: Callable[[float], None]
) -> Inspection:
    """Look, `wait` for at least `window` seconds, look again. Raises redis-py's exceptions where Redis does not answer.

    Raises UnstuckError when none of the queue systems could be looked for.
    """
    first = look(client, adapters, settings)
    longest = max((rules.gone_after for rules in first.settings.values()), default=0.0)
    if any(snapshot.running for snapshot in first.queues.values()):
        wait(max(window, longest) - (time.monotonic() - first.ended))
    seen = compare(client, first, look(client, adapters, settings))
    return replace(seen, queues=tuple(with_misplaced(client, seen.queues)))


def compare(client: Redis, first: Look, second: Look) -> Inspection:
    """What two looks say together. Asks only for the rescue counts of what is stuck."""
    gate = gate_now(first.server, second.server, second.began - first.began)
    looks = Looks(second.began - first.ended, gate.reasons, second.server.role in ("master", ""))
    rows = [_row(place, first, second, looks) for place in second.queues]
    return Inspection(second.server, gate, tuple(with_rescues(client, rows)), second.unread)


def look(client: Redis, adapters: Sequence[Adapter], settings: Settings) -> Look:
    """One look at Redis and all queues of all systems."""
    from redis.exceptions import ResponseError

    began = time.monotonic()
    server = server_or_less(client)
    queues: dict[Place, QueueSnapshot] = {}
    every: dict[Place, QueueSettings] = {}
    unread: dict[str, str] = {}
    refusals: list[UnstuckError] = []
    for adapter in adapters:
        try:
            rules = {
                name: settings.for_queue(adapter.backend, name, least_stuck_after=adapter.least_stuck_after)
                for name in found(client, adapter)
            }
            seen = adapter.look({name: limits(one) for name, one in rules.items()}) if rules else []
        except (ResponseError, UnstuckError) as error:
            if classify(error) in ("loading", "auth", "connection", "timeout"):
                raise
            refusals.append(explain(error, settings.address))
            unread[adapter.backend] = str(refusals[-1])
            continue
        for snapshot in seen:
            queues[adapter.backend, snapshot.queue] = snapshot
            every[adapter.backend, snapshot.queue] = rules[snapshot.queue]
    if refusals and len(refusals) == len(adapters):
        raise refusals[0]
    return Look(server, queues, every, unread, began, time.monotonic())


def found(client: Redis, adapter: Adapter) -> Sequence[str]:
    """The queues of one system. Raises WrongType where our own list of queues is of another type."""
    with naming(client, keys.QUEUES, "set") if adapter.backend == OWN else nullcontext():
        return adapter.discover()


def limits(settings: QueueSettings) -> Limits:
    """What an adapter needs for a look."""
    return Limits(
        stuck_after=settings.stuck_after, gone_after=settings.gone_after, deadline_grace=settings.deadline.grace
    )


def server_or_less(client: Redis) -> ServerSnapshot:
    """Redis itself; with what HELLO and TIME tell where this user may not call INFO."""
    from redis.exceptions import ResponseError

    try:
        return read_server(client)
    except ResponseError as error:
        if classify(error) != "noperm":
            raise
    seconds, micros = client.time()
    told: Any = {}
    try:
        answer: Any = client.execute_command("HELLO")
        told = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
        told = {text(name): value for name, value in told.items()}
    except ResponseError:
        pass  # then nothing is known of it but that it answers
    role = {"master": "master", "replica": "slave", "slave": "slave"}.get(text(told.get("role")), "")
    return ServerSnapshot(
        run_id="",
        replication_id="",
        role=role or "master",
        version=text(told.get("version")),
        server_ms=int(seconds) * 1000 + int(micros) // 1000,
        uptime=0.0,
        server_name=text(told.get("server")),
    )


def _row(place: Place, first: Look, second: Look, looks: Looks) -> QueueReport:
    settings, snapshot = second.settings[place], second.queues[place]
    rules = Rules(settings.gone_after, settings.confirm_after, settings.deadline.grace)
    verdicts = () if snapshot.error else conclude(first.queues.get(place), snapshot, rules, looks)
    return QueueReport(
        snapshot=snapshot if looks.primary else blind(snapshot),
        mode=settings.mode,
        verdicts=tuple(one for one in verdicts if one.standing is not Standing.HEALTHY),
        max_rescues=settings.max_rescues,
        deadline_reclaims=settings.deadline.action == "reclaim",
    )


def with_rescues(client: Redis, rows: Sequence[QueueReport]) -> list[QueueReport]:
    """The rows with the rescue counts of their stuck jobs: ours stand in the job, those of other systems with us."""
    from redis.exceptions import ResponseError

    made = []
    for row in rows:
        stuck = [one.lease for one in row.verdicts if one.standing is Standing.STUCK]
        backend, queue = row.snapshot.backend, row.snapshot.queue
        if backend == "unstuck":
            counts = {lease.job: text(lease.evidence.get("rescues", 0)) for lease in stuck}
        elif stuck:
            jobs = [lease.job for lease in stuck]
            try:
                told: Any = client.hmget(keys.rescues(keys.tag(backend, queue)), jobs)
            except ResponseError:
                told = []  # no right to it, or not a hash of ours: then nothing is claimed
            counts = {job: text(count) or "0" for job, count in zip(jobs, told, strict=False)}
        else:
            counts = {}
        known = {job: int(count) for job, count in counts.items() if count.isdigit()}
        made.append(replace(row, rescues=known))
    return made


def with_misplaced(client: Redis, rows: Sequence[QueueReport]) -> list[QueueReport]:
    """The rows with a finding for each fixed key of our own queues that is of another type and that no look reads."""
    from redis.exceptions import ResponseError

    try:
        wrong = wrong_keys(client, *(row.snapshot.queue for row in rows if row.snapshot.backend == OWN))
    except ResponseError:
        return list(rows)  # no right to ask for types: then nothing is claimed
    made = []
    for row in rows:
        seen = row.snapshot
        mine = [one for one in wrong if seen.backend == OWN and one[0].startswith(keys.stem(seen.queue))]
        # What a look reads is in the sentence that says why the queue could not be read.
        found = [
            SideFinding("wrong_type", misplaced(*one), evidence={"key": one[0]})
            for one in mine
            if f"{one[0]} " not in seen.error
        ]
        made.append(replace(row, snapshot=replace(seen, side_findings=(*seen.side_findings, *found))))
    return made
