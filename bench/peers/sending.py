"""Sends jobs of one system: `python sending.py SYSTEM NUMBER [SECONDS BETWEEN TWO]`; or prints its worker's command."""

from __future__ import annotations

import importlib
import json
import random
import sys
import time


def main() -> None:
    if sys.argv[2] == "command":
        print(json.dumps(importlib.import_module(f"{sys.argv[1]}_app").command(int(sys.argv[3]))))
        return
    app = importlib.import_module(f"{sys.argv[1]}_app")
    number, gap = int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    for _ in range(number):
        if gap:
            time.sleep(gap * random.uniform(0.7, 1.3))  # in step with nobody's poll
        app.send(time.monotonic_ns())


main()
