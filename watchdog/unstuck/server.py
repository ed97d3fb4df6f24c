"""One look at Redis itself: INFO and TIME in one round trip, as the gate and the memory duty need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unstuck.connections import text
from unstuck.model import ServerSnapshot

if TYPE_CHECKING:
    from redis import Redis


def read_server(client: Redis) -> ServerSnapshot:
    """Look at Redis itself. Raises redis-py's exceptions (a loading Redis raises BusyLoadingError)."""
    pipe = client.pipeline(transaction=False)
    pipe.execute_command("INFO", "everything")
    pipe.execute_command("TIME")
    told, at = pipe.execute()
    info = told if isinstance(told, dict) else parse_info(text(told))
    seconds, micros = (int(part) for part in at)
    return snapshot_of(info, seconds * 1000 + micros // 1000)


def parse_info(told: str) -> dict[str, str]:
    """INFO's lines as a flat table."""
    lines = (line.partition(":") for line in told.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in lines}


def snapshot_of(info: dict[str, Any], server_ms: int) -> ServerSnapshot:
    """A ServerSnapshot from INFO's fields, parsed by redis-py or plain."""

    def number(name: str) -> int:
        try:
            return int(float(str(info.get(name, 0)).rstrip("%")))
        except ValueError:
            return 0

    errors = {}
    for name, value in info.items():
        if str(name).startswith("errorstat_"):
            count = value.get("count") if isinstance(value, dict) else str(value).rpartition("=")[2]
            errors[str(name).removeprefix("errorstat_")] = int(count or 0)
    good = info.get("min_slaves_good_slaves")
    return ServerSnapshot(
        run_id=str(info.get("run_id", "")),
        replication_id=str(info.get("master_replid", "")),
        role=str(info.get("role", "master")),
        version=str(info.get("valkey_version") or info.get("redis_version", "")),
        server_ms=server_ms,
        uptime=float(number("uptime_in_seconds")),
        loading=number("loading") == 1 or number("async_loading") == 1,
        used_memory=number("used_memory"),
        maxmemory=number("maxmemory"),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        evicted_keys=number("evicted_keys"),
        write_errors=errors,
        connected_replicas=number("connected_slaves"),
        # Redis tells min_slaves_good_slaves only where min-replicas-to-write is set, and refuses writes at 0 of them.
        min_replicas=1 if good is not None else 0,
        good_replicas=None if good is None else int(good),
        keyspace_hits=number("keyspace_hits"),
        keyspace_misses=number("keyspace_misses"),
        server_name=str(info.get("server_name", "redis")),
    )
