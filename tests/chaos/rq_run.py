"""Chaos with RQ: its own workers are killed, its own cleaner runs beside us, and no job may be queued twice.

Half of the killed jobs get their lease's end written into the past, as if a minute had gone by, so that RQ's cleaner wants
them at the same moment as we do. A sampler looks at all places of the queue in one transaction, all the time.
"""

import contextlib
import itertools
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import redis
import rq
from rq.job import Retry

from chaos import account
from chaos.account import Tally, spread
from chaos.report import Report
from chaos.run import staged, unreadable, versions
from chaos.stage import Stage
from chaos.watching import Follower, Gates, length_within
from support.processes import Process
from support.waiting import wait_until
from unstuck.protocol import keys
from unstuck.queues.rq import RQAdapter

QUEUE = "letters"
WORKERS = 4
READING_SECONDS = account.READING_SECONDS


class Sampler(threading.Thread):
    """Counts every id in the line, popped, and in flight, in one transaction per look."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="sampler", daemon=True)
        self.looks = 0
        self.twice: set[str] = set()
        self._stage = stage
        self._done = threading.Event()

    def run(self) -> None:
        client = self._stage.connect()
        while not self._done.wait(0.02):
            with contextlib.suppress(redis.RedisError, OSError):
                pipe = client.pipeline(transaction=True)
                pipe.lrange(f"rq:queue:{QUEUE}", 0, -1)
                pipe.zrange(f"rq:wip:{QUEUE}", 0, -1)
                waiting, flying = pipe.execute()
                self.looks += 1
                counts = Counter(waiting)
                flights = Counter(member.partition(":")[0] for member in flying)
                self.twice |= {f"{job} waits {count} times" for job, count in counts.items() if count > 1}
                self.twice |= {f"{job} is in flight {count} times" for job, count in flights.items() if count > 1}
                self.twice |= {f"{job} waits and is in flight" for job in counts.keys() & flights.keys()}

    def finish(self) -> None:
        self._done.set()
        self.join(5)


class RQRun:
    """One run with RQ's workers."""

    def __init__(self, stage: Stage, jobs: int, seconds: float, seed: int) -> None:
        self.stage = stage
        self.seed = seed
        self.jobs = jobs
        self.seconds = seconds
        self.counts: Counter[str] = Counter()
        self.done_to: dict[str, list[tuple[float, str]]] = defaultdict(list)  # worker's name -> faults
        self.deaths: dict[str, float] = {}  # worker's name -> when its whole tree was killed
        self._chance = random.Random(seed)
        self._workers: dict[str, Process] = {}
        self._number = 0
        self._client: Any = stage.connect()
        self._line: Any = rq.Queue(QUEUE, connection=redis.Redis.from_url(stage.address))

    def play(self) -> None:
        """Enqueue, kill, and wait until all is done."""
        for _ in range(WORKERS):
            self._start_worker()
        ends = time.monotonic() + self.seconds
        load = threading.Thread(target=self._enqueue, daemon=True)
        load.start()
        while time.monotonic() < ends or load.is_alive():
            time.sleep(self._chance.uniform(0.8, 2.2))
            kind = self._chance.choices(
                ("worker and horse killed", "parent killed", "worker stopped", "nothing"), (6, 2, 1, 1)
            )[0]
            self._fault(kind, self._victim())
        load.join()
        wait_until(self._all_ended, 120, "every job of RQ has ended")

    def _all_ended(self) -> bool:
        """A job that was taken and lost between two looks has RQ's lease of 60 s to wait for: let it be over."""
        left = (f"rq:queue:{QUEUE}", f"rq:queue:{QUEUE}:intermediate", f"rq:wip:{QUEUE}")
        if not self._client.exists(*left):
            return True
        for name, death in self.deaths.items():
            if time.monotonic() - death > 8:
                self._age(name)
        time.sleep(0.3)
        return False

    def _start_worker(self) -> None:
        self._number += 1
        name = f"rq-worker-{self._number}"
        self._workers[name] = self.stage.python(
            "-m", "support.rq_jobs", self.stage.address, QUEUE, "--name", name, "--beat", "1"
        )

    def _enqueue(self) -> None:
        chance = random.Random(self.seed + 1)
        for number in range(self.jobs):
            seconds = chance.uniform(1.0, 3.0) if chance.random() < 0.5 else chance.uniform(0.0, 0.2)
            job = f"r{number:05d}"
            self._line.enqueue("chaos.jobs.work_rq", job, seconds, job_id=job, retry=Retry(max=50), result_ttl=86_400)
            time.sleep(self.seconds / self.jobs)

    def _victim(self) -> str:
        """A worker that has held a job for a while, if there is one soon."""
        begun = time.monotonic()
        while time.monotonic() - begun < 3:
            members = self._client.zrange(f"rq:wip:{QUEUE}", 0, -1)
            holders = [self._client.hmget(f"rq:execution:{one}", "worker_name", "created_at") for one in members]
            old = {name for name, at in holders if name in self._workers and time.time() - float(at) > 0.8}
            if old:
                return self._chance.choice(sorted(old))
            time.sleep(0.1)
        return self._chance.choice(sorted(self._workers))

    def _fault(self, kind: str, name: str) -> None:
        process = self._workers[name]
        self.counts[kind] += 1
        self.done_to[name].append((time.monotonic(), kind))
        if kind == "worker stopped":
            process.freeze()
            time.sleep(self._chance.uniform(0.5, 3.0))
            process.thaw()
        elif kind == "parent killed":
            process.kill()  # the horse runs on
            del self._workers[name]
            self._start_worker()
        elif kind == "worker and horse killed":
            self.deaths[name] = time.monotonic()
            process.kill_tree()
            del self._workers[name]
            self._start_worker()
            if self._chance.random() < 0.5:
                time.sleep(self._chance.uniform(0, 2.5))
                self._age(name)

    def _age(self, worker: str) -> None:
        """Let the leases of this dead worker's jobs be over, as they would be in a minute."""
        for member in self._client.zrange(f"rq:wip:{QUEUE}", 0, -1):
            # The execution's own word: the job's is that of its last run until the next one has begun in earnest.
            if self._client.hget(f"rq:execution:{member}", "worker_name") == worker:
                self._client.zadd(f"rq:wip:{QUEUE}", {member: time.time() - 1}, xx=True)
                self.counts["lease ended early"] += 1

    # -- the account

    def settle(self, tally: Tally) -> None:
        """Every job finished, by RQ's own word."""
        tally.jobs = self.jobs
        for number in range(self.jobs):
            job = f"r{number:05d}"
            status = self._client.hget(f"rq:job:{job}", "status")
            if status == "finished":
                tally.done += 1
            elif status == "failed":
                tally.dead += 1
            else:
                tally.lost.append(f"{job}: status {status}")

    def judge_runs(self, tally: Tally) -> None:
        """No attempt may begin while an earlier one of the same job is alive and has not committed."""
        runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
        committed: dict[str, float] = {}
        for said in account.read_ledger(self.stage.effects, tally):
            if said["kind"] == "start":
                runs[said["job"]].append(said)
            elif said["answer"] != "twice":
                committed[said["token"]] = said["at"]
        for job, starts in runs.items():
            for before, after in itertools.pairwise(starts):
                death = self.deaths.get(before["worker"])
                if death is None or death > after["at"]:
                    begun = before["at"]
                    ended = committed.get(before["token"])
                    how = f"committed {ended - begun:.2f} s after its start" if ended else "never committed"
                    fate = [f"{kind} at {at - begun:+.2f} s" for at, kind in self.done_to[before["worker"]]]
                    tally.violations.append(
                        f"{job} ran again after {after['at'] - begun:.2f} s: its first run was not killed with its "
                        f"worker and {how}; the worker: {fate or 'nothing'}"
                    )

    def judge_rescues(self, tally: Tally, events: list[Any], gates: Gates) -> None:
        """Each rescue must follow the death of the whole tree, and soon."""
        times, wall, counted = self.stage.times, [], []
        for event in events:
            if event.event not in ("requeued", "dead_lettered"):
                continue
            tally.rescues[event.cause] += 1
            death = self.deaths.get(event.worker)
            if death is None or death > event.at:
                tally.healthy_reclaimed.append(f"{event.job} of {event.worker} for {event.cause}")
                continue
            wall.append(event.at - death)
            counted.append(length_within(gates.open, death, event.at))
        if wall:
            bound = max(0.0, RQAdapter.least_gone_after - times.gone) + times.bound_gone
            tally.detection["RQ, killed, connection gone"] = {
                "count": len(wall),
                "bound": bound,
                **spread("wall", wall),
                **spread("open", counted),
            }


