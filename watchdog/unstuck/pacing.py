"""Pacing: the polling interval that the agent publishes. Pure; the formula and its bounds are those of the contract.

    delay_part = average delay / delay_threshold          backlog_part = pending / backlog_threshold
    score = min(1, delay_part + backlog_part)             interval = base x (1 + score)
    memory over the limit: interval x penalty             base <= interval <= max_interval

The interval is for *empty* polls only: a worker that got a job polls again at once. Used on every poll the same formula is
a metastable failure, because a longer interval makes a longer backlog.

`decide` is the formula, `steady` keeps what is published from flapping. Other ways to decide stand in `policies/`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

SMOOTHING = 0.3  # weight of the newest measurement in an average
SETTLE = 3  # publications after a change during which it is not taken back
IDLE_SCORE = 0.01  # a score below this is no load


@dataclass(frozen=True, slots=True)
class PacingRules:
    """Seconds and jobs. Checked when the configuration is loaded; `decide` clamps whatever it is given."""

    base_interval: float = 0.2
    max_interval: float = 10.0
    delay_threshold: float = 10.0
    backlog_threshold: float = 1000.0
    penalty_factor: float = 2.0
    jitter: float = 0.2
    fleet_rate: float = 100.0  # polls per second of all pollers together (policy `fleet`)
    hysteresis: float = 0.1  # smallest change that is published, as a share of the interval that stands


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of one queue."""

    average_delay: float | None = None  # seconds; None: nothing started, or not told
    pending: int = 0
    over_memory_limit: bool = False
    pollers: int = 0  # of all queues with the same policy: what polls when nothing is to be done


@dataclass(frozen=True, slots=True)
class Decision:
    """An interval (seconds) and how it came about."""

    interval: float
    base: float
    max_interval: float
    score: float
    score_raw: float
    delay_part: float
    backlog_part: float
    penalty: float
    reason: str  # REASONS


REASONS = ("idle", "delay", "backlog", "memory", "pollers", "fixed")


def sane(value: float | None) -> float:
    """A measurement without nonsense: not a number, infinite or negative counts as 0."""
    return float(value) if value is not None and math.isfinite(value) and value > 0 else 0.0


def bounds(rules: PacingRules) -> tuple[float, float]:
    """The base and the longest interval, in seconds, whatever the rules hold."""
    base = max(0.001, sane(rules.base_interval))
    return base, max(base, sane(rules.max_interval))


def parts(load: Load, rules: PacingRules) -> tuple[float, float]:
    """Delay and backlog as shares of their thresholds."""
    delay_part = sane(load.average_delay) / max(1e-6, sane(rules.delay_threshold))
    backlog_part = sane(load.pending) / max(1e-6, sane(rules.backlog_threshold))
    return delay_part, backlog_part


def penalty_for(load: Load, rules: PacingRules) -> float:
    """The factor of the memory limit, 1 where it is kept."""
    return max(1.0, sane(rules.penalty_factor)) if load.over_memory_limit else 1.0


def decide(load: Load, rules: PacingRules) -> Decision:
    """The interval for a queue under this load."""
    base, longest = bounds(rules)
    delay_part, backlog_part = parts(load, rules)
    raw = delay_part + backlog_part
    score = min(1.0, raw)
    penalty = penalty_for(load, rules)
    interval = min(longest, max(base, base * (1 + score) * penalty))
    if penalty > 1:
        reason = "memory"
    elif score < IDLE_SCORE:
        reason = "idle"
    else:
        reason = "delay" if delay_part >= backlog_part else "backlog"
    return Decision(interval, base, longest, score, raw, delay_part, backlog_part, penalty, reason)


@dataclass(frozen=True, slots=True)
class Held:
    """What is published: a decision that stands until another one differs enough from it."""

    decision: Decision
    before: float | None = None  # the interval that it has just replaced; None: it stands, or is the first
    age: int = 0  # publications since it last changed
    rising: bool | None = None  # the direction of that change


def steady(held: Held | None, fresh: Decision, rules: PacingRules) -> Held:
    """The decision to publish after `fresh` was made: `fresh` itself, or the interval that stands with its reason.

    Kept while `fresh` differs by at most `hysteresis` of it (but a queue without load goes back to base exactly), and
    while `fresh` would take back a change made less than SETTLE publications ago. Score, penalty and reason belong
    to the interval and are kept with it; the parts and the raw score are always the fresh ones.
    """
    if held is None or (held.decision.base, held.decision.max_interval) != (fresh.base, fresh.max_interval):
        return Held(fresh)
    stands = held.decision.interval
    drained = fresh.interval <= fresh.base * (1 + IDLE_SCORE) < stands
    small = abs(fresh.interval - stands) <= min(0.5, sane(rules.hysteresis)) * stands and not drained
    rising = fresh.interval > stands
    taken_back = held.rising is not None and rising != held.rising and held.age < SETTLE and fresh.penalty == 1
    if small or taken_back or fresh.interval == stands:
        kept = replace(
            fresh,
            interval=stands,
            score=held.decision.score,
            penalty=held.decision.penalty,
            reason=held.decision.reason,
        )
        return Held(kept, None, held.age + 1, held.rising)
    return Held(fresh, stands, 0, rising)


def smooth(before: float | None, measured: float | None) -> float | None:
    """An exponentially weighted average; nothing measured leaves it as it was."""
    if measured is None or not math.isfinite(measured) or measured < 0:
        return before
    return measured if before is None else before + SMOOTHING * (measured - before)
