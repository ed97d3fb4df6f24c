"""Always the base: for a fleet that is small, or whose workers wake on every job anyway."""

from __future__ import annotations

from dataclasses import dataclass

from unstuck.pacing import Decision, Load, PacingRules, bounds, parts


@dataclass(frozen=True, slots=True)
class Fixed:
    """The base interval, whatever the load. The parts of the score are told all the same."""

    name: str = "fixed"

    def decide(self, load: Load, rules: PacingRules) -> Decision:
        base, longest = bounds(rules)
        delay_part, backlog_part = parts(load, rules)
        return Decision(base, base, longest, 0.0, delay_part + backlog_part, delay_part, backlog_part, 1.0, "fixed")
