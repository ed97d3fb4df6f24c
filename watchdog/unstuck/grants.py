"""The least rights that each way of using unstuck needs, as rules of Redis' ACL.

Built on :mod:`unstuck.rights`, which says what is asked of Redis, so that a user made by ``unstuck acl`` passes
``unstuck check`` (that of a worker unless the settings ask for mode reclaim). What may go wrong: a command that a script
calls is checked against the caller's rights at that moment, in the middle of the script. So every line is tested on a real
server by the user really doing the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from unstuck.rights import BY_SCRIPTS, LEADING, READING, RECLAIMING, WORKING, Commands

Way = Literal["inspect", "observe", "reclaim", "worker"]
WAYS: Final[tuple[Way, ...]] = ("inspect", "observe", "reclaim", "worker")
MEANINGS: Final[dict[Way, str]] = {
    "inspect": "look: unstuck inspect, sweep, check, top, events, dead list and show",
    "observe": "the agent in mode observe: it leads and publishes, and writes only keys of its own prefix",
    "reclaim": "the agent in mode reclaim",
    "worker": "the reference worker, and enqueueing",
}

_OWN: Final = "unstuck:*"
FOREIGN_KEYS: Final[dict[str, tuple[str, ...]]] = {"rq": ("rq:*",)}
"""Key patterns of each foreign queue system that has an adapter."""

# What redis-py and our scripts ask beside the commands that `unstuck.rights` tries, by what they are asked for.
_CONNECTING: Final = "eval client|setname select"
_LOOKING: Final = "dbsize lpos pubsub|numsub client|list xread xrevrange zrevrange"
_LEADING: Final = "hdel rpush sadd scan scard hscan unlink zadd"
_FOREIGN_RECLAIMING: Final[dict[str, str]] = {"rq": "expire persist watch unwatch multi exec script|load"}
_WORKING: Final = """
    del get hdel hexists hget hgetall hincrby hlen hmget hset info lindex llen lpush lrange ltrim pexpire ping publish rpush scard
    set setrange srem sunsubscribe time type unlink xadd xlen zadd zcard zrange zrangebyscore zrem zscore evalsha exists
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of one user: commands as the ACL names them, key patterns with their access, channel patterns."""

    commands: tuple[str, ...]
    keys: tuple[str, ...]
    channels: tuple[str, ...] = ()

    def rules(self) -> list[str]:
        """The words behind the user's name; a password that the user has stays as it is."""
        return [
            *("on", "resetkeys", "resetchannels", "-@all"),
            *self.keys,
            *(f"&{channel}" for channel in self.channels),
            *(f"+{command}" for command in self.commands),
        ]


def grant(way: Way, backends: Sequence[str] = (), patterns: Sequence[str] = ()) -> Grant:
    """The least rights for one way. With `reclaim`, `backends` are the foreign systems whose jobs shall be moved;
    all others are only read. `patterns` are further keys, such as those of an entry with `backend: custom`.
    """
    moving = way == "reclaim"
    commands = _words(READING) | {*_CONNECTING.split(), *_LOOKING.split()}
    # Also for inspect: EVALSHA asks for full access to the key that a script declares. It has no command that writes.
    own = f"~{_OWN}"
    foreign = [
        f"{'' if moving and name in backends else '%R'}~{pattern}"
        for name, patterns_ in FOREIGN_KEYS.items()
        for pattern in patterns_
    ]
    extra = [f"{'' if moving else '%R'}~{pattern}" for pattern in patterns]
    if way == "inspect":
        return Grant(_sorted(commands), (own, *foreign, *extra))
    if way == "worker":
        commands = _words(WORKING) | {*_CONNECTING.split(), *_WORKING.split()}
        return Grant(_sorted(commands), (own,), (_OWN,))
    commands |= _words(LEADING) | set(_LEADING.split())
    if moving:
        commands |= _words(RECLAIMING)
        for name in backends:
            commands |= set(_FOREIGN_RECLAIMING[name].split())
    return Grant(_sorted(commands), (own, *foreign, *extra), (_OWN,))


def asked_by(way: Way) -> Commands:
    """Of all that :mod:`unstuck.rights` can try, what the user of this way has."""
    granted = set(grant(way).commands)
    return tuple(one for one in (*READING, *LEADING, *RECLAIMING, *WORKING, *BY_SCRIPTS) if _words((one,)) <= granted)


def _sorted(commands: set[str]) -> tuple[str, ...]:
    return tuple(sorted(commands))


def _words(commands: Commands) -> set[str]:
    """The commands as an ACL names them: `PUBSUB SHARDNUMSUB` is `pubsub|shardnumsub`."""
    return {
        "|".join(command[:2]).lower() if command[0] in ("PUBSUB", "CLIENT") else command[0].lower()
        for command in commands
    }
