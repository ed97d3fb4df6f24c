"""What a look at our own protocol gives when there is more than one page of it."""

import redis

from support.own_queue import OwnQueue
from unstuck.protocol import keys
from unstuck.queue import Limits
from unstuck.queues.unstuck import UnstuckAdapter


def test_each_candidate_is_seen_once_however_many_pages_and_reasons_there_are(redis_client: redis.Redis) -> None:
    """Those past their deadline come with the first page: they must neither push a silent one out of the next, nor come again."""
    own = OwnQueue(redis_client)
    names = [own.held(f"job-{number}", expected=60.0).id for number in range(9)]
    silent, overdue = names[:7], names[6:8]
    own.client.zadd(keys.active("mail"), {name: 1 + number for number, name in enumerate(silent)})
    own.client.zadd(own.key("deadlines"), {name: 1 + number for number, name in enumerate(overdue)})
    (snapshot,) = UnstuckAdapter(own.client, own.client).look({"mail": Limits(page=2)})
    seen = [lease.job for lease in snapshot.leases]
    assert sorted(seen) == sorted({*silent, *overdue})


def test_one_job_is_counted_as_one(redis_client: redis.Redis) -> None:
    own = OwnQueue(redis_client)
    own.put("first")
    own.client.lpush(own.key("quarantine"), "bodiless")
    (snapshot,) = UnstuckAdapter(own.client, own.client).look({"mail": Limits()})
    assert [found.detail for found in snapshot.side_findings] == [
        "1 id without a usable body is in quarantine",
        "1 job waits and no worker is alive",
    ]


def test_a_body_without_its_state_is_not_said_to_be_missing(redis_client: redis.Redis) -> None:
    own = OwnQueue(redis_client)
    for name, damage in {"stateless": own.client.hdel, "bodiless": lambda key, _: own.client.delete(key)}.items():
        damage(keys.job("mail", own.held(name).id), "state")
        own.client.zadd(keys.active("mail"), {name: 1})
    (snapshot,) = UnstuckAdapter(own.client, own.client).look({"mail": Limits()})
    assert {lease.job: lease.evidence["state"] for lease in snapshot.leases} == {
        "stateless": "no state",
        "bodiless": "no body",
    }
