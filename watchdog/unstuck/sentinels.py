"""Clients of the primary that the sentinels name, moved when they name another.

redis-py asks the sentinels when it connects, and no more while the connection lives. After a failover that the old primary
survives (by command, a partition, a pause that was a second too long) it takes writes until the sentinels have turned it into a
replica, ten seconds later or more: beats, completions and new jobs that the new primary never gets, from workers that it then
takes for dead, under an agent that leads where nothing is left to watch. So a thread asks all sentinels once a second. Those with the
newest configuration (`config-epoch`) are believed; every connection to another server than they name is shut down, whatever
waits in it, and whoever uses it connects again.

Only sentinels that do not take the primary for down are heard, and none that lags behind another. A look at which fewer than half
of them answered moves nobody back to an older configuration.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import (
    MasterNotFoundError,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from unstuck import logs
from unstuck.connections import text

Address = tuple[str, int]

LOOK_EVERY_SECONDS: Final = 1.0
LONGEST_FAREWELL_SECONDS: Final = 1.0
SILENT_LOOKS: Final = 5

log = logging.getLogger("unstuck.sentinels")


@dataclass(frozen=True)
class _Told:
    """What one sentinel says of the primary."""

    epoch: int
    primary: Address
    down: bool


class Sentinels:
    """The sentinels of one service. `asking` are redis-py's options for connections to the sentinels themselves.

    Every client of :meth:`primary` is followed from :meth:`follow` until :meth:`close`, by a thread of its own, which ends too when
    the last client is gone, and which a forked child starts anew when it connects.
    """

    def __init__(self, hosts: Iterable[Address], service: str, asking: dict[str, Any]) -> None:
        self.service = service
        self._order = tuple(
            Redis(host, port, **asking) for host, port in hosts
        )  # those that answered last time come first
        self._newest = 0  # configuration of those that are heard now
        self._confirmed = 0  # the newest by which connections were judged
        self._silent_looks = 0
        self._following = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sockets: weakref.WeakKeyDictionary[socket.socket, Address] = weakref.WeakKeyDictionary()
        self._stopping = threading.Event()
        weakref.finalize(self, _end, self._stopping, self._order)
        this = weakref.ref(self)
        self._thread = threading.Thread(target=_follow, args=(this, self._stopping), name="sentinels", daemon=True)
        if self._following:
            self._thread.start()

    def primary(self, **options: Any) -> Redis:
        """A client of the primary with redis-py's `options`; `ssl=True` for TLS."""
        kind = _TlsConnection if options.pop("ssl", False) else _Connection
        pool: Any = _Pool
        return Redis.from_pool(pool(self.service, self, is_master=True, connection_class=kind, **options))

    def follow(self) -> None:
        """Start to look once a second."""
        self._following = True
        self._thread.start()

    def close(self) -> None:
        """End the thread and the connections to the sentinels; those to the primary are their clients'."""
        self._following = False
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(LONGEST_FAREWELL_SECONDS)
        _end(self._stopping, self._order)

    def look(self) -> Address | None:
        """Ask every sentinel once, and move whoever is elsewhere; the primary, or None if that is not known for certain."""
        told: list[_Told] = []
        answered, silent, trouble = [], [], ""
        for sentinel in self._order:
            if self._stopping.is_set():
                return None
            try:
                heard = self._ask(sentinel)
            except Exception as error:  # noqa: BLE001  whatever one of them answers, the others are asked
                silent.append(sentinel)
                trouble = trouble or f"{type(error).__name__}: {error}"
                continue
            answered.append(sentinel)
            told += [heard] if heard is not None and not heard.down else []
        self._order = (*answered, *silent)
        self._say_if_silent(bool(answered), trouble)
        self._newest = max((one.epoch for one in told), default=0)
        named = {one.primary for one in told if one.epoch == self._newest}
        if len(named) != 1 or (self._newest < self._confirmed and 2 * len(answered) <= len(self._order)):
            return None
        self._confirmed = self._newest
        (primary,) = named
        self._move(primary)
        return primary

    def connected(self, sock: socket.socket, address: Address) -> None:
        """A connection says that it stands, and to which address it was sent."""
        if self._pid != os.getpid():  # a forked child has neither the thread nor, maybe, a lock that is free
            self._begin()
        with self._lock:
            self._sockets[sock] = address

    def discover_master(self, service_name: str) -> Address:
        """Where to connect, for redis-py: the primary by the first sentinel that is to be heard."""
        errors: list[Exception] = []
        for sentinel in self._order:
            try:
                told = self._ask(sentinel)
            except (RedisError, OSError) as error:
                errors.append(error)
                continue
            if told is not None and not told.down and told.epoch >= self._newest:
                return told.primary
        for refusal in errors:
            if not isinstance(refusal, (RedisConnectionError, RedisTimeoutError, OSError)):
                raise refusal  # it answers, and will not say: that is the trouble to tell of
        because = f" : {', '.join(repr(error) for error in errors)}" if errors else ""
        raise MasterNotFoundError(f"No master found for {service_name!r}{because}")

    # -- following

    def _ask(self, sentinel: Any) -> _Told | None:
        state = sentinel.sentinel_masters().get(self.service)
        if state is None:
            return None
        # Whoever leads a failover has the new configuration before the new address; this command gives the new one at once.
        named = sentinel.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self.service)
        if named is None:
            return None
        down = not state["is_master"] or bool(state["is_sdown"] or state["is_odown"])
        return _Told(int(state.get("config-epoch", 0)), (text(named[0]), int(named[1])), down)

    def _say_if_silent(self, answered: bool, trouble: str) -> None:
        if answered:
            self._silent_looks = 0
            return
        self._silent_looks += 1
        if self._silent_looks == SILENT_LOOKS:
            logs.say(log, logging.INFO, "sentinels_silent", service=self.service, detail=trouble)

    def _move(self, primary: Address) -> None:
        with self._lock:
            elsewhere = {sock: at for sock, at in self._sockets.items() if at != primary}
        if not elsewhere:
            return
        try:
            places = {place[4][0] for place in socket.getaddrinfo(*primary, type=socket.SOCK_STREAM)}
        except OSError:  # a name that cannot be resolved is no place to go to
            return
        left = []
        for sock, at in elsewhere.items():
            try:
                same = at[1] == primary[1] and sock.getpeername()[0] in places  # the same server by another name
                if not same:
                    # Not SSLSocket's own: that would drop the decryption while another thread reads.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
                    left.append(at)
            except OSError:  # closed already
                same = False
            with self._lock:
                if same:
                    self._sockets[sock] = primary
                else:
                    self._sockets.pop(sock, None)
        if left:
            before = ", ".join(sorted({f"{host}:{port}" for host, port in left}))
            now = f"{primary[0]}:{primary[1]}"
            told = {"service": self.service, "before": before, "now": now, "connections": len(left)}
            logs.say(log, logging.INFO, "primary_moved", **told)


