"""Real workers in real processes, what their handlers told, and what the agent would see of them."""

import json
from typing import Any

from support.own_queue import OwnQueue, authority, condemned
from support.processes import Process, Processes
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Lease, keys

FAST = ("--heartbeat-interval", "200ms", "--abort-after", "8s", "--lock-ttl", "5s")


class WorkerBench(OwnQueue):
    """A queue with workers. `told` is the server to which handlers speak; another one where the queue's own goes away."""

    def __init__(self, server: RedisServer, processes: Processes, told: RedisServer | None = None) -> None:
        super().__init__(server.client())
        self.server = server
        self.told: Any = (told or server).client()
        self.told_url = (told or server).url
        self.processes = processes

    def worker(self, handler: str, *options: str, queue: str = "", ready: bool = True, fast: bool = True) -> Process:
        """Start `unstuck worker`; return when it takes jobs."""
        process = self.processes.unstuck(
            "worker",
            queue or self.name,
            f"support.handlers:{handler}",
            *(FAST if fast else ()),
            *options,
            env={"UNSTUCK_REDIS": self.server.url, "HANDLER_REDIS": self.told_url, "UNSTUCK_LOG_LEVEL": "debug"},
        )
        if ready:
            process.wait_for_output(r"INFO ready .*")
        return process

    def name_of(self, process: Process) -> str:
        """The worker's id, as its log tells it."""
        return process.wait_for_output(r"INFO ready .*worker=(\S+)")[1]

    def heard(self, word: str, job: str | None = None, count: int = 1, timeout: float = 20.0) -> dict[str, Any]:
        """Wait until a handler has said this word (so many times); return what it said last."""

        def look() -> list[dict[str, Any]]:
            all_of_it = [json.loads(line) for line in self.told.lrange("told", 0, -1)]
            found = [said for said in all_of_it if said["word"] == word and job in {None, said["job"]}]
            return found if len(found) >= count else []

        return wait_until(look, timeout, f"a handler has said {word!r} {count} times")[-1]

    def words(self) -> list[str]:
        return [json.loads(line)["word"] for line in self.told.lrange("told", 0, -1)]

    def go(self, job: str) -> None:
        """Let a patient handler end."""
        self.told.rpush(f"go:{job}", "go")

    def until_state(self, job: str, state: str, timeout: float = 20.0) -> dict[str, str]:
        def there() -> dict[str, str] | None:
            found = self.job(job)
            return found if found.get("state") == state else None

        return wait_until(there, timeout, f"{job} is {state}")

    def subscribed(self, worker: str) -> bool:
        channel = keys.control(self.name, worker)
        return bool(dict(self.client.pubsub_shardnumsub(channel)).get(channel, 0))

    def record(self, worker: str) -> dict[str, str]:
        return dict(self.client.hgetall(keys.worker(self.name, worker)))

    def until_control(self, worker: str, timeout: float = 20.0) -> None:
        wait_until(
            lambda: self.subscribed(worker) and self.record(worker).get("control") == "1",
            timeout,
            f"{worker} has said that its control channel stands",
        )

    def current(self, job: str) -> Lease:
        """The running attempt of a job, as somebody else sees it."""
        body = self.job(job)
        return Lease(self.queue, job, body["token"], int(body["attempt"]), body["payload"], body["worker"], "0", 0)

    def take_away(self, job: str) -> str:
        """Reclaim a running job as an agent would, whatever its heartbeat says."""
        lease = self.current(job)
        by = self.client.hset(keys.job(self.name, job), "expected_by", "1")
        assert by in {0, 1}
        (answer,) = self.call(
            "reclaim_jobs",
            *authority(self, op=f"take-{lease.token}"),
            *condemned(lease, self, reason="deadline_passed"),
        )
        return str(answer)
