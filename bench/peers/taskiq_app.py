"""taskiq with taskiq-redis' stream broker, which acknowledges; one process."""

import asyncio

from marking import URL, mark
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(url=URL)


@broker.task
async def job(sent_ns: int) -> None:
    mark(sent_ns)


_loop = asyncio.new_event_loop()
_ready = False


async def _send(sent_ns: int) -> None:
    global _ready  # noqa: PLW0603  a script
    if not _ready:
        await broker.startup()
        _ready = True
    await job.kiq(sent_ns)


def send(sent_ns: int) -> None:
    _loop.run_until_complete(_send(sent_ns))


def command(concurrency: int) -> list[str]:
    async_tasks = str(concurrency)
    return [
        "taskiq",
        "worker",
        "taskiq_app:broker",
        "-w",
        "1",
        "--max-async-tasks",
        async_tasks,
        "--log-level",
        "ERROR",
    ]
