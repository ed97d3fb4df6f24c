"""A set rate of polls: the interval grows with the number of pollers, so that a larger fleet costs Redis no more.

With `n` pollers and a rate of `r` polls per second each waits `n / r` seconds after an empty poll, never less than the base
and never more than `max_interval`: beyond `r x max_interval` pollers the rate can only be kept by a longer `max_interval`.
It is a ceiling: workers lengthen their waits by themselves while they find nothing, and a worker that found a job polls at
once. The backlog plays no part, so this policy cannot slow a queue down because it is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstuck.pacing import Decision, Load, PacingRules, bounds, parts, penalty_for, sane


@dataclass(frozen=True, slots=True)
class Fleet:
    """`pollers / fleet_rate`, times the penalty while memory is short."""

    name: str = "fleet"

    def decide(self, load: Load, rules: PacingRules) -> Decision:
        base, longest = bounds(rules)
        delay_part, backlog_part = parts(load, rules)
        wanted = sane(load.pollers) / max(1e-3, sane(rules.fleet_rate))
        penalty = penalty_for(load, rules)
        interval = min(longest, max(base, wanted) * penalty)
        raw = max(0.0, wanted / base - 1)
        reason = "memory" if penalty > 1 else "pollers" if wanted > base else "idle"
        return Decision(interval, base, longest, min(1.0, raw), raw, delay_part, backlog_part, penalty, reason)
