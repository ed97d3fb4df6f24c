"""Jobs and workers of RQ as a user would write them. They run in processes of their own, never in the tests' process.

`python -m support.rq_jobs URL QUEUE [--name N] [--kind Worker|SimpleWorker|SpawnWorker] [--beat SECONDS] [--burst]`
starts a worker. The jobs tell what happened under keys of their own: `ran:<job>` and `ended:<job>` count, and a gated
job waits until the key `gate:<job>` is there.
"""

import argparse
import time

import redis
import rq


def gated(url: str, job: str) -> str:
    """Say that the job runs, wait for its gate, say that it ended."""
    with redis.Redis.from_url(url) as client:
        client.incr(f"ran:{job}")
        while not client.exists(f"gate:{job}"):
            time.sleep(0.02)
        client.incr(f"ended:{job}")
    return "done"


def failing() -> None:
    """Raise."""
    raise RuntimeError("on purpose")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("queues", nargs="+")
    parser.add_argument("--name")
    parser.add_argument("--kind", default="Worker")
    parser.add_argument("--beat", type=int, default=1)
    parser.add_argument("--burst", action="store_true")
    given = parser.parse_args()
    kind = getattr(rq, given.kind) if hasattr(rq, given.kind) else getattr(rq.worker, given.kind)
    worker = kind(
        given.queues,
        name=given.name,
        connection=redis.Redis.from_url(given.url),
        job_monitoring_interval=given.beat,
    )
    worker.work(burst=given.burst)


if __name__ == "__main__":
    main()
