"""One of our own queues on a real server: its client, its scripts called raw, and a bookkeeper who knows where each job is."""

from collections.abc import Callable, Mapping
from typing import Any

import redis

from unstuck.protocol import Lease, Queue, Terms, keys, scripts

WORKER = "host:1:0123abcd"
OTHER = "host:2:fedc4321"
NONCE = "00112233445566aa"
LIMITS = (10_000, 86_400_000)  # dead_max, dead_ttl_ms
STRINGS = {"fence", "stamp"}


class OwnQueue:
    """`client` gives text. Job ids of the scenarios: `first` waits, `running` is held by WORKER, and so on."""

    def __init__(self, client: redis.Redis, name: str = "mail") -> None:
        self.client: Any = client  # redis-py's types do not say that this one gives text
        self.name = name
        self.queue = Queue(client, name)

    def key(self, part: str) -> str:
        return keys.stem(self.name) + part

    def call(self, script: str, *args: Any, key: str | None = None) -> Any:
        return scripts.run(self.client, script, key or keys.meta(self.name), *args)

    def put(self, job: str, payload: object = None, **options: Any) -> str:
        self.queue.enqueue(payload, id=job, **options)
        return job

    def claim(self, worker: str = WORKER, slot: str = "0", terms: Terms | None = None) -> Lease:
        taken = self.queue.claim(worker, slot, terms)
        assert isinstance(taken, Lease), taken
        return taken

    def held(self, job: str, worker: str = WORKER, **options: Any) -> Lease:
        """Put a job into an otherwise empty pending list and claim it."""
        self.put(job, **options)
        return self.claim(worker)

    def fresh(self, job: str) -> None:
        """Count no delay for it, however long this machine takes until it is claimed."""
        self.client.hincrby(keys.job(self.name, job), "ready_at", 60_000)

    def bury(self, job: str) -> str:
        lease = self.held(job)
        assert self.queue.fail(lease, "no", permanent=True) == "dead"
        return job

    # -- looking ---------------------------------------------------------------------------------------------------

    def job(self, job: str) -> dict[str, str]:
        return dict(self.client.hgetall(keys.job(self.name, job)))

    def stats(self) -> dict[str, int]:
        return {name: int(value) for name, value in self.client.hgetall(keys.stats(self.name)).items()}

    def events(self) -> list[dict[str, str]]:
        return [entry for _, entry in self.client.xrange(keys.events(self.name))]

    def run_id(self) -> str:
        return str(self.client.info("server")["run_id"])

    def replication_id(self) -> str:
        return str(self.client.info("replication")["master_replid"])

    def everything(self, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """Every key of the queue, and the leader's, with its whole value; `without` leaves out keys by their last part."""
        found: dict[str, Any] = {}
        names = sorted([*self.client.scan_iter(match=f"unstuck:{{{self.name}}}:*", count=1000), keys.LEADER])
        for name in names:
            if name.removeprefix(keys.stem(self.name)) not in without:
                found[name] = self.value(name)
        return found

    def value(self, name: str) -> Any:
        look: Mapping[str, Callable[[], Any]] = {
            "none": lambda: None,
            "string": lambda: self.client.get(name),
            "list": lambda: self.client.lrange(name, 0, -1),
            "set": lambda: sorted(self.client.smembers(name)),
            "zset": lambda: self.client.zrange(name, 0, -1, withscores=True),
            "hash": lambda: self.client.hgetall(name),
            "stream": lambda: self.client.xrange(name),
        }
        return look[str(self.client.type(name))]()

    def places(self) -> dict[str, list[str]]:
        """For each job that has a body or stands in a structure: every place in which it is."""
        found: dict[str, list[str]] = {}
        for name in self.client.scan_iter(match=self.key("job:*"), count=1000):
            found[name.removeprefix(self.key("job:"))] = []
            if self.client.type(name) == "hash" and self.client.hget(name, "state") == "done":
                found[name.removeprefix(self.key("job:"))].append("done")
        for part in ("pending", "quarantine"):
            if self.client.type(self.key(part)) == "list":
                for job in self.client.lrange(self.key(part), 0, -1):
                    found.setdefault(job, []).append(part)
        for part in ("scheduled", "active", "dead"):
            if self.client.type(self.key(part)) == "zset":
                for job in self.client.zrange(self.key(part), 0, -1):
                    found.setdefault(job, []).append(part)
        return found

    def in_one_place_each(self, *, aside: str = "") -> None:
        """Fail unless each job is in exactly one place, and its state says which; `aside` is a structure taken away."""
        for job, places in self.places().items():
            kind = self.client.type(keys.job(self.name, job))
            state = self.client.hget(keys.job(self.name, job), "state") if kind == "hash" else "quarantine"
            if state == aside:
                assert places == [], f"{job} is {state} and stands in {places}"
            else:
                assert places == [state], f"{job} is {state} and stands in {places}"

    def damage(self, part: str) -> None:
        """Put a value of another type in the place of a key; what was there is kept under another name."""
        name = self.key(part)
        if self.client.exists(name):
            self.client.rename(name, f"aside:{name}")
        if part in STRINGS:
            self.client.rpush(name, "wrong")
        else:
            self.client.set(name, "wrong")


def condemned(lease: Lease, own: OwnQueue, **changes: Any) -> tuple[Any, ...]:
    """The nine arguments of `reclaim_jobs` for one attempt, as an agent that has just looked would give them."""
    given = {
        "id": lease.id,
        "token": lease.token,
        "heartbeat": own.job(lease.id).get("heartbeat_at", ""),
        "lock": "held",
        "reason": "lock_without_heartbeat",
        "threshold_ms": 0,
        "worker": lease.worker,
        "owner_beat": _score(own, lease.worker),
        "evidence": '{"why":"test"}',
    }
    return tuple((given | changes).values())


def authority(own: OwnQueue, **changes: Any) -> tuple[Any, ...]:
    """The first eleven arguments of `reclaim_jobs`."""
    given = {
        "owner": "agent-1",
        "epoch": 1000,
        "op": "op-reclaim",
        "run_id": own.run_id(),
        "replication_id": own.replication_id(),
        "max_rescues": 3,
        "retry_delay_ms": 1000,
        "jitter": 1000,
        "dead_max": LIMITS[0],
        "dead_ttl_ms": LIMITS[1],
        "deadline_grace_ms": 0,
    }
    return tuple((given | changes).values())


def _score(own: OwnQueue, worker: str) -> str:
    # As text, as the script sees it.
    return str(
        own.client.eval("return redis.call('ZSCORE', KEYS[1], ARGV[1]) or ''", 1, keys.workers(own.name), worker)
    )


TERMS = "3600000 ttl 30000 5000 20000"


def handed(lease: Lease, op: str = "op1", claim_op: str = "", version: object = "") -> tuple[Any, ...]:
    """What complete_and_claim takes for one slot."""
    return lease.slot, op, lease.id, lease.token, version, claim_op or f"0123456789abcde{lease.slot}"


# -- one call of each script, prepared so that it has its full effect ------------------------------------------------------

Prepared = tuple[str, tuple[Any, ...]]


def _enqueue(own: OwnQueue) -> Prepared:
    return "enqueue_job", ("new", "op1", "{}", 0, "", "", "")


def _enqueue_later(own: OwnQueue) -> Prepared:
    return "enqueue_job", ("new", "op1", "{}", 60_000, 3, 500, 1000)


def _claim(own: OwnQueue) -> Prepared:
    own.put("first", expected=5)
    return "claim_job", (WORKER, "0c", "op1", NONCE, "ttl", 30_000, 5_000, 20_000)


def _claim_due(own: OwnQueue) -> Prepared:
    own.put("due", delay=60)
    own.client.zadd(keys.scheduled(own.name), {"due": 1})
    return "claim_job", (WORKER, "0c", "op1", NONCE, "none", 30_000, 5_000, 20_000)


def _heartbeat(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    own.queue.register(WORKER, control=True)
    return "heartbeat_jobs", (WORKER, 30_000, 200, lease.id, lease.token, "half", "gone", "1.0", "")


def _progress(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    return "report_progress", (lease.id, lease.token, "half")


def _complete(own: OwnQueue) -> Prepared:
    lease = own.held("running", expected=5)
    return "complete_job", (WORKER, "0f", "op1", lease.id, lease.token, 3_600_000, "")


def _complete_and_claim(own: OwnQueue) -> Prepared:
    lease = own.held("running", expected=5)
    own.put("first", expected=5)
    return "complete_and_claim", (WORKER, TERMS, *handed(lease))


def _complete_and_claim_several(own: OwnQueue) -> Prepared:
    for n, expected in enumerate((5, None, None)):
        own.put(f"running{n}", expected=expected)
    leases = [own.claim(slot=str(n)) for n in range(3)]
    own.client.hincrby(keys.job(own.name, "running1"), "started_at", -700)
    own.put("first")
    own.put("second", expected=5)
    return "complete_and_claim", (WORKER, TERMS, *(word for lease in leases for word in handed(lease)))


def _complete_and_claim_due(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    own.put("due", delay=60, expected=5)
    own.client.zadd(keys.scheduled(own.name), {"due": 1})
    return "complete_and_claim", (WORKER, TERMS, *handed(lease))


def _complete_and_find_nothing(own: OwnQueue) -> Prepared:
    script, args = _complete_and_claim(own)
    own.client.delete(keys.job(own.name, "first"))
    own.client.delete(keys.pending(own.name))
    return script, args


def _complete_refused(own: OwnQueue) -> Prepared:
    own.held("running")
    return "complete_job", (WORKER, "0f", "op1", "running", "1.0000000000000000", 3_600_000, "")


def _conflict(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    return "complete_job", (WORKER, "0f", "op1", lease.id, lease.token, 3_600_000, lease.version + 1)


def _fail(own: OwnQueue) -> Prepared:
    lease = own.held("running", expected=5)
    return "fail_job", (WORKER, "0f", "op1", lease.id, lease.token, "E: no", "error", 0, 5, 1000, 1000, *LIMITS)


def _fail_for_good(own: OwnQueue) -> Prepared:
    lease = own.held("running", max_attempts=1)
    return "fail_job", (WORKER, "0f", "op1", lease.id, lease.token, "E: no", "error", 0, 5, 1000, 1000, *LIMITS)


def _release(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    return "release_job", (WORKER, "0f", "op1", lease.id, lease.token, "shutdown", *LIMITS)


def _release_cancelled(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    own.queue.cancel("running")
    return "release_job", (WORKER, "0f", "op1", lease.id, lease.token, "cancelled", *LIMITS)


def _cancel_waiting(own: OwnQueue) -> Prepared:
    own.put("first")
    return "cancel_job", ("first", "op1", *LIMITS)


def _cancel_scheduled(own: OwnQueue) -> Prepared:
    own.put("later", delay=60)
    return "cancel_job", ("later", "op1", *LIMITS)


def _cancel_running(own: OwnQueue) -> Prepared:
    own.held("running")
    return "cancel_job", ("running", "op1", *LIMITS)


def _retry_dead(own: OwnQueue) -> Prepared:
    own.bury("buried")
    return "retry_dead", ("buried", "op1")


def _drop_dead(own: OwnQueue) -> Prepared:
    own.bury("buried")
    return "drop_dead", ("buried", "op1")


def _promote(own: OwnQueue) -> Prepared:
    own.put("due", delay=60)
    own.client.zadd(keys.scheduled(own.name), {"due": 1})
    return "promote_jobs", (100,)


def _reclaim(own: OwnQueue) -> Prepared:
    lease = own.held("running", expected=5)
    return "reclaim_jobs", (*authority(own), *condemned(lease, own))


def _reclaim_to_dead(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    return "reclaim_jobs", (*authority(own, max_rescues=0), *condemned(lease, own))


def _register(own: OwnQueue) -> Prepared:
    return "register_worker", (WORKER, 30_000, 1, "host", "h")


def _leave(own: OwnQueue) -> Prepared:
    own.queue.register(WORKER, control=True)
    own.held("running").complete()
    return "leave_worker", (WORKER, "0c", "0f")


def _purge(own: OwnQueue) -> Prepared:
    own.queue.register(WORKER, control=False)
    own.client.zadd(keys.workers(own.name), {WORKER: 1})
    own.client.hset(keys.ops(own.name), f"{WORKER}:0c", "op x")
    return "purge_workers", (600_000, 1, WORKER, f"{WORKER}:0c")


def _publish(own: OwnQueue) -> Prepared:
    return "publish_pacing", (1000, 15_000, 30_000, "interval_ms", 250)


def _write_cache(own: OwnQueue) -> Prepared:
    lease = own.held("running")
    return "write_cache", (lease.id, lease.token, 60_000, "step", "3", "of", "7")


def _write_batch(own: OwnQueue) -> Prepared:
    own.held("running").complete()
    return "write_batch", ("report", own.client.get(keys.stamp(own.name)), '{"jobs":1}', 60_000)


def _write_batch_stale(own: OwnQueue) -> Prepared:
    own.held("running").complete()
    return "write_batch", ("report", "0", '{"jobs":0}', 60_000)


def _bump_stamp(own: OwnQueue) -> Prepared:
    own.held("running").complete()
    return "bump_stamp", ("op1",)


def _restore(own: OwnQueue) -> Prepared:
    own.held("running")
    own.client.zrem(keys.active(own.name), "running")
    return "restore_job", (1000, "running")


def _read(own: OwnQueue) -> Prepared:
    own.held("running")
    own.put("first")
    return "read_queue", (30_000, 100, 0, 0)


SCENARIOS: dict[str, Callable[[OwnQueue], Prepared]] = {
    "enqueue": _enqueue,
    "enqueue later": _enqueue_later,
    "claim": _claim,
    "claim of a due one": _claim_due,
    "heartbeat": _heartbeat,
    "progress": _progress,
    "complete": _complete,
    "complete and claim": _complete_and_claim,
    "complete and claim of several": _complete_and_claim_several,
    "complete and claim of a due one": _complete_and_claim_due,
    "complete and find nothing": _complete_and_find_nothing,
    "complete with an old token": _complete_refused,
    "complete with another version": _conflict,
    "fail": _fail,
    "fail for good": _fail_for_good,
    "release": _release,
    "release of a cancelled one": _release_cancelled,
    "cancel of a waiting one": _cancel_waiting,
    "cancel of a scheduled one": _cancel_scheduled,
    "cancel of a running one": _cancel_running,
    "retry of a dead one": _retry_dead,
    "drop of a dead one": _drop_dead,
    "promote": _promote,
    "reclaim": _reclaim,
    "reclaim to dead": _reclaim_to_dead,
    "register": _register,
    "leave": _leave,
    "purge": _purge,
    "publish": _publish,
    "restore": _restore,
    "write of a job's cache": _write_cache,
    "write of a batch": _write_batch,
    "write of a batch under an old stamp": _write_batch_stale,
    "bump of the stamp": _bump_stamp,
    "read": _read,
}
