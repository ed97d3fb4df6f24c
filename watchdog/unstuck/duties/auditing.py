"""Auditing: the slow pass over all keys, for what only a SCAN can find. The sweep never scans.

It finds locks that never expire, locks of jobs that are not running, bodies that no index knows, and keys of the wrong type; it
takes at most one percent of Redis' time: after every page it rests for 99 times what the page took. Until a pass is complete its
counts are lower bounds. What it suspects it looks at once more at the end of the pass, because jobs move while it scans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unstuck.connections import text
from unstuck.model import SideFinding
from unstuck.protocol import keys, scripts

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.clock import Clock

PAGE = 200
SHARE = 0.01  # of Redis' time
LONGEST_REST_SECONDS = 5.0
MOST_SUSPECTS = 1_000  # per queue and kind that are remembered by name
MOST_PENDING = 100_000  # waiting bodies per queue that are compared with the list
LIST_PAGE = 1_000
_OURS = re.compile(r"unstuck:\{([A-Za-z0-9._-]{1,128})\}:(lock|job|held|worker|cache):(.+)\Z")
_EXPECTED = {"lock": "string", "job": "hash", "held": "set", "worker": "hash", "cache": "hash"}
FOREIGN_LOCKS = {  # locks of other systems that are only good with an expiry: without one, their own recovery is off for ever
    "celery": re.compile(r"(.*)unacked_mutex\Z"),
    "rq": re.compile(r"rq:clean_registries:(.+)\Z"),
    "saq": re.compile(r"saq:(.+):(?:sweep|schedule)\Z"),
    "taskiq": re.compile(r"autoclaim:(.+)\Z"),
}
Place = tuple[str, str]


@dataclass(slots=True)
class Found:
    """What a pass has found in one queue."""

    without_expiry: list[str] = field(default_factory=list)  # keys
    orphan_locks: list[str] = field(default_factory=list)  # job ids
    orphan_bodies: list[str] = field(default_factory=list)  # job ids
    wrong_types: list[str] = field(default_factory=list)  # keys
    pending: set[str] = field(default_factory=set)  # bodies that say they wait: to be compared with the list

    def findings(self) -> tuple[SideFinding, ...]:
        """As side findings, one per kind."""
        told = (
            ("lock_without_expiry", self.without_expiry, "locks never expire"),
            ("orphan_lock", self.orphan_locks, "locks belong to jobs that do not run"),
            ("orphan_body", self.orphan_bodies, "jobs are in no index of their queue"),
            ("wrong_type", self.wrong_types, "keys hold another type than the protocol's"),
        )
        return tuple(
            SideFinding(
                kind, f"{len(names)} {words}, {names[0]} for one", count=len(names), evidence={"first": names[0]}
            )
            for kind, names, words in told
            if names
        )


class Auditor:
    """Passes over the whole keyspace, page by page. `rest(seconds)` waits, and answers True when it is to stop."""

    def __init__(self, reading: Redis, clock: Clock, rest: Callable[[float], bool]) -> None:
        self._reading = reading
        self._clock = clock
        self._rest = rest
        self.complete = False  # a whole pass has been made: counts are no lower bounds any more
        self.findings: dict[Place, tuple[SideFinding, ...]] = {}
        self.without_expiry: dict[Place, int] = {}
        self.orphans: dict[str, list[str]] = {}  # our queue -> ids of bodies that no index knows

    def run(self) -> bool:
        """One pass; False if it was stopped before its end. Raises redis-py's exceptions."""
        found: dict[Place, Found] = {}
        for page in self._pages():
            begun = self._clock.monotonic()
            self._examine(page, found)
            if self._pause(self._clock.monotonic() - begun):
                return False
        for (backend, queue), one in found.items():
            if backend == "unstuck":
                self._look_again(queue, one)
        self.findings = {place: told for place, one in found.items() if (told := one.findings())}
        self.without_expiry = {place: len(one.without_expiry) for place, one in found.items()}
        self.orphans = {queue: one.orphan_bodies for (backend, queue), one in found.items() if backend == "unstuck"}
        self.complete = True
        return True

    def _pages(self) -> Iterator[list[str]]:
        cursor = 0
        while True:
            begun = self._clock.monotonic()
            cursor, names = self._reading.scan(cursor, count=PAGE)
            yield [text(name) for name in names]
            if cursor == 0 or self._pause(self._clock.monotonic() - begun):
                return

    def _pause(self, took: float) -> bool:
        return self._rest(min(LONGEST_REST_SECONDS, took * (1 / SHARE - 1)))

    def _examine(self, page: list[str], found: dict[Place, Found]) -> None:
        ours = [(name, matched) for name in page if (matched := _OURS.match(name))]
        foreign = [
            (name, backend, matched[1] or "default")
            for name in page
            for backend, shape in FOREIGN_LOCKS.items()
            if (matched := shape.match(name))
        ]
        if not ours and not foreign:
            return
        pipe = self._reading.pipeline(transaction=False)
        for name, matched in ours:
            pipe.type(name)
            pipe.pttl(name)
            pipe.hmget(keys.job(matched[1], matched[3]), "state", "lock")
            pipe.zscore(keys.active(matched[1]), matched[3])
            pipe.zscore(keys.scheduled(matched[1]), matched[3])
            pipe.zscore(keys.dead(matched[1]), matched[3])
        for name, _, _ in foreign:
            pipe.pttl(name)
        answers: list[Any] = pipe.execute(raise_on_error=False)
        for i, (name, matched) in enumerate(ours):
            queue, part, rest = matched.groups()
            self._about_ours(
                found.setdefault(("unstuck", queue), Found()), name, part, rest, answers[6 * i : 6 * i + 6]
            )
        for (name, backend, queue), left in zip(foreign, answers[6 * len(ours) :], strict=True):
            if left == -1:
                _add(found.setdefault((backend, queue), Found()).without_expiry, name)

    @staticmethod
    def _about_ours(found: Found, name: str, part: str, job: str, answers: list[Any]) -> None:
        kind, left, body, active, scheduled, dead = answers
        if text(kind) not in ("none", _EXPECTED[part]):
            _add(found.wrong_types, name)
            return
        state = text(body[0]) if isinstance(body, list) else ""
        if part == "lock":
            if left == -1:
                _add(found.without_expiry, name)
            if state != "active" and text(kind) != "none":
                _add(found.orphan_locks, job)
        elif part == "job":
            homes = {"active": active, "scheduled": scheduled, "dead": dead}
            if state in homes and homes[state] is None:
                _add(found.orphan_bodies, job)
            elif state == "pending" and len(found.pending) < MOST_PENDING:
                found.pending.add(job)

    def _look_again(self, queue: str, found: Found) -> None:
        """Keep only what is still so: a job may have moved between two pages."""
        position = 0
        while found.pending:  # a list is read page by page, never searched for each job
            begun = self._clock.monotonic()
            names: Any = self._reading.lrange(keys.pending(queue), position, position + LIST_PAGE - 1)
            found.pending.difference_update(map(text, names))
            position += LIST_PAGE
            if len(names) < LIST_PAGE or self._pause(self._clock.monotonic() - begun):
                break
        for job in sorted(found.pending):
            _add(found.orphan_bodies, job)
        for suspects in (found.orphan_bodies, found.orphan_locks):
            suspects[:] = [job for job in suspects if self._still(queue, job, body=suspects is found.orphan_bodies)]

    def _still(self, queue: str, job: str, *, body: bool) -> bool:
        begun = self._clock.monotonic()
        pipe = self._reading.pipeline(transaction=False)
        pipe.hget(keys.job(queue, job), "state")
        pipe.zscore(keys.active(queue), job)
        pipe.zscore(keys.scheduled(queue), job)
        pipe.zscore(keys.dead(queue), job)
        pipe.exists(keys.lock(queue, job))
        if body:
            pipe.execute_command("LPOS", keys.pending(queue), job)
        answers = pipe.execute(raise_on_error=False)
        self._pause(self._clock.monotonic() - begun)
        state = text(answers[0]) if not isinstance(answers[0], Exception) else ""
        if not body:
            return state != "active" and answers[4] == 1
        homes = {"active": answers[1], "scheduled": answers[2], "dead": answers[3], "pending": answers[5]}
        return state in homes and homes[state] is None


def restore(client: Redis, epoch: int, orphans: dict[str, list[str]]) -> int:
    """Put bodies that no index knows back where their state says, so that they are judged like any other; how many."""
    calls = [
        scripts.Call("restore_job", keys.meta(queue), (epoch, job))
        for queue, jobs in orphans.items()
        for job in jobs[:MOST_SUSPECTS]
    ]
    restored = 0
    for start in range(0, len(calls), 100):
        answers = scripts.run_many(client, calls[start : start + 100])
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        restored += sum(text(answer) == "restored" for answer in answers)
    return restored


def _add(names: list[str], name: str) -> None:
    if len(names) < MOST_SUSPECTS:
        names.append(name)
