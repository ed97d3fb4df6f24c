"""Instructions that the server executes per job (enqueue; complete + claim), counted by valgrind: repeatable to a
percent on the noisiest machine, where microseconds are not. Needs valgrind; kernel time is not in it.

python bench/instructions.py [--jobs 500]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from counting import Counted, callgrind
from stand import Server

from unstuck.connections import Connections
from unstuck.protocol import Claim, Lease, Queue, Terms
from unstuck.protocol.together import Handed, complete_and_claim

WORKER = "bench:1:0123abcd"


def several(queue: Queue, counted: Counted, times: int, slots: int) -> None:
    queue.enqueue_many([{"n": n, "to": "someone@example.org"} for n in range((times + 1) * slots)])
    leases = [held(queue.claim(WORKER, str(slot), Terms())) for slot in range(slots)]
    counted.between()
    for _ in range(times):
        answers = complete_and_claim(queue, WORKER, Terms(), [Handed(lease) for lease in leases])
        leases = [held(answer and answer[1]) for answer in answers]
    print(f"  {slots:2d} slots at once {counted.between() / times / slots / 1000:8.1f} thousand instructions")
    for lease in leases:
        lease.complete()
    counted.between()


def held(taken: Lease | Claim | None) -> Lease:
    assert isinstance(taken, Lease)
    return taken


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=500)
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            Server(wrapper=callgrind(folder), patience=60) as server,
            Connections(server.url, timeout=120) as connections,
        ):
            count(server, Queue(connections.scripting(), "bench"), Counted(server, folder), args)


def count(server: Server, queue: Queue, counted: Counted, args: argparse.Namespace) -> None:
    terms = Terms()
    queue.register(WORKER, control=True)
    queue.enqueue({})
    lease = queue.claim(WORKER, "0", terms)
    for warm in range(2):  # compile scripts, make keys
        queue.enqueue({"n": warm})
        assert isinstance(lease, Lease)
        _, lease = queue.complete_and_claim(lease, terms)
    counted.between()
    for n in range(args.jobs):
        queue.enqueue({"n": n, "to": "someone@example.org"})
    print(f"enqueue            {counted.between() / args.jobs / 1000:8.1f} thousand instructions")
    for _ in range(args.jobs):
        assert isinstance(lease, Lease)
        _, lease = queue.complete_and_claim(lease, terms)
    print(f"complete + claim   {counted.between() / args.jobs / 1000:8.1f} thousand instructions")
    assert isinstance(lease, Lease)
    lease.complete()
    for slots in (2, 4, 10):
        several(queue, counted, args.jobs // slots, slots)
    for _ in range(args.jobs):
        queue.claim(WORKER, "0", terms)
    print(f"empty claim        {counted.between() / args.jobs / 1000:8.1f} thousand instructions")
    for _ in range(args.jobs):
        server.client.ping()
    print(f"(a bare PING)      {counted.between() / args.jobs / 1000:8.1f} thousand instructions")


if __name__ == "__main__":
    main()
