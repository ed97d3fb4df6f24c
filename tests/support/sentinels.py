"""A primary, its replica and three sentinels, all real and on the loopback."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from support.ports import free_port
from support.programs import redis_server_program
from support.redis_server import RedisServer
from support.waiting import wait_until

SERVICE = "jobs"
PATIENCE_SECONDS = 90.0  # sentinels look at their servers every ten seconds, and say what they saw


def start_sentinel(
    folder: Path, start: Callable[..., Any], server: RedisServer, *lines: str, down_after_ms: int = 60_000
) -> int:
    """Start a sentinel for this server, with more lines of configuration; its port. Two of its kind must agree.

    A primary that is silent for `down_after_ms` is down; a busy machine lets one be silent for seconds.
    """
    port = free_port()
    folder = folder / f"sentinel-{port}"
    folder.mkdir(parents=True)
    given = [
        f"port {port}",
        "bind 127.0.0.1",
        f"dir {folder}",
        f"sentinel monitor {SERVICE} 127.0.0.1 {server.port} 2",
        f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
        f"sentinel failover-timeout {SERVICE} 5000",
        *lines,
    ]
    (folder / "sentinel.conf").write_text("\n".join(given) + "\n")
    start(redis_server_program(), folder / "sentinel.conf", "--sentinel")
    return port


def client_of(port: int) -> Any:
    """A client of one sentinel."""
    return redis.Redis.from_url(f"redis://127.0.0.1:{port}", decode_responses=True, socket_timeout=2, retry=None)


class Sentinels:
    """`start` starts a program (a sentinel) with its arguments; whoever gave it ends it. `settings` are the servers'.

    `bystander`: a second replica (2), which never becomes the primary.
    """

    def __init__(
        self,
        folder: Path,
        start: Callable[..., Any],
        *,
        down_after_ms: int = 60_000,
        bystander: bool = False,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.down_after_ms = down_after_ms
        self.settings = settings
        self._start = start
        self.servers = {0: RedisServer(**self.settings).start()}
        self.servers[1] = self.replica_of(self.servers[0])
        if bystander:
            self.servers[2] = self.replica_of(self.servers[0], replica_priority=0)
        self.servers[0].wait_for_replicas(len(self.servers) - 1)
        self.ports = [self.watch(self.servers[0]) for _ in range(3)]
        self.clients = [client_of(port) for port in self.ports]
        self.address = f"sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{SERVICE}"
        wait_until(self.agree, PATIENCE_SECONDS, "three sentinels know the replica and each other")

    def replica_of(self, primary: RedisServer, port: int | None = None, **settings: Any) -> RedisServer:
        """Start a server that follows."""
        return RedisServer(port=port, replicaof=("127.0.0.1", primary.port), **self.settings, **settings).start()

    def watch(self, server: RedisServer, *lines: str) -> int:
        """Start one more sentinel; its port."""
        return start_sentinel(self.folder, self._start, server, *lines, down_after_ms=self.down_after_ms)

    def agree(self) -> bool:
        """Whether every sentinel sees the replica in order, and both others."""
        for sentinel in self.clients:
            try:
                (told,) = sentinel.sentinel_masters().values()
                replicas = sentinel.sentinel_slaves(SERVICE)
            except (redis.RedisError, OSError, ValueError):
                return False
            well = [one for one in replicas if one["flags"] == "slave" and one["master-link-status"] == "ok"]
            if told["num-other-sentinels"] < 2 or told["flags"] != "master" or not well:
                return False
        return True

    def primary(self) -> RedisServer | None:
        """The server that the sentinels name, if it says so itself."""
        for sentinel in self.clients:
            with contextlib.suppress(redis.RedisError, OSError):
                _, port = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                for server in self.servers.values():
                    if server.port == int(port) and server.running:
                        with contextlib.closing(redis.Redis(port=server.port, socket_timeout=2)) as client:
                            return server if client.info("replication")["role"] == "master" else None
        return None

    def failover(self) -> RedisServer:
        """By command, while the primary lives: the server that is to be the next one.

        Asked again where a sentinel has just not heard from the replica, or where another failover is under way.
        """

        def asked() -> RedisServer:
            old = self.primary()
            assert old, "there is no primary now"
            try:
                self.clients[0].execute_command("SENTINEL", "FAILOVER", SERVICE)
            except redis.ResponseError as refused:
                raise AssertionError(str(refused)) from refused
            return next(server for server in self.servers.values() if server is not old)

        return wait_until(asked, PATIENCE_SECONDS, "a sentinel takes the command to fail over")

    def close(self) -> None:
        """End the servers, and the clients of the sentinels."""
        for client in self.clients:
            client.close()
        for server in self.servers.values():
            server.close()