def _follow(sentinels: weakref.ref[Sentinels], stopping: threading.Event) -> None:
    while not stopping.wait(LOOK_EVERY_SECONDS):
        one = sentinels()
        if one is None:
            return
        one.look()
        del one  # or the wait would keep it alive


def _end(stopping: threading.Event, sentinels: Iterable[Redis]) -> None:
    stopping.set()
    for sentinel in sentinels:
        sentinel.close()


class _Followed:
    """Tells the follower of each socket that it opens, and asks the sentinels for each."""

    def _connect(self) -> Any:
        this: Any = self
        above: Any = super()
        sock = above._connect()
        this.connection_pool.sentinel_manager.connected(sock, (this.host, this.port))
        return sock

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        # redis-py connects here, for a repetition on a connection that broke, to where it was connected before.
        this: Any = self
        above: Any = super()
        if not this._sock:
            this._connect_retry()
        above.send_packed_command(command, check_health)


class _Connection(_Followed, SentinelManagedConnection):
    pass


class _TlsConnection(_Followed, SentinelManagedSSLConnection):
    pass


class _Pool(SentinelConnectionPool):
    """Keeps a connection that has gone to another primary: it renews itself. redis-py 6 would count it as in use for ever."""

    def owns_connection(self, connection: Any) -> bool:
        return bool(connection.pid == self.pid)
