"""huey: not crash-safe (a job is popped before it runs); here for its speed."""

from huey import RedisHuey
from marking import URL, mark

huey = RedisHuey("bench", url=URL, results=False)


@huey.task()
def job(sent_ns: int) -> None:
    mark(sent_ns)


def send(sent_ns: int) -> None:
    job(sent_ns)


def command(concurrency: int) -> list[str]:
    return ["huey_consumer", "huey_app.huey", "-w", str(concurrency), "-k", "thread", "-q"]
