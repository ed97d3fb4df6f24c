"""Draws what run.py and real.py wrote: `python plots.py FOLDER docs/pacing`. Needs matplotlib (requirements/bench.txt)."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "fixed interval": "#6e7781",
    "fixed interval, after empty polls": "#b08800",
    "contract: formula": "#1a7f37",
    "contract, --wake off": "#0969da",
    "contract: formula, memory penalty": "#57ab5a",
    "contract: fleet": "#8250df",
    "contract: fleet, --wake off, no growth": "#bf87ff",
    "naive: formula on every poll": "#cf222e",
    "naive, memory penalty": "#fa7a18",
}
DASHES = {
    "contract: formula, memory penalty": (0, (5, 3)),
    "contract: fleet": (0, (1, 2)),
    "naive, memory penalty": "--",
}


def line(axes: Any, name: str, xs: list[float], ys: list[float], **more: Any) -> None:
    axes.plot(xs, ys, color=COLOURS[name], linestyle=DASHES.get(name, "-"), label=name, linewidth=1.6, **more)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def bursts(data: Any, path: Path) -> None:
    figure, (backlog, waits, polls) = plt.subplots(3, 1, figsize=(9, 10), sharex=True)
    for name, run in data.items():
        line(backlog, name, *zip(*run["backlog"], strict=True))
        line(waits, name, *zip(*run["p95"], strict=True))
        line(polls, name, *zip(*run["polls"], strict=True))
    backlog.set_title("20 pollers, base 1 s, load 60 %: one burst of 600 jobs after 300 s (simulated)")
    backlog.set_ylabel("jobs waiting")
    backlog.set_yscale("symlog", linthresh=10)
    backlog.set_ylim(0, 1_000_000)
    waits.set_ylabel("95th percentile of the wait, s")
    waits.set_yscale("symlog", linthresh=0.1)
    waits.set_ylim(0, 2_000)
    polls.set_ylabel("commands per second")
    polls.set_xlabel("seconds")
    polls.set_ylim(0, 80)
    backlog.legend(fontsize=8, ncols=2, loc="upper left")
    save(figure, path)


def by_load(polling: Any, working: Any, path: Path) -> None:
    figure, grid = plt.subplots(2, 2, figsize=(10, 8), sharex=True)
    titles = ("capacity set by polling (job 0 s, base 1 s)", "capacity set by the workers (job 1 s, base 0.2 s)")
    for column, (data, title) in enumerate(zip((polling, working), titles, strict=True)):
        loads = [100 * load for load in data["loads"]]
        for row, what in enumerate(("p95", "recovery")):
            axes = grid[row][column]
            for name, found in data["ways"].items():
                values = [max(0.001, value) if math.isfinite(value) else math.nan for value in found[what]]
                line(axes, name, loads, values, marker=".")
            axes.set_yscale("log")
            axes.grid(visible=True, alpha=0.3)
        grid[0][column].set_title(title, fontsize=10)
        grid[1][column].set_xlabel("load, % of the capacity")
    grid[0][0].set_ylabel("95th percentile of the wait\nafter a burst of 600, s")
    grid[1][0].set_ylabel("time to recover, s (no point: never)")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, ncols=3, loc="lower center")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def idle(data: Any, path: Path) -> None:
    figure, (over_time, by_size) = plt.subplots(1, 2, figsize=(11, 4.5))
    for name, points in data["over_time"].items():
        every = 5  # seconds: within the first seconds the fleet still polls in step
        grouped = [points[start : start + every] for start in range(0, len(points), every)]
        means = [(part[-1][0], sum(rate for _, rate in part) / len(part)) for part in grouped]
        line(over_time, name, *zip(*means, strict=True))
    over_time.set_title("1,000 workers begin to have nothing to do", fontsize=10)
    over_time.set_xlabel("seconds")
    over_time.set_ylabel("commands per second")
    for name, values in data["by_size"].items():
        line(by_size, name, data["fleets"], values, marker=".")
    by_size.axhline(100, color="#8250df", linewidth=0.6)
    by_size.set_title("after 25 s, by the size of the fleet", fontsize=10)
    by_size.set_xlabel("workers")
    by_size.set_xscale("log")
    for axes in (over_time, by_size):
        axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
    by_size.legend(fontsize=8)
    save(figure, path)


def slow(data: Any, path: Path) -> None:
    figure, (reply, busy) = plt.subplots(1, 2, figsize=(11, 4.5))
    for name, found in data["ways"].items():
        line(reply, name, data["fleets"], [1000 * value for value in found["reply"]], marker=".")
        line(busy, name, data["fleets"], [100 * value for value in found["busy"]], marker=".")
    reply.set_title("a slow Redis (1 ms per command), 20 jobs/s", fontsize=10)
    reply.set_ylabel("time until a reply, ms")
    reply.set_yscale("log")
    reply.set_ylim(0.8, 100_000)
    busy.set_ylabel("Redis busy, %")
    for axes in (reply, busy):
        axes.set_xscale("log")
        axes.set_xlabel("workers")
        axes.grid(visible=True, alpha=0.3)
    reply.legend(fontsize=8, loc="upper left")
    save(figure, path)


def windows(waits: list[tuple[float, float]], window: float = 5.0) -> tuple[list[float], list[float]]:
    grouped: dict[int, list[float]] = {}
    for at, wait in waits:
        grouped.setdefault(int(at // window), []).append(wait)
    found = sorted(grouped.items())
    return [(n + 1) * window for n, _ in found], [sorted(one)[int(0.95 * (len(one) - 1))] for _, one in found]


def real(data: Any, path: Path) -> None:
    figure, (backlog, waits, polls) = plt.subplots(3, 1, figsize=(9, 10), sharex=True)
    for name, run in data["busy"].items():
        samples = run["samples"]
        line(backlog, name, [s["at"] for s in samples], [s["backlog"] for s in samples])
        line(waits, name, *windows(run["waits"]))
        step = 4
        pairs = list(zip(samples[::step], samples[step::step], strict=False))
        rates = [(b["polls"] - a["polls"]) / (b["at"] - a["at"]) for a, b in pairs]
        line(polls, name, [b["at"] for _, b in pairs], rates)
    backlog.set_title("200 real pollers, a real Redis: quiet, then 27 jobs/s of 4 s (54 %), then a burst of 600")
    backlog.set_ylabel("jobs waiting")
    backlog.legend(fontsize=8)
    waits.set_ylabel("95th percentile of the wait, s")
    waits.set_yscale("symlog", linthresh=0.1)
    waits.set_ylim(0, 200)
    polls.set_ylabel("commands per second")
    polls.set_xlabel("seconds")
    save(figure, path)


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    told = {path.stem: json.loads(path.read_text()) for path in source.glob("*.json")}
    bursts(told["bursts"], target / "burst.png")
    by_load(told["polling"], told["working"], target / "load.png")
    idle(told["idle"], target / "idle.png")
    slow(told["slow"], target / "slow-redis.png")
    real(told["real"], target / "real.png")


if __name__ == "__main__":
    main()
