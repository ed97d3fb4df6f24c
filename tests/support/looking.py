"""Looking as the commands do: `inspect` as a process, its document checked against the schema that we publish."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.cli import run_cli
from support.json_schema import faults
from support.processes import Process

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "inspect.schema.json").read_text())
BRISK = {
    "UNSTUCK_STUCK_AFTER": "3s",
    "UNSTUCK_HEARTBEAT_INTERVAL": "1s",
    "UNSTUCK_ABORT_AFTER": "1500ms",
    "UNSTUCK_LOCK_TTL": "3s",
}
"""Settings that fit the times of the workers here."""


def inspect(url: str, *options: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The document, checked against its schema."""
    ran = run_cli("inspect", "--redis", url, "--json", *options, env=env)
    assert ran.code == 0, ran.stderr
    document: dict[str, Any] = ran.json()
    assert list(faults(SCHEMA, document)) == []
    return document


def row(document: dict[str, Any], backend: str, queue: str = "mail") -> dict[str, Any]:
    (found,) = [one for one in document["queues"] if (one["backend"], one["queue"]) == (backend, queue)]
    return dict(found)


def about(document: dict[str, Any], job: str | None) -> dict[str, Any]:
    (found,) = [one for one in document["findings"] if one["job"] == job]
    return dict(found)


def run_one(bench: Any) -> tuple[str, str, Process]:
    """A job that a worker runs: (job, worker, process)."""
    (job,) = bench.enqueue()
    worker, process = bench.start_worker()
    bench.wait_until_running(job)
    return job, worker, process
