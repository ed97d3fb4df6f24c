"""States of RQ that no worker of its own is needed for, and short ways to look and to reclaim."""

import secrets
from typing import Any

from rq.executions import Execution
from rq.job import Job

from conformance.benches.rq import RQBench
from unstuck.model import Authority, Condemned, Lease, QueueSnapshot, Reason, Reclaimed
from unstuck.queue import Limits
from unstuck.queues.rq import RQAdapter


def look(bench: RQBench, **limits: float) -> QueueSnapshot:
    (snapshot,) = bench.adapter.look({bench.queue: Limits(**limits)})  # type: ignore[arg-type]
    return snapshot


def lease_of(bench: RQBench, job: str) -> Lease:
    return next(lease for lease in look(bench).leases if lease.job == job)


def kinds(bench: RQBench) -> set[str]:
    return {finding.kind for finding in look(bench).side_findings}


def reclaim(bench: RQBench, *leases: Lease, reason: Reason = Reason.LOCK_EXPIRED, max_rescues: int = 3) -> Reclaimed:
    return reclaim_all(bench.adapter, bench, leases, reason, max_rescues)[0]


def reclaim_all(
    adapter: RQAdapter, bench: RQBench, leases: Any, reason: Reason = Reason.LOCK_EXPIRED, max_rescues: int = 3
) -> list[Reclaimed]:
    info = bench.client.info()
    authority = Authority(f"test-{secrets.token_hex(4)}", 1000, info["run_id"], info["master_replid"])
    judged = [
        Condemned(one.job, one.worker, one.token, one.heartbeat, one.lock, reason, one.threshold, one.evidence)
        for one in leases
    ]
    return list(adapter.reclaim(bench.queue, judged, Limits(max_rescues=max_rescues), authority))


def fly(bench: RQBench, *, worker: str = "ghost", silent: float = 600.0, **options: Any) -> Lease:
    """Put a job in flight with RQ's own code for a worker that does not exist, silent for so many seconds."""
    (job,) = bench.enqueue(**options)
    assert bench.client.lrem(f"rq:queue:{bench.queue}", 1, job) == 1
    return take(bench, job, worker, silent)


def take(bench: RQBench, job: str, worker: str = "ghost", silent: float = 600.0) -> Lease:
    body = Job.fetch(job, connection=bench.client)
    with bench.client.pipeline() as pipe:
        execution = Execution.create(body, 90, pipeline=pipe, worker_name=worker)
        body.prepare_for_execution(worker, pipeline=pipe)
        pipe.execute()
    if silent:
        bench.age_lease(Lease(job=job, worker=worker, token=execution.id), silent)
    return next(one for one in look(bench).leases if one.token == execution.id)


def everything(bench: RQBench) -> dict[bytes, bytes]:
    return {key: bench.client.dump(key) for key in bench.client.scan_iter()}
