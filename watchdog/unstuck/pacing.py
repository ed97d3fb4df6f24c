"""Pacing: the polling interval that the agent publishes. Pure; the formula and its bounds are those of the contract.

    delay_part = average delay / delay_threshold          backlog_part = pending / backlog_threshold
    score = min(1, delay_part + backlog_part)             interval = base x (1 + score)
    memory over the limit: interval x penalty             base <= interval <= max_interval

The interval is for *empty* polls only: a worker that got a job polls again at once. Used on every poll the same formula is
a metastable failure, because a longer interval makes a longer backlog.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SMOOTHING = 0.3  # weight of the newest measurement in the average delay


@dataclass(frozen=True, slots=True)
class PacingRules:
    """Seconds and jobs. Checked when the configuration is loaded; `decide` clamps whatever it is given."""

    base_interval: float = 0.2
    max_interval: float = 10.0
    delay_threshold: float = 10.0
    backlog_threshold: float = 1000.0
    penalty_factor: float = 2.0
    jitter: float = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured of one queue."""

    average_delay: float | None = None  # seconds; None: nothing started, or not told
    pending: int = 0
    over_memory_limit: bool = False


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
    reason: str  # idle, delay, backlog, memory


def sane(value: float | None) -> float:
    """A measurement without nonsense: not a number, infinite or negative counts as 0."""
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


def decide(load: Load, rules: PacingRules) -> Decision:
    """The interval for a queue under this load."""
    base = max(0.001, sane(rules.base_interval))
    longest = max(base, sane(rules.max_interval))
    delay_part = sane(load.average_delay) / max(1e-6, sane(rules.delay_threshold))
    backlog_part = sane(load.pending) / max(1e-6, sane(rules.backlog_threshold))
    raw = delay_part + backlog_part
    score = min(1.0, raw)
    penalty = max(1.0, sane(rules.penalty_factor)) if load.over_memory_limit else 1.0
    interval = min(longest, max(base, base * (1 + score) * penalty))
    if penalty > 1:
        reason = "memory"
    elif score < 0.01:
        reason = "idle"
    else:
        reason = "delay" if delay_part >= backlog_part else "backlog"
    return Decision(interval, base, longest, score, raw, delay_part, backlog_part, penalty, reason)


def smooth(before: float | None, measured: float | None) -> float | None:
    """An exponentially weighted average; nothing measured leaves it as it was."""
    if measured is None or not math.isfinite(measured) or measured < 0:
        return before
    return measured if before is None else before + SMOOTHING * (measured - before)
