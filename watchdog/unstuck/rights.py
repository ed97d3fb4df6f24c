"""What unstuck asks of Redis, command by command, for each thing that it does.

The server itself is asked whether the user may: ``redis.acl_check_cmd`` inside a read-only script answers for every
command and key without carrying anything out. Only EVAL has to be allowed for that.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from redis import Redis

_Q: Final = "unstuck:{unstuck-check}:"
_SCRIPT: Final = """#!lua flags=no-writes
local missing = {}
for _, command in ipairs(cjson.decode(ARGV[1])) do
  local asked, allowed = pcall(redis.acl_check_cmd, unpack(command))
  if not asked or not allowed then
    missing[#missing + 1] = table.concat(command, ' ')
  end
end
return missing
"""

Commands = tuple[tuple[str, ...], ...]
READING: Final[Commands] = (
    ("PING",),
    ("TIME",),
    ("INFO",),
    ("EVALSHA", "0" * 40, "1", _Q + "meta"),
    ("TYPE", _Q + "meta"),
    ("EXISTS", _Q + "meta"),
    ("GET", _Q + "fence"),
    ("PTTL", _Q + "lock:x"),
    ("SMEMBERS", "unstuck:queues"),
    ("HGETALL", "unstuck:leader"),
    ("HGET", _Q + "job:x", "state"),
    ("HMGET", _Q + "job:x", "state"),
    ("HLEN", _Q + "ops"),
    ("LLEN", _Q + "pending"),
    ("LRANGE", _Q + "pending", "0", "0"),
    ("LINDEX", _Q + "pending", "0"),
    ("SCARD", _Q + "held:x"),
    ("ZCARD", _Q + "active"),
    ("ZCOUNT", _Q + "active", "0", "0"),
    ("ZSCORE", _Q + "active", "x"),
    ("ZRANGE", _Q + "active", "0", "0"),
    ("ZRANGEBYSCORE", _Q + "active", "0", "0"),
    ("XLEN", _Q + "events"),
    ("PUBSUB", "SHARDNUMSUB", _Q + "control:x"),
)
"""For looking at queues of the own protocol."""

LEADING: Final[Commands] = (
    ("SET", _Q + "fence", "0"),
    ("HSET", "unstuck:leader", "owner", "x"),
    ("DEL", "unstuck:leader"),
    ("HSET", _Q + "pacing", "seq", "0"),
    ("PEXPIRE", _Q + "pacing", "1"),
    ("XADD", _Q + "events", "*", "event", "x"),
    ("LPUSH", _Q + "pending", "x"),
    ("LTRIM", _Q + "wake", "0", "999"),
    ("ZREM", _Q + "scheduled", "x"),
)
"""For leading: election, published intervals, promotion of due jobs, events."""

RECLAIMING: Final[Commands] = (
    ("RPUSH", _Q + "pending", "x"),
    ("ZADD", _Q + "dead", "0", "x"),
    ("SREM", _Q + "held:x", "x"),
    ("HDEL", _Q + "job:x", "token"),
    ("HINCRBY", _Q + "stats", "rescued", "1"),
    ("UNLINK", _Q + "lock:x"),
    ("LREM", _Q + "pending", "1", "x"),
    ("SPUBLISH", _Q + "control:x", "x"),
    ("PUBLISH", _Q + "invalidate", "x"),
)
"""For moving stuck jobs of the own protocol (beside what leading needs)."""

WORKING: Final[Commands] = (
    ("SADD", "unstuck:queues", "x"),
    ("RPOP", _Q + "pending"),
    ("SADD", _Q + "held:x", "x"),
    ("BLPOP", _Q + "wake", "1"),
    ("SSUBSCRIBE", _Q + "control:x"),
)
"""For the reference worker and for enqueueing (beside the above)."""

BY_SCRIPTS: Final[Commands] = (
    ("HEXISTS", _Q + "job:x", "state"),
    ("HSET", _Q + "job:x", "state", "x"),
    ("HDEL", _Q + "job:x", "payload"),
    ("PEXPIRE", _Q + "job:x", "1"),
    ("HINCRBY", _Q + "stats", "completed", "1"),
    ("SET", _Q + "lock:x", "x"),
    ("UNLINK", _Q + "lock:x"),
    ("SETRANGE", _Q + "stamp", "0", "x"),
    ("ZADD", _Q + "active", "0", "x"),
    ("ZREM", _Q + "active", "x"),
    ("SADD", _Q + "held:x", "x"),
    ("SREM", _Q + "held:x", "x"),
    ("LPUSH", _Q + "pending", "x"),
    ("RPUSH", _Q + "pending", "x"),
    ("RPOP", _Q + "pending"),
    ("LTRIM", _Q + "wake", "0", "999"),
    ("DEL", _Q + "wake"),
    ("XADD", _Q + "events", "*", "event", "x"),
    ("PUBLISH", _Q + "invalidate", "x"),
)
"""What the scripts call for a worker. Redis checks each command as it comes, and a script that is stopped half way stays so."""


def of_queue(commands: Commands, stem: str) -> Commands:
    """The same commands on the keys of one queue, of which `stem` is the beginning."""
    return tuple(tuple(word.replace(_Q, stem) for word in command) for command in commands)


def missing_rights(client: Redis, commands: Commands) -> list[str]:
    """Those of the commands that the user of this connection may not call, each with the key it was asked for.

    Raises what redis-py raises if EVAL itself is not allowed or not known.
    """
    found: Any = client.eval(_SCRIPT, 1, _Q + "meta", json.dumps(commands))
    return [one.decode() if isinstance(one, bytes) else str(one) for one in found]
