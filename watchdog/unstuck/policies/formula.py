"""The formula of the contract: the interval grows with the queue's own delay and backlog, at most to twice the base."""

from __future__ import annotations

from dataclasses import dataclass

from unstuck import pacing
from unstuck.pacing import Decision, Load, PacingRules


@dataclass(frozen=True, slots=True)
class Formula:
    """`base x (1 + min(1, delay + backlog))`, times the penalty while memory is short. The default."""

    name: str = "formula"

    def decide(self, load: Load, rules: PacingRules) -> Decision:
        return pacing.decide(load, rules)
