"""RQ 2 and 3, read and moved through its raw keys.

What may go wrong: RQ has no token that would stop a worker we wrongly took for dead, so a job goes back only while its
worker's connection is gone, and the script that moves it reads everything it was judged on again. RQ's own cleaner does
the same work later: its lock is respected, and held while we act. What the layout makes impossible stands in
docs/capabilities.md.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoScriptError, ResponseError, WatchError

from unstuck.errors import Deposed, classify
from unstuck.model import Action, Authority, Capability, Condemned, QueueSnapshot, Reclaimed
from unstuck.queue import Limits
from unstuck.queues.rq_facts import client_names
from unstuck.queues.rq_keys import Layout, own_events, own_fence, own_rescues
from unstuck.queues.rq_reading import read
from unstuck.queues.rq_state import LEAST_STUCK_AFTER, snapshot
from unstuck.spelling import counted

if TYPE_CHECKING:
    from redis import Redis

BATCH: Final = 100
TRANSACTION: Final = 20  # jobs per MULTI: about 200 µs of Redis each, and nobody else is served meanwhile
HOLD_MS: Final = 10_000  # of RQ's cleaner lock; a batch takes milliseconds, this is for our own death in between
RESCUES_LIFE_MS: Final = 72 * 3_600_000
RQ_FAILURE_TTL: Final = 31_536_000  # seconds, RQ's default
LEAST_GONE_AFTER: Final = 5.0  # a cut subscription comes back after a pause of 2 s in RQ's worker
STRANDED_AFTER: Final = 1.0  # seconds that a popped job may need to start before it is reported

_RECLAIM: Final = "reclaim_rq.lua"
_RELEASE: Final = "release_rq.lua"


def script(name: str) -> str:
    """The text of a script beside this module."""
    return (files("unstuck.queues") / "lua" / name).read_text(encoding="utf-8")


class RQAdapter:
    """The queues of RQ on one Redis. `client` must give bytes; `prefix` is RQ_KEY_PREFIX.

    `look` and `reclaim` may be called from one thread at a time.
    """

    backend: str = "rq"
    capability: Capability = Capability.RECLAIM
    least_stuck_after: float = LEAST_STUCK_AFTER
    least_gone_after: float = LEAST_GONE_AFTER

    def __init__(self, client: Redis, prefix: str = "rq") -> None:
        if client.get_connection_kwargs().get("decode_responses"):
            raise ValueError("RQAdapter needs a client with decode_responses=False: RQ stores pickles beside text")
        self._client = client
        self._layout = Layout(prefix)
        self._popped: dict[str, dict[bytes, float]] = {}  # queue -> popped job -> when first seen, monotonic
        self._scripts = {name: script(name) for name in (_RECLAIM, _RELEASE)}
        self._digests = {name: hashlib.sha1(text.encode()).hexdigest() for name, text in self._scripts.items()}  # noqa: S324 - Redis names scripts by it

    def discover(self) -> Sequence[str]:
        """Names of the queues in RQ's own registry, sorted. A registry that is no set raises: RQ must not be blind unnoticed."""
        members: Any = self._client.smembers(self._layout.queues)
        return sorted(filter(None, (self._layout.name_of(key, "queue") for key in members)))

    def look(self, queues: Mapping[str, Limits]) -> Sequence[QueueSnapshot]:
        """One look in at most three round trips."""
        reading = read(self._client, self._layout, queues)
        self._popped = {name: seen for name, seen in self._popped.items() if name in queues}
        return [
            snapshot(seen, reading, queues[seen.name], self._long_stranded(seen.name, seen.stranded))
            for seen in reading.queues
        ]

    def _long_stranded(self, queue: str, popped: Sequence[bytes]) -> int:
        """How many of the popped jobs have been so for a while: a start takes milliseconds, and a look may fall into it."""
        now = time.monotonic()
        before = self._popped.get(queue, {})
        self._popped[queue] = {job: before.get(job, now) for job in popped}
        return sum(now - since >= STRANDED_AFTER for since in self._popped[queue].values())

    def reclaim(
        self, queue: str, condemned: Sequence[Condemned], limits: Limits, authority: Authority
    ) -> Sequence[Reclaimed]:
        """Move the condemned jobs, at most 100, each only on the evidence it was judged on.

        Raises Deposed when a younger leader has been here, ValueError for more than 100, and redis-py's exception where
        Redis does not answer (what was moved by then is moved; asking again answers `lost_race`).
        """
        if len(condemned) > BATCH:
            raise ValueError(f"at most {BATCH} jobs per call, not {len(condemned)}")
        answers: list[Reclaimed] = []
        for start in range(0, len(condemned), TRANSACTION):
            answers += self._persist(queue, condemned[start : start + TRANSACTION], limits, authority)
        return answers

    def _persist(
        self, queue: str, condemned: Sequence[Condemned], limits: Limits, authority: Authority
    ) -> list[Reclaimed]:
        for _ in range(3):
            try:
                answers = self._attempt(queue, condemned, limits, authority)
            except WatchError as disguised:  # a connection that was lost between WATCH and EXEC
                raise disguised.__cause__ or disguised.__context__ or disguised from None
            if answers is not None:
                return answers
        return [Reclaimed(one.job, Action.LOST_RACE, "fence") for one in condemned]

    def _attempt(
        self, queue: str, condemned: Sequence[Condemned], limits: Limits, authority: Authority
    ) -> list[Reclaimed] | None:
        """Evidence and scripts on one connection. None: another leader or a script flush came between, try again."""
        hold = f"unstuck:{authority.owner}:{authority.epoch}:{secrets.token_hex(4)}"
        pipe: Any
        with self._client.pipeline(transaction=True) as pipe:
            pipe.watch(own_fence(queue))  # from here to EXEC redis-py stays on this connection
            back = self._connected(pipe, condemned)
            for text in self._scripts.values():
                pipe.script_load(text)
            pipe.multi()
            asked = [one for one in condemned if one.worker not in back]
            for one in asked:
                keys, values = self._arguments(queue, one, limits, authority, hold)
                pipe.evalsha(self._digests[_RECLAIM], len(keys), *keys, *values)
            pipe.evalsha(self._digests[_RELEASE], 1, self._layout.cleaner(queue), hold)
            try:
                answers = pipe.execute(raise_on_error=False)[:-1]
            except WatchError as error:
                if error.__cause__ is not None:  # redis-py's disguise of a connection lost while watching
                    raise error.__cause__ from None
                return None
            except ResponseError as error:  # the whole transaction was refused (out of memory, read-only, no rights)
                return [Reclaimed(one.job, Action.SKIPPED, classify(error)) for one in condemned]
        if any(isinstance(answer, NoScriptError) for answer in answers):
            return None
        told = {id(one): _told(one, answer) for one, answer in zip(asked, answers, strict=True)}
        return [told.get(id(one)) or Reclaimed(one.job, Action.LOST_RACE, "connection") for one in condemned]

    def _connected(self, pipe: Any, condemned: Sequence[Condemned]) -> set[str]:
        """Workers without a subscription whose name a client bears again; the subscription itself is the script's."""
        names = sorted({one.worker for one in condemned if one.worker})
        if not names:
            return set()
        counts = pipe.execute_command("PUBSUB", "NUMSUB", *(self._layout.channel(name) for name in names))
        unheard = {name for name, count in zip(names, counts[1::2], strict=True) if not count}
        if not unheard:
            return set()
        try:
            clients = client_names(pipe.execute_command("CLIENT", "LIST"))
        except ResponseError:  # no right to it
            return set()
        return unheard & (clients or set())

    def _arguments(
        self, queue: str, one: Condemned, limits: Limits, authority: Authority, hold: str
    ) -> tuple[list[Any], list[Any]]:
        rq, job = self._layout, one.job.encode()
        member = job + b":" + one.token.encode()
        end, _, beat = one.heartbeat.partition("|")
        keys: list[Any] = [
            own_fence(queue), own_rescues(queue), own_events(queue),
            rq.wip(queue), rq.queue(queue), rq.intermediate(queue), rq.failed(queue), rq.cleaner(queue), rq.suspended,
            rq.job(job), rq.executions(job), rq.execution(member), rq.results(job),
            rq.worker(one.worker), rq.worker_executions(one.worker),
            rq.job(job) + b":dependents", rq.job(job) + b":dependencies",
        ]  # fmt: skip
        values: list[Any] = [
            authority.epoch, authority.run_id, authority.replication_id, hold, HOLD_MS, queue, one.job, one.token,
            one.worker, rq.channel(one.worker), end, beat,
            str(one.evidence.get("execution_heartbeat", "")), str(one.evidence.get("worker_heartbeat", "")),
            str(one.reason), limits.max_rescues, RESCUES_LIFE_MS, RQ_FAILURE_TTL, _failure(one, limits),
        ]  # fmt: skip
        return keys, values


def _failure(one: Condemned, limits: Limits) -> str:
    """The text of a dead-lettered job's failure, as RQ keeps it in a result."""
    told = (
        f"Stuck in a worker that is gone ({one.reason}: worker {one.worker or 'unknown'}, execution {one.token}); "
        f"it had been put back {counted(limits.max_rescues, 'time')} before, so unstuck moved it to the FailedJobRegistry."
    )
    return base64.b64encode(zlib.compress(told.encode())).decode()


def _told(one: Condemned, answer: Any) -> Reclaimed:
    if isinstance(answer, ResponseError):
        return Reclaimed(one.job, Action.SKIPPED, classify(answer))
    if isinstance(answer, Exception):
        raise answer
    action, cause, rescues = answer[0].decode(), answer[1].decode(), int(answer[2])
    if action == "deposed":
        raise Deposed(f"a leader with epoch {cause} has been at this queue")
    return Reclaimed(one.job, Action(action), cause, rescues)
