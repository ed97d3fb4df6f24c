"""The load maker of deploy/compose.yaml: two jobs a second, most of them short, for as long as it runs."""

import itertools
import os
import signal
import sys
import threading

import redis

from unstuck.protocol import Queue

SECONDS = (0.5, 0.5, 1, 1, 2, 5)


def main() -> int:
    """Enqueue until SIGTERM. A Redis that is away is waited for."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    client = redis.Redis.from_url(os.environ["UNSTUCK_REDIS"])
    queue = Queue(client, "mail")
    for seconds in itertools.cycle(SECONDS):
        try:
            queue.enqueue({"seconds": seconds})
        except (redis.RedisError, OSError) as error:
            print(f"load: {type(error).__name__}: {error}", file=sys.stderr)
        if stop.wait(0.5):
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
