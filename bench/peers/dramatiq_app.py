"""dramatiq: one process."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from marking import URL, mark

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor
def job(sent_ns: int) -> None:
    mark(sent_ns)


def send(sent_ns: int) -> None:
    job.send(sent_ns)


def command(concurrency: int) -> list[str]:
    return ["dramatiq", "dramatiq_app", "-p", "1", "-t", str(concurrency)]