def run_rq(
    *,
    jobs: int = 250,
    seed: int = 1,
    agents: int = 2,
    seconds: float = 60.0,
    folder: Path | None = None,
    log: Callable[[str], None] = print,
) -> Report:
    """RQ's workers, RQ's cleaner, and our agents in `mode: reclaim`."""
    begun = time.monotonic()
    with staged(folder, seed, log) as stage:
        stage.start_server()
        gates, sampler, follower = Gates(stage), Sampler(stage), Follower(stage.connect, (keys.tag("rq", QUEUE),))
        for _ in range(agents):
            stage.start_agent()
        cleaner = stage.python("-m", "chaos.rq_cleaner", stage.address, QUEUE)
        for thread in (gates, sampler, follower):
            thread.start()
        wait_until(gates.is_open, 60, "a gate opens for the first time")
        run = RQRun(stage, jobs, seconds, seed)
        run.play()
        follower.finish()
        gates.finish()
        sampler.finish()
        tally = Tally()
        run.settle(tally)
        run.judge_runs(tally)
        run.judge_rescues(tally, follower.events, gates)
        tally.violations += [f"queued twice: {one}" for one in sorted(sampler.twice)]
        tally.violations += [f"an agent said: {line}" for line in unreadable(gates)]
        if cleaner.returncode is not None:
            tally.violations.append(f"RQ's cleaner ended: {cleaner.tail()}")
        tally.more["looks at all places in one transaction"] = sampler.looks
        told = {**versions(stage), "rq": rq.__version__}
        return Report("rq", seed, time.monotonic() - begun, told, dict(run.counts), tally, asdict(stage.times), [])
