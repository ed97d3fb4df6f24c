"""Our own protocol: its client here, its reference worker (`unstuck worker`) in processes that are really killed."""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import redis

from support.processes import Process, Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.model import Lease
from unstuck.protocol import Queue, keys
from unstuck.queue import Limits
from unstuck.queues.unstuck import UnstuckAdapter

JOBS = "conformance.benches.unstuck_jobs:run"
TIMES = ("--heartbeat-interval", "500ms", "--lock-ttl", "3s", "--abort-after", "1500ms")


class UnstuckBench:
    """See conformance.bench.Bench."""

    queue = "mail"
    busy = "other"
    beats_every = 0.5
    lists_everything = False  # healthy leases cost its look nothing, so it does not list them
    limits = Limits(stuck_after=3.0)
    closest = Limits(stuck_after=0.0)  # every lease is silent for as long as that

    def __init__(self, server: RedisServer, processes: Processes) -> None:
        self.url = server.url
        self.processes = processes
        self.client: Any = redis.Redis.from_url(server.url, decode_responses=True)
        self.adapter = UnstuckAdapter(self.client, self.client)
        self.own = Queue(self.client, self.queue)
        self.notes = frozenset({keys.ops(self.queue).encode()})
        self._number = itertools.count(1)
        self._ran_before: dict[str, int] = {}

    def _put(self, queue: str | None = None, kind: str = "gated", **options: Any) -> str:
        line = self.own if queue is None else Queue(self.client, queue)
        return line.enqueue({"kind": kind, "url": self.url}, id=f"job-{next(self._number)}", **options).id

    def enqueue(self, *, count: int = 1, age: float = 0.0, queue: str | None = None) -> Sequence[str]:
        jobs = [self._put(queue) for _ in range(count)]
        if age:
            body = keys.job(queue or self.queue, jobs[0])
            for name in ("enqueued_at", "ready_at"):
                self.client.hincrby(body, name, -round(age * 1000))
        return jobs

    def schedule(self, delay: float) -> str:
        return self._put(delay=delay)

    def bury(self) -> str:
        job = self._put(kind="failing")
        _, worker = self.start_worker()
        wait_until(lambda: self.places(job) == ["dead"], why=f"{job} is dead")
        worker.terminate()
        assert worker.wait() == 0, worker.tail()
        return job

    def start_worker(self) -> tuple[str, Process]:
        process = self.processes.unstuck("worker", self.queue, JOBS, "--redis", self.url, *TIMES)

        def named() -> str:
            names = self.client.zrange(keys.workers(self.queue), 0, -1)
            return next((name for name in names if name.split(":")[1] == str(process.pid)), "")

        name = wait_until(named, 20, f"worker {process.pid} registers{process.tail()}")
        record = keys.worker(self.queue, name)
        wait_until(lambda: self.client.hget(record, "control") == "1", why=f"worker {name} listens{process.tail()}")
        return name, process

    def wait_until_running(self, job: str) -> None:
        before = self._ran_before.get(job, 0)
        wait_until(lambda: self.counts(job)[0] > before, 20, f"{job} runs")
        self._ran_before[job] = self.counts(job)[0]

    def let_end(self, job: str) -> None:
        self.client.set(f"gate:{job}", 1)

    def counts(self, job: str) -> tuple[int, int]:
        ran, ended = self.client.mget(f"ran:{job}", f"ended:{job}")
        return int(ran or 0), int(ended or 0)

    def wait_until_done(self, job: str) -> None:
        wait_until(lambda: self.places(job) == ["done"], 20, f"{job} is done")

    def break_a_key(self, queue: str) -> str:
        key = keys.active(queue)
        self.client.sadd(keys.QUEUES, queue)
        self.client.set(key, "not a sorted set")
        return key

    def age_lease(self, lease: Lease, seconds: float) -> None:
        earlier = -round(seconds * 1000)
        body, lock = keys.job(self.queue, lease.job), keys.lock(self.queue, lease.job)
        for name in ("heartbeat_at", "started_at"):
            self.client.hincrby(body, name, earlier)
        self.client.zincrby(keys.active(self.queue), earlier, lease.job)
        self.client.zincrby(keys.started(self.queue), earlier, lease.job)
        self.client.zincrby(keys.workers(self.queue), earlier, lease.worker)
        for key in (lock, keys.worker(self.queue, lease.worker)):
            left = self.client.pttl(key)
            if left > 0:
                self.client.pexpire(key, max(1, left + earlier))
        time.sleep(0.002)

    def places(self, job: str) -> Sequence[str]:
        found = ["pending"] * self.client.lrange(keys.pending(self.queue), 0, -1).count(job)
        found += ["quarantine"] * self.client.lrange(keys.quarantine(self.queue), 0, -1).count(job)
        for place in ("scheduled", "active", "dead"):
            if self.client.zscore(f"{keys.stem(self.queue)}{place}", job) is not None:
                found.append(place)
        if self.client.hget(keys.job(self.queue, job), "state") == "done":
            found.append("done")
        return found
