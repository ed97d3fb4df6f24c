"""Clients of redis-py, built deliberately for each kind of call.

redis-py repeats a command up to ten times by itself when a connection breaks. A reply lost after the command was
carried out would then push a job twice, and a blocked look would hold a sweep for a minute. So every kind of call
says what it can bear:

===============  ==========  =============================================  =========================================
kind             retries     time-out of the socket                         for
===============  ==========  =============================================  =========================================
``reading``      none        ``timeout`` (5 s)                              looks of the agent: a late look is no look
``scripting``    2, bounded  ``timeout``                                    scripts that carry an operation id (S8)
``beating``      none        min(``timeout``, 2 s), one connection          heartbeats; the next beat is the retry
``blocking``     none        wait + 5 s, one connection per caller          BLPOP and other waits
``subscribing``  none        ``timeout``, TCP keepalive and health checks   control channel; loss must be seen
===============  ==========  =============================================  =========================================

All clients speak RESP2 (no push messages between replies, the same on every server) and return **bytes**
(``decode_responses=False``), because foreign queues hold pickles and broken UTF-8: read text with :func:`text`.
Nothing is connected, and redis-py is not imported, before the first client is asked for.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, Self, cast

from unstuck.errors import ConfigurationError
from unstuck.redis_url import RedisUrl

if TYPE_CHECKING:
    from redis import Redis

    from unstuck.config import Settings
    from unstuck.sentinels import Sentinels

BEAT_TIMEOUT_SECONDS: Final = 2.0
CONNECT_TIMEOUT_SECONDS: Final = 3.0
SENTINEL_TIMEOUT_SECONDS: Final = 2.0  # one that is silent holds up the look at the others
BLOCKING_MARGIN_SECONDS: Final = 5.0
HEALTH_CHECK_SECONDS: Final = 15
MAX_CONNECTIONS: Final = 16


def text(value: object) -> str:
    """What Redis returned as a string: bytes as UTF-8 with U+FFFD for what is none, None as the empty string."""
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Connections:
    """The clients of one process for one Redis, made at first use and shared among threads.

    ``role`` becomes the connections' name ``unstuck:<role>`` in CLIENT LIST; ``timeout`` is in seconds. A cluster is
    asked for its slots when its first client is made, so there errors of redis-py may come from these methods; with
    all other forms they come from the first command.
    """

    def __init__(
        self,
        url: RedisUrl | str,
        *,
        role: str = "client",
        timeout: float = 5.0,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.url = RedisUrl.parse(url) if isinstance(url, str) else url
        if not 0 < timeout < 3600:
            raise ConfigurationError(f"redis_timeout: {timeout} s is outside 0 s to 1 h; set it to 5s")
        self.role = role
        self.timeout = timeout
        self.max_connections = max_connections
        self._clients: dict[str, Redis] = {}
        self._unshared: list[Redis] = []
        self._lock = threading.Lock()
        self._sentinels: Sentinels | None = None
        self._sentinels_lock = threading.Lock()

    @classmethod
    def of(cls, settings: Settings, *, role: str) -> Connections:
        """Connections as the settings say: address, credentials and time-out."""
        return cls(settings.address, role=role, timeout=settings.redis_timeout)

    def reading(self) -> Redis:
        """For looks: no retry, every command within ``timeout``."""
        return self._shared("reading", timeout=self.timeout)

    def scripting(self) -> Redis:
        """For scripts that carry an operation id, the only writes that may safely be repeated: two retries."""
        return self._shared("scripting", timeout=self.timeout, retries=2)

    def beating(self) -> Redis:
        """For heartbeats: a connection of its own, short time-out, no retry."""
        return self._shared("beating", timeout=min(self.timeout, BEAT_TIMEOUT_SECONDS), connections=2)

    def blocking(self, wait: float) -> Redis:
        """A new client for one caller that blocks up to ``wait`` seconds in a command; close it or the whole."""
        client = self._build(timeout=wait + BLOCKING_MARGIN_SECONDS, connections=2)
        return self._keep(client)

    def subscribing(self) -> Redis:
        """A new client to call ``pubsub()`` on. A lost connection is an error there, never a silent reconnect."""
        client = self._build(timeout=self.timeout, connections=2, health_check=HEALTH_CHECK_SECONDS)
        return self._keep(client)

    def describe(self) -> str:
        """The address without passwords, for people."""
        return str(self.url)

    def close(self) -> None:
        """Close every client; may be called twice. A later call of a method makes new ones."""
        with self._lock:
            clients = [*self._clients.values(), *self._unshared]
            self._clients.clear()
            self._unshared.clear()
        for client in clients:
            client.close()
        with self._sentinels_lock:
            sentinels, self._sentinels = self._sentinels, None
        if sentinels is not None:
            sentinels.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connections({self.describe()!r}, role={self.role!r})"

    def _shared(self, kind: str, *, timeout: float, retries: int = 0, connections: int | None = None) -> Redis:
        with self._lock:
            if kind not in self._clients:
                self._clients[kind] = self._build(timeout=timeout, retries=retries, connections=connections)
            return self._clients[kind]

    def _keep(self, client: Redis) -> Redis:
        with self._lock:
            self._unshared.append(client)
        return client

    def _build(
        self, *, timeout: float, retries: int = 0, connections: int | None = None, health_check: int = 0
    ) -> Redis:
        options = self._options(timeout, retries, connections or self.max_connections)
        # Only the control channel asks for signs of life: elsewhere a PING before a command would be a command more.
        options["health_check_interval"] = health_check
        match self.url.form:
            case "sentinel":
                return self._sentinel(options)
            case "cluster":
                return self._cluster(options)
            case form:
                return self._single(form, options)

    def _options(self, timeout: float, retries: int, connections: int) -> dict[str, Any]:
        from redis.backoff import EqualJitterBackoff, NoBackoff
        from redis.retry import Retry

        backoff = EqualJitterBackoff(cap=0.5, base=0.05) if retries else NoBackoff()
        return {
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, CONNECT_TIMEOUT_SECONDS),
            "socket_keepalive": True,
            "retry": Retry(backoff, retries),
            "max_connections": connections,
            "redis_connect_func": self._greet,
            "protocol": 2,
            "decode_responses": False,
            "username": self.url.username,
            "password": self.url.password,
            **self._tls(),
        }

    def _greet(self, connection: Any) -> None:
        """Log in, then say our name. A user without the right to CLIENT SETNAME may connect all the same."""
        from redis.exceptions import ResponseError

        if self.url.form != "cluster":  # there redis-py has logged in before it calls this
            # Without a health check: it would connect again where it fails, and so greet again. A Redis that is loading its
            # data then sends it round in circles until the stack is used up.
            connection.on_connect_check_health(check_health=False)
        connection.send_command("CLIENT", "SETNAME", f"unstuck:{self.role}", check_health=False)
        with contextlib.suppress(ResponseError):
            connection.read_response()

    def _tls(self) -> dict[str, Any]:
        """redis-py's TLS options, empty for a plain connection."""
        if not self.url.tls:
            return {}
        given = {name: value for name, value in self.url.options if name.startswith("ssl_")}
        check = given.pop("ssl_check_hostname", "true").lower() in ("true", "1", "yes")
        strict = given.get("ssl_cert_reqs", "required") != "none"
        return {**given, "ssl_check_hostname": check and strict}

    def _single(self, form: str, options: dict[str, Any]) -> Redis:
        from redis import Redis
        from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection

        if form == "unix":
            options.pop("socket_keepalive")
            place: dict[str, Any] = {"connection_class": UnixDomainSocketConnection, "path": self.url.path}
        else:
            host, port = self.url.hosts[0]
            place = {"connection_class": SSLConnection if self.url.tls else Connection, "host": host, "port": port}
        return Redis.from_pool(ConnectionPool(**place, db=self.url.db, **options))

    def _sentinel(self, options: dict[str, Any]) -> Redis:
        if self.url.tls:
            options["ssl"] = True
        with self._sentinels_lock:
            if self._sentinels is None:
                self._sentinels = self._ask_sentinels(options)
            return self._sentinels.primary(db=self.url.db, **options)

    def _ask_sentinels(self, options: dict[str, Any]) -> Sentinels:
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from unstuck.sentinels import Sentinels

        # The sentinels have an account of their own, or none: ours is for the primary only.
        asking = {k: v for k, v in options.items() if k not in ("username", "password", "max_connections")}
        brief = min(self.timeout, SENTINEL_TIMEOUT_SECONDS)
        asking |= {
            "socket_timeout": brief,
            "socket_connect_timeout": brief,
            "retry": Retry(NoBackoff(), 0),  # there are others
            "username": self.url.option("sentinel_username"),
            "password": self.url.option("sentinel_password"),
        }
        sentinels = Sentinels(self.url.hosts, self.url.service, asking)
        sentinels.follow()
        return sentinels

    def _cluster(self, options: dict[str, Any]) -> Redis:
        from redis.cluster import ClusterNode, RedisCluster

        if self.url.tls:
            options["ssl"] = True
        nodes = [cast("Any", ClusterNode)(host, port) for host, port in self.url.hosts]
        # RedisCluster offers the commands of Redis; it routes each by the hash tag of its keys.
        return cast("Redis", RedisCluster(startup_nodes=nodes, **options))
