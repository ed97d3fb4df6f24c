"""SAQ: results are not kept."""

import asyncio
import os
from typing import Any

from marking import URL, mark
from saq import Queue

queue = Queue.from_url(URL, name="bench")


async def job(_: dict[str, Any], *, sent_ns: int) -> None:
    mark(sent_ns)


settings = {"queue": queue, "functions": [job], "concurrency": int(os.environ.get("BENCH_CONCURRENCY", "1"))}
_loop = asyncio.new_event_loop()


def send(sent_ns: int) -> None:
    _loop.run_until_complete(queue.enqueue("job", sent_ns=sent_ns, ttl=-1))


def command(concurrency: int) -> list[str]:  # told by BENCH_CONCURRENCY
    return ["saq", "saq_app.settings"] if concurrency else []
