"""Watching a chaos run from outside: the event streams of the queues as they grow, and what the agents say of their gates."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from chaos.stage import Member, Stage
from unstuck.protocol import keys

Span = tuple[float, float]


@dataclass(frozen=True)
class Seen:
    """One event of a queue's stream; `at` is the harness's monotonic time of reading it."""

    at: float
    queue: str
    entry: str
    event: str
    job: str
    worker: str
    token: str
    cause: str


class Follower(threading.Thread):
    """Reads the streams to their end, through every outage."""

    def __init__(self, connect: Callable[..., Any], queues: Sequence[str]) -> None:
        super().__init__(name="follower", daemon=True)
        self.events: list[Seen] = []
        self.gaps = 0
        self._connect = connect
        self._last = {keys.events(queue): "0-0" for queue in queues}
        self._names = {keys.events(queue): queue for queue in queues}
        self._done = threading.Event()
        self._idle = threading.Event()

    def run(self) -> None:
        client: Any = None
        while not self._done.is_set():
            try:
                client = client or self._connect()
                self._read(client)
            except (redis.RedisError, OSError):
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.05)

    def _read(self, client: Any) -> None:
        self._idle.clear()
        found = client.xread(dict(self._last), count=2000, block=200)
        now = time.monotonic()
        for stream, entries in found or ():
            if len(entries) == 2000:
                first = client.xinfo_stream(stream)["first-entry"][0]
                if _order(first) > _order(self._last[stream]) and self._last[stream] != "0-0":
                    self.gaps += 1
            for entry, fields in entries:
                self._last[stream] = entry
                names = (fields.get(name, "") for name in ("event", "job", "worker", "token", "cause"))
                self.events.append(Seen(now, self._names[stream], entry, *names))
        if not found:
            self._idle.set()

    def finish(self) -> None:
        """Read what is left, then end."""
        self._idle.clear()
        self._idle.wait(10)
        self._done.set()
        self.join(10)


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number)


@dataclass
class AgentView:
    """What one agent has said so far."""

    member: Member
    read: int = 0
    rest: bytes = b""
    open_since: float | None = None
    leads: bool = False
    gate: bool = False
    braked: set[str] = field(default_factory=set)


class Gates(threading.Thread):
    """Follows the agents' logs, and knows when some leader's gate was open and no brake engaged."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(name="gates", daemon=True)
        self.opened: list[tuple[Member, Span]] = []
        self.said: list[tuple[float, str, dict[str, Any]]] = []
        self._stage = stage
        self._views: dict[int, AgentView] = {}
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.03):
            for member in self._stage.members:
                if member.role == "agent":
                    self._follow(self._views.setdefault(id(member), AgentView(member)))

    def finish(self) -> None:
        self._done.set()
        self.join(10)
        now = time.monotonic()
        for view in self._views.values():
            self._set(view, now, is_open=False)

    @property
    def open(self) -> list[Span]:
        """The times of all agents, one after the other."""
        return [span for _, span in self.opened]

    def is_open(self) -> bool:
        """Whether some agent leads with an open gate now."""
        return any(view.open_since is not None for view in self._views.values())

    def brakes(self) -> bool:
        """Whether a leader's brake holds; one that has lost the lead does not say more of its own."""
        return any(view.braked and view.leads for view in self._views.values())

    def _follow(self, view: AgentView) -> None:
        now = time.monotonic()
        lost = next((at for at, what in reversed(view.member.life) if what in ("killed", "stopped")), None)
        if lost is not None and view.open_since is not None and lost > view.open_since:
            view.gate = view.leads = False
            self._set(view, lost, is_open=False)
        with view.member.process.stderr_path.open("rb") as file:
            file.seek(view.read)
            data = file.read()
        view.read += len(data)
        *lines, view.rest = (view.rest + data).split(b"\n")
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                self.said.append(
                    (now, view.member.name, {"event": "unreadable", "line": line.decode(errors="replace")})
                )
                continue
            self.said.append((now, view.member.name, said))
            self._heed(view, said, now)

    def _heed(self, view: AgentView, said: dict[str, Any], now: float) -> None:
        match said.get("event"):
            case "leader_acquired":
                view.leads = True
            case "leader_lost":
                view.leads = view.gate = False
            case "gate_opened":
                view.leads = view.gate = True
            case "gate_closed":
                view.gate = False
                if "late" in str(said.get("detail")):  # it has slept until now: it was not open while it did
                    self._set(view, now - 2.5 * self._stage.times.sweep, is_open=False)
            case "brake_engaged":
                view.braked.add(str(said.get("queue")))
            case "brake_released":
                view.braked.discard(str(said.get("queue")))
        self._set(view, now, is_open=view.leads and view.gate and not view.braked)

    def _set(self, view: AgentView, now: float, *, is_open: bool) -> None:
        if is_open and view.open_since is None:
            view.open_since = now
        elif not is_open and view.open_since is not None:
            if now > view.open_since:
                self.opened.append((view.member, (view.open_since, now)))
            view.open_since = None


def without(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """The spans, merged, minus the holes."""
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    for hole_begin, hole_end in holes:
        left = []
        for begin, end in merged:
            if begin < hole_begin:
                left.append((begin, min(end, hole_begin)))
            if end > hole_end:
                left.append((max(begin, hole_end), end))
        merged = [span for span in left if span[1] > span[0]]
    return merged


def length_within(spans: Sequence[Span], begin: float, end: float) -> float:
    """How many seconds of [begin, end] the spans cover."""
    return sum(max(0.0, min(end, one[1]) - max(begin, one[0])) for one in spans)
