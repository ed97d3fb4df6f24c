"""Complete and claim, for one slot of a worker or for several in one script.

What may go wrong: a slot's case is not straight (its token is not current, its next job is damaged, one of its two parts
is a repetition). The script then changes nothing for that slot, and both parts are asked for by themselves, each of which
answers for itself. A lost reply may mean that everything was carried out: both parts carry operation ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unstuck.connections import text
from unstuck.protocol import scripts
from unstuck.protocol.leases import Claim, Lease, Terms, claimed

if TYPE_CHECKING:
    from unstuck.protocol.client import Queue

MOST_SLOTS = 25  # of one call, so that a script stays short

Answer = tuple[str, Lease | Claim]
"""How the completion was answered, and what the claim gave."""


@dataclass(frozen=True, slots=True)
class Handed:
    """One attempt to be completed and the claim that goes along. `version` is for optimistic mode."""

    lease: Lease
    version: int | None = None
    op: str | None = None
    claim_op: str = field(default_factory=scripts.operation)


def complete_and_claim(queue: Queue, worker: str, terms: Terms, some: Sequence[Handed]) -> list[Answer | None]:
    """One script for `some` slots of `worker` (at most 25); None where `separately` has to be asked instead.

    When this raises, any part may have been carried out: ask again with the same operation ids.
    """
    args: list[scripts.Argument] = [worker, " ".join(map(str, (queue.limits.result_ttl_ms, *terms.args)))]
    for one in some:
        _, _, op, job, token, _, version = queue.completion(one.lease, one.version, one.op).args
        args += (one.lease.slot, op, job, token, version, one.claim_op)
    answers = scripts.run(queue.client, "complete_and_claim", queue.meta, *args)
    return [
        None if text(answer[0]) == "apart" else (text(answer[0]), claimed(queue, answer[1:], worker, one.lease.slot))
        for one, answer in zip(some, answers, strict=True)
    ]


def separately(queue: Queue, terms: Terms, one: Handed) -> Answer:
    """Both scripts in one pipeline. When only the completion is refused for damage, what was claimed is given back."""
    lease = one.lease
    calls = [
        queue.completion(lease, one.version, one.op),
        queue.claiming(lease.worker, lease.slot, terms, one.claim_op),
    ]
    done, taken = scripts.run_many(queue.client, calls)
    if isinstance(taken, Exception):
        raise taken
    begun = claimed(queue, taken, lease.worker, lease.slot)
    if isinstance(done, Exception):
        if isinstance(begun, Lease):
            queue.release(begun, "unfinished")  # the caller hears of the other part only
        raise done
    return text(done), begun
