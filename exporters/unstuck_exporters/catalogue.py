"""The catalogue of metrics as a page for people: `python -m unstuck_exporters.catalogue > docs/metrics.md`.

A test fails when the page and the exporter differ.
"""

from __future__ import annotations

import sys
from typing import Final

from unstuck_exporters import labels
from unstuck_exporters.families_agent import AGENT
from unstuck_exporters.families_queue import QUEUES

_HEAD: Final = """\
# Metrics

Made by `python -m unstuck_exporters.catalogue`; a test fails when this page and the exporter differ.

- A scrape renders what the agent last saw. It never touches Redis.
- What a queue system does not tell is absent, never 0. Data older than three sweep intervals (at least 15 s) is absent,
  not frozen; the families of the agent, `unstuck_redis_up` among them, and its own counters stay.
- An agent that follows another one exports no queue families: sum over agents without fear of counting twice.
- Counters of the agent start at 0 for every queue with each reason and action, so that `increase()` sees the first one.
- `*_timestamp_seconds` of jobs, locks and heartbeats are in Redis' time: alert on `time() - x`, which goes on growing
  when an agent hangs; `unstuck_clock_offset_seconds` says how far the clocks are apart.
- The number of series depends on the number of queues only (about 150 for a queue of our own protocol), never on jobs
  or workers. More than 1,000 queues are counted in `unstuck_queues_dropped`.
- Job ids appear in one place: as exemplars `job_id` on `unstuck_reclaim_delay_seconds`, in OpenMetrics.
- `unstuck_heartbeat_age_seconds` is a distribution of the moment, not of all time: use its buckets without `rate()`. Redis
  counts them without reading heartbeats, so it has no sum.
"""


def markdown() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, families in (("The agent and Redis", AGENT), ("Queues", QUEUES)):
        parts.append(f"\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
        parts += [
            f"| `{f.name}` | {f.kind} | {', '.join(f'`{label}`' for label in f.labels)} | {f.help} |\n"
            for f in families
        ]
    parts.append("\n## Values of labels\n\n| label | of | values |\n|---|---|---|\n")
    for label, families_of, values in (
        ("state", "`unstuck_queue_jobs`", labels.JOB_STATES),
        ("state", "`unstuck_queue_workers`", labels.WORKER_STATES),
        ("reason", "all", labels.REASONS),
        ("action", "all", labels.ACTIONS),
        ("cause", "`unstuck_reclaims_skipped_total`", labels.SKIP_CAUSES),
        ("cause", "`unstuck_gate_closed_total`", labels.GATE_CAUSES),
        ("cause", "`unstuck_poll_resets_total`", labels.RESET_CAUSES),
        ("cause", "`unstuck_cache_invalidations_total`", labels.INVALIDATION_CAUSES),
        ("cause", "`unstuck_notifications_suppressed_total`", labels.SUPPRESSION_CAUSES),
        ("kind", "`unstuck_redis_errors_total`, `unstuck_reclaim_failures_total`", labels.FAILURE_KINDS),
        ("event", "`unstuck_leader_transitions_total`", labels.LEADER_EVENTS),
    ):
        parts.append(f"| `{label}` | {families_of} | {', '.join(f'`{value}`' for value in values)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(markdown())
