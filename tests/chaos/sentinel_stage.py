"""The stage of the runs with promotions: a primary, a replica and three sentinels, which take a second of silence for a death."""

import functools
from collections.abc import Callable
from typing import Any

import redis

from chaos.stage import Stage
from support.redis_server import RedisServer
from support.sentinels import Sentinels
from unstuck.connections import Connections


class SentinelStage(Stage):
    """The stage with two servers and three sentinels; `connect` goes to the primary that the sentinels name."""

    _producers: Connections | None = None

    def start_servers(self) -> None:
        self.sentinels = Sentinels(
            self.folder, self.start, down_after_ms=1_000, appendonly=True, min_replicas_max_lag=2
        )
        self.address = self.sentinels.address
        self._producers = Connections(self.address, role="producer", timeout=2.0)

    @property
    def servers(self) -> dict[int, RedisServer]:
        return self.sentinels.servers

    def primary(self) -> RedisServer | None:
        return self.sentinels.primary()

    def connect(self, **options: Any) -> Any:
        server = self.primary()
        if server is None:
            raise redis.ConnectionError("no primary now")
        (number,) = [number for number, one in self.servers.items() if one is server]
        return self._connect_to(number, **options)

    def producer(self) -> Any:
        """One that follows the sentinels, as every client of ours does."""
        assert self._producers is not None, "the servers are not started"
        return self._producers.scripting()

    def feeds(self) -> list[Callable[..., Any]]:
        """Both servers: what a deposed primary tells for seconds more, nobody tells later."""
        return [functools.partial(self._connect_to, number) for number in self.servers]

    def _connect_to(self, number: int, **options: Any) -> Any:
        given = {"socket_timeout": 3.0, "decode_responses": True, **options}
        return redis.Redis.from_url(self.servers[number].url, retry=None, **given)

    def close(self) -> None:
        super().close()
        if self._producers is not None:
            self._producers.close()
            self.sentinels.close()
