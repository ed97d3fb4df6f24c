"""RQ: `rq worker bench` (its default worker forks for each job)."""

from marking import URL, mark
from redis import Redis
from rq import Queue

_queue = Queue("bench", connection=Redis.from_url(URL))


def send(sent_ns: int) -> None:
    _queue.enqueue(mark, sent_ns, result_ttl=0)


def command(concurrency: int) -> list[str]:  # one at a time is all that a worker can do
    return ["rq", "worker", "--url", URL, "--quiet", "bench"] if concurrency == 1 else []
