"""What ``unstuck check`` asks a Redis: version, role, rights, eviction, persistence, replicas, memory, clock, key types.

Nothing is written. Features are tried, never concluded from a version number: Valkey calls itself Redis 7.2.4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from redis.exceptions import RedisClusterException, RedisError

from unstuck.connections import text
from unstuck.errors import classify, explain
from unstuck.grants import asked_by
from unstuck.model import Mode
from unstuck.rights import BY_SCRIPTS, LEADING, READING, RECLAIMING, WORKING, missing_rights

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.config import Settings

FAILURES: Final = (RedisError, RedisClusterException, OSError)
"""What an exchange with Redis may raise."""

Status = Literal["ok", "warning", "error"]
MAX_CLOCK_OFFSET_SECONDS: Final = 1.0
_OWN_TYPES: Final = {"unstuck:queues": "set", "unstuck:leader": "hash"}


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one check; ``mend`` is empty where there is nothing to do."""

    check: str
    status: Status
    detail: str
    mend: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain values, for JSON."""
        return asdict(self)


def examine(client: Redis, settings: Settings) -> Iterator[Result]:
    """Every check on a Redis, the connection first. Ends after an error without which the rest means nothing."""
    where = str(settings.address)
    try:
        started = time.monotonic()
        client.ping()
        took = time.monotonic() - started
        info: dict[str, Any] = client.info("all")
    except FAILURES as error:
        yield _failure("connection", error, where)
        return
    yield Result("connection", "ok", f"{where} answers in {took * 1000:.1f} ms")
    checks: tuple[Callable[[], Iterator[Result]], ...] = (
        lambda: _server(client, info),
        lambda: _rights(client, settings),
        lambda: _keys(client),
        lambda: _eviction(info),
        lambda: _memory(info, settings),
        lambda: _persistence(client, info),
        lambda: _replicas(client, info),
        lambda: _clock(client),
    )
    for check in checks:
        try:
            yield from check()
        except FAILURES as error:
            if classify(error) == "noperm":
                continue  # the check of the rights has said so
            yield _failure("connection", error, where)
            return


def _failure(check: str, error: Exception, where: str) -> Result:
    sentence, _, mend = str(explain(error, where)).partition("; ")
    return Result(check, "error", sentence, mend)


def _server(client: Redis, info: dict[str, Any]) -> Iterator[Result]:
    valkey = info.get("valkey_version")
    name = f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'of unknown version')}"
    role = "primary" if info.get("role") == "master" else "replica"
    least = "Redis 7.0 or Valkey 7.2 is the least version: upgrade the server"
    try:
        client.eval("#!lua flags=no-writes\nreturn 1", 1, "unstuck:{unstuck-check}:meta")
    except FAILURES as error:
        if classify(error) == "noperm":
            yield Result("server", "ok", f"{name}, {role}")
            return
        if classify(error) != "other":
            raise
        yield Result("server", "error", f"{name} does not take scripts with flags (#!lua)", least)
        return
    if role == "replica":
        mend = "give the address of the primary, or use sentinel://HOST:26379/SERVICE"
        yield Result("server", "error", f"{name} is a replica and takes no writes", mend)
    elif info.get("loading"):
        yield Result("server", "error", f"{name} is still loading its data", "wait until it has loaded")
    else:
        yield Result("server", "ok", f"{name}, {role}, up {_span(int(info.get('uptime_in_seconds', 0)))}")


def _span(seconds: int) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _rights(client: Redis, settings: Settings) -> Iterator[Result]:
    mend = "add them to the user: `unstuck acl` prints the line"
    try:
        reading = missing_rights(client, READING)
        leading = missing_rights(client, LEADING)
        reclaiming = missing_rights(client, RECLAIMING)
        working = missing_rights(client, (*WORKING, *BY_SCRIPTS))
        works = bool(reading) and not missing_rights(client, asked_by("worker"))
    except FAILURES as error:
        if classify(error) != "noperm":
            raise
        yield Result("rights", "error", "the user may not call EVAL, which everything needs", mend)
        return
    reclaims = settings.mode is Mode.RECLAIM or any(rule.settings.mode is Mode.RECLAIM for rule in settings.queues)
    if works and not reclaims:
        yield Result("rights", "ok", f"enough to work and to enqueue; missing to observe: {_listed(reading)}")
    elif reading:
        yield Result("rights", "error", f"missing to observe: {_listed(reading)}", mend)
    elif reclaims and (leading or reclaiming):
        yield Result("rights", "error", f"missing to reclaim: {_listed([*leading, *reclaiming])}", mend)
    elif leading:
        detail = f"enough to observe alone; missing to lead: {_listed(leading)}"
        yield Result("rights", "warning", detail, mend)
    elif reclaiming:
        yield Result("rights", "ok", "enough to observe and to lead")
    else:
        also = ", reclaim and work" if not working else " and reclaim"
        yield Result("rights", "ok", f"enough to observe, lead{also}")


def _listed(commands: list[str]) -> str:
    words = [" ".join(command.split()[:2]) for command in commands]
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")


def _keys(client: Redis) -> Iterator[Result]:
    for name, wanted in _OWN_TYPES.items():
        try:
            found = text(client.type(name))
        except FAILURES as error:
            if classify(error) != "noperm":
                raise
            return
        if found not in (wanted, "none"):
            detail = f"{name} is a {found}, not a {wanted}: another program writes under our name"
            yield Result("keys", "error", detail, f"rename it (RENAME {name} …) or remove it")


def _eviction(info: dict[str, Any]) -> Iterator[Result]:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        yield Result("eviction", "ok", "noeviction")
        return
    what = "locks and heartbeats" if policy.startswith("volatile") else "jobs and locks"
    detail = f"{policy}: Redis may throw away {what} when its memory is full"
    yield Result("eviction", "warning", detail, "CONFIG SET maxmemory-policy noeviction")


def _memory(info: dict[str, Any], settings: Settings) -> Iterator[Result]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    limit = settings.pacing.cache_limit
    if most == 0:
        idle = f"; pacing.cache_limit {limit} has no effect" if limit.share is not None else ""
        mend = "CONFIG SET maxmemory to what the machine can give" + (", or cache_limit to a size" if idle else "")
        yield Result("memory", "warning", f"{_size(used)} used, no maxmemory{idle}", mend)
    elif used > most * 0.9:
        detail = f"{_size(used)} of {_size(most)} used: writes will soon be refused"
        yield Result("memory", "warning", detail, "raise maxmemory or drain the queues")
    else:
        yield Result("memory", "ok", f"{_size(used)} of {_size(most)} used")


def _size(amount: int) -> str:
    for unit, length in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if amount >= length:
            return f"{amount / length:.1f} {unit}"
    return f"{amount} B"


def _setting(client: Redis, name: str) -> str | None:
    """A setting of the server, None where CONFIG GET is not allowed."""
    try:
        found: Any = client.config_get(name)
    except FAILURES as error:
        if classify(error) in ("noperm", "other"):
            return None
        raise
    return next((text(value) for value in found.values()), None)


def _persistence(client: Redis, info: dict[str, Any]) -> Iterator[Result]:
    if info.get("aof_enabled"):
        if info.get("aof_last_write_status", "ok") != "ok":
            yield Result("persistence", "warning", "the append-only file cannot be written", "mend its disk")
        else:
            yield Result("persistence", "ok", "append-only file")
        return
    snapshots = _setting(client, "save")
    mend = "CONFIG SET appendonly yes"
    if snapshots == "":
        yield Result("persistence", "warning", "off: a restart of Redis loses every job", mend)
    else:
        detail = "snapshots only: a crash of Redis loses the jobs since the last one"
        yield Result("persistence", "warning", detail, mend)


def _replicas(client: Redis, info: dict[str, Any]) -> Iterator[Result]:
    count = int(info.get("connected_slaves", 0))
    if count == 0:
        yield Result("replicas", "ok", "none")
        return
    wanted = _setting(client, "min-replicas-to-write")
    if wanted == "0":
        detail = f"{count}, but writes do not wait for any: a failover may lose what was acknowledged"
        yield Result("replicas", "warning", detail, "CONFIG SET min-replicas-to-write 1")
    else:
        yield Result("replicas", "ok", f"{count}, min-replicas-to-write {wanted or 'unknown'}")


def _clock(client: Redis) -> Iterator[Result]:
    before = time.time()
    seconds, micros = client.time()
    after = time.time()
    offset = (before + after) / 2 - (int(seconds) + int(micros) / 1e6)
    detail = f"ours is {abs(offset):.3f} s {'ahead of' if offset >= 0 else 'behind'} the server's"
    if abs(offset) > MAX_CLOCK_OFFSET_SECONDS + (after - before):
        yield Result("clock", "warning", detail, "let NTP keep both; judging uses the server's clock only")
    else:
        yield Result("clock", "ok", detail)
