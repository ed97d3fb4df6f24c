"""The story of the demo, told from the queue's own event stream as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from unstuck.connections import text
from unstuck.demo.stage import Stage
from unstuck.protocol import keys

LONG_JOB_SECONDS = 6.0
POLL_MS = 200


def _short(evidence: str) -> str:
    """Of the evidence, what a person follows: how long it has been silent, and for how long it may be."""
    told = dict(word.split("=", 1) for word in evidence.split() if "=" in word)
    if "unchanged_s" not in told:
        return evidence
    return f"silent for {told['unchanged_s']} s, lock left {max(0, int(told.get('lock_pttl_ms', '0')))} ms"


class OutOfTimeError(Exception):
    """The bound of the demo is reached before its end; the message says what was being waited for."""


class Story:
    """Plays and tells. `say` prints one line; `seconds` bounds all of it."""

    def __init__(self, stage: Stage, say: Callable[[str, str], None], seconds: float) -> None:
        self._stage = stage
        self._say = say
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._last_id = "0-0"
        self._events: list[dict[str, str]] = []

    def play(self) -> bool:
        """Run the whole demo; True only if every job was finished exactly once and the killed one was rescued."""
        stage, say = self._stage, self._say
        say("info", f"Redis at {stage.connections.describe()}; three workers, one agent in mode reclaim")
        say("info", f"Metrics at {stage.page}/metrics, status page at {stage.page}/")
        self._until(lambda: self._live_workers() >= len(stage.workers), "the workers to register")
        stage.start_load()
        say("info", "Load: about four small jobs per second")
        window = stage.settings.stuck_after
        say("info", f"The agent watches for one full window ({window:g} s) before it judges anything")
        self._until(self._gate_is_open, "the gate to open")
        job = stage.put(LONG_JOB_SECONDS)
        taken = self._wait_for("acquired", job)
        worker = taken["worker"]
        say("info", f"Job {job[:8]}… (takes {LONG_JOB_SECONDS:g} s) is running at worker {worker}")
        self._until(lambda: self._progressed(job), "the job to make progress")
        killed = time.monotonic()
        stage.kill(int(worker.split(":")[1]))
        say("bad", f"kill -9: worker {worker} is gone in the middle of job {job[:8]}…; its heartbeat stopped")
        stage.start_worker()
        rescued = self._follow_rescue(job, taken["token"], killed)
        say("info", f"Load goes on for {self._load_left():.0f} s more")
        self._until(lambda: self._load_left() <= 0, "the load to end")
        stage.stop_load()
        self._until(stage.done, "all jobs to be done")
        return self._account(job) and rescued

    def _follow_rescue(self, job: str, token: str, killed: float) -> bool:
        told = {
            "suspected": ("warn", "suspected: {detail}"),
            "stuck": ("warn", "judged stuck: {detail}"),
            "confirmed": ("warn", "confirmed by a second look: same token, same heartbeat"),
            "requeued": ("good", "requeued: the old attempt {token} can write nothing any more"),
        }
        seen = 0
        while True:
            self._read()
            for event in self._events[seen:]:
                if event.get("job") != job:
                    continue
                after = time.monotonic() - killed
                kind = event["event"]
                if kind in told and event.get("token") == token:
                    style, words = told[kind]
                    detail = event.get("evidence") or event.get("cause", "")
                    line = words.format(detail=f"{event.get('cause', '')} ({_short(detail)})", token=token)
                    self._say(style, f"+{after:4.1f} s  {line}")
                elif kind == "acquired" and event.get("token") != token:
                    self._say(
                        "good", f"+{after:4.1f} s  running again at worker {event['worker']} after {after:.1f} seconds"
                    )
                elif kind == "completed":
                    self._say("good", f"+{after:4.1f} s  finished by worker {event['worker']}")
                    return True
                elif kind == "dead_lettered":
                    self._say("bad", f"+{after:4.1f} s  dead-lettered: {event.get('cause')}")
                    return False
            seen = len(self._events)
            self._check_time("the rescued job to finish")

    def _account(self, job: str) -> bool:
        stage = self._stage
        finishes = stage.finishes()
        total, twice = len(stage.enqueued), [name for name, count in finishes.items() if count > 1]
        missing = [name for name in stage.enqueued if finishes[name] == 0]
        if twice or missing:
            self._say("bad", f"{total} jobs: {len(missing)} not finished, {len(twice)} finished more than once")
            return False
        self._say("good", f"All {total} jobs finished exactly once, the rescued {job[:8]}… included")
        return True

    def _load_left(self) -> float:
        return self._ends - self._seconds * 2 / 3 - time.monotonic()

    def _progressed(self, job: str) -> bool:
        return bool(self._stage.queue.show(job).get("progress"))

    def _live_workers(self) -> int:
        return int(self._stage.client.zcard(keys.workers(self._stage.queue_name)))

    def _gate_is_open(self) -> bool:
        gate = self._stage.agent.board.view().agent.gate
        return gate is not None and gate.open

    def _wait_for(self, kind: str, job: str) -> dict[str, str]:
        while True:
            self._read()
            for event in self._events:
                if event.get("job") == job and event["event"] == kind:
                    return event
            self._check_time(f"job {job} to be {kind}")

    def _read(self) -> None:
        stream = keys.events(self._stage.queue_name)
        found: Any = self._stage.client.xread({stream: self._last_id}, count=500, block=POLL_MS)
        for _, entries in found or ():
            for entry, fields in entries:
                self._last_id = text(entry)
                self._events.append({text(name): text(value) for name, value in fields.items()})

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            self._check_time(what)
            time.sleep(0.05)

    def _check_time(self, what: str) -> None:
        if time.monotonic() > self._ends:
            raise OutOfTimeError(f"still waiting for {what} after {self._seconds:g} s; allow more with --seconds")
