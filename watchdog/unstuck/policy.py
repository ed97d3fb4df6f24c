"""The contract of a pacing policy: how the polling interval of a queue follows from its load.

A policy is one small file in `policies/`, pure: it is told everything and does no input or output. Whatever it is given, it
keeps `base <= interval <= max_interval` and says in one word why (`pacing.REASONS`). What it decides is used after an
empty poll only, and what is published of it is kept from flapping by `pacing.steady`, so a policy need not care for either.
"""

from __future__ import annotations

from typing import Protocol

from unstuck.pacing import Decision, Load, PacingRules


class Policy(Protocol):
    """One way to choose an interval."""

    @property
    def name(self) -> str:
        """Its name in the configuration (`pacing.policy`)."""
        ...

    def decide(self, load: Load, rules: PacingRules) -> Decision:
        """The interval for a queue under this load."""
        ...
