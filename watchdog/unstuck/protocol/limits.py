"""Retry and retention limits that a client hands to the scripts; the agent's configuration has the same names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Counts are whole numbers, durations milliseconds."""

    max_attempts: int = 5
    retry_delay_ms: int = 1_000
    result_ttl_ms: int = 3_600_000
    dead_max: int = 10_000
    dead_ttl_ms: int = 30 * 86_400_000
