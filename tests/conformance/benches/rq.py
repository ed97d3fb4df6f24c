"""RQ itself: its client here, its workers in processes."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import redis
import rq
from rq.registry import ScheduledJobRegistry

from support.processes import Process, Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.model import Lease
from unstuck.queue import Limits
from unstuck.queues.rq import RQAdapter

ISO = "%Y-%m-%dT%H:%M:%S.%fZ"


class RQBench:
    """See conformance.bench.Bench."""

    queue = "mail"
    busy = "other"
    beats_every = 1.0
    lists_everything = True
    limits = closest = Limits()
    notes: frozenset[bytes] = frozenset()

    def __init__(self, server: RedisServer, processes: Processes) -> None:
        self.url = server.url
        self.processes = processes
        self.client: Any = redis.Redis.from_url(server.url)
        self.adapter = RQAdapter(self.client)
        self.rq = rq.Queue(self.queue, connection=self.client)
        self._number = itertools.count(1)
        self._ran_before: dict[str, int] = {}

    def enqueue(
        self, *, count: int = 1, age: float = 0.0, queue: str | None = None, **options: object
    ) -> Sequence[str]:
        line = self.rq if queue is None else rq.Queue(queue, connection=self.client)
        jobs = [f"job-{next(self._number)}" for _ in range(count)]
        for job in jobs:
            line.enqueue("support.rq_jobs.gated", self.url, job, job_id=job, **options)
        if age:
            self.client.hset(
                f"rq:job:{jobs[0]}", "enqueued_at", (datetime.now(UTC) - timedelta(seconds=age)).strftime(ISO)
            )
        return jobs

    def schedule(self, delay: float) -> str:
        job = f"job-{next(self._number)}"
        self.rq.enqueue_in(timedelta(seconds=delay), "support.rq_jobs.gated", self.url, job, job_id=job)
        assert job in ScheduledJobRegistry(queue=self.rq).get_job_ids(cleanup=False)
        return job

    def bury(self) -> str:
        job = f"job-{next(self._number)}"
        self.rq.enqueue("support.rq_jobs.failing", job_id=job)
        worker = self.processes.python("-m", "support.rq_jobs", self.url, self.queue, "--burst")
        assert worker.wait() == 0, worker.tail()
        return job

    def start_worker(
        self, *options: str, name: str | None = None, queues: Sequence[str] | None = None
    ) -> tuple[str, Process]:
        name = name or f"worker-{next(self._number)}"
        process = self.processes.python(
            "-m", "support.rq_jobs", self.url, *(queues or [self.queue]), "--name", name, *options
        )
        wait_until(
            lambda: self.listeners(name) and self.client.hget(f"rq:worker:{name}", "state") in {b"idle", b"busy"},
            why=f"worker {name} listens{process.tail()}",
        )
        return name, process

    def listeners(self, worker: str) -> int:
        return int(self.client.pubsub_numsub(f"rq:pubsub:{worker}")[0][1])

    def wait_until_running(self, job: str) -> None:
        before = self._ran_before.get(job, 0)
        wait_until(lambda: self.counts(job)[0] > before, 20, f"{job} runs")
        self._ran_before[job] = self.counts(job)[0]

    def let_end(self, job: str) -> None:
        self.client.set(f"gate:{job}", 1)

    def counts(self, job: str) -> tuple[int, int]:
        ran, ended = self.client.mget(f"ran:{job}", f"ended:{job}")
        return int(ran or 0), int(ended or 0)

    def status(self, job: str) -> str:
        return (self.client.hget(f"rq:job:{job}", "status") or b"").decode()

    def members(self, job: str) -> list[bytes]:
        return [
            member
            for member in self.client.zrange(f"rq:wip:{self.queue}", 0, -1)
            if member.startswith(f"{job}:".encode())
        ]

    def wait_until_done(self, job: str) -> None:
        wait_until(lambda: self.status(job) == "finished" and not self.members(job), 20, f"{job} is finished")

    def break_a_key(self, queue: str) -> str:
        key = f"rq:wip:{queue}"
        self.client.sadd("rq:queues", f"rq:queue:{queue}")
        self.client.set(key, "not a sorted set")
        return key

    def age_lease(self, lease: Lease, seconds: float) -> None:
        member = f"{lease.job}:{lease.token}"
        body, run = f"rq:job:{lease.job}", f"rq:execution:{member}"
        with self.client.pipeline() as pipe:
            pipe.zincrby(f"rq:wip:{self.queue}", -seconds, member)
            for key, name in ((body, "last_heartbeat"), (body, "started_at"), (f"rq:worker:{lease.worker}", "birth")):
                if found := self.client.hget(key, name):
                    written = datetime.strptime(found.decode(), ISO).replace(tzinfo=UTC)
                    pipe.hset(key, name, (written - timedelta(seconds=seconds)).strftime(ISO))
            # The record of a worker that listens is renewed by that worker, whatever became of this attempt.
            for key in (run,) if self.listeners(lease.worker) else (run, f"rq:worker:{lease.worker}"):
                left = self.client.pttl(key)
                if left > 0:
                    pipe.pexpire(key, max(0, int(left - seconds * 1000)))
            pipe.execute()
        if self.client.exists(run):
            self.client.hincrbyfloat(run, "last_heartbeat", -seconds)

    def places(self, job: str) -> Sequence[str]:
        waiting = self.client.lrange(f"rq:queue:{self.queue}", 0, -1)
        popped = self.client.lrange(f"rq:queue:{self.queue}:intermediate", 0, -1)
        found = ["pending"] * waiting.count(job.encode()) + ["intermediate"] * popped.count(job.encode())
        found += ["active"] * len(self.members(job))
        for name, place in (("failed", "dead"), ("finished", "done"), ("scheduled", "scheduled")):
            if self.client.zscore(f"rq:{name}:{self.queue}", job) is not None:
                found.append(place)
        return found
