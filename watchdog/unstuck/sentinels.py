"""Clients of the primary that the sentinels name, moved when they name another.

redis-py asks the sentinels when it connects, and no more while the connection lives. After a failover that the old primary
survives (by command, a partition, a pause that was a second too long) it takes writes until the sentinels have turned it into a
replica, ten seconds later or more: beats, completions and new jobs that the new primary never gets, from workers that it then
takes for dead, under an agent that leads where nothing is left to watch. So a thread asks all sentinels once a second. Those with the
newest configuration (`config-epoch`) are believed; every connection to another server than they name is shut down, whatever
waits in it, and whoever uses it connects again.
"""

from __future__ import annotations

import logging
import socket
import threading
import weakref
from typing import Any, Final, cast

from redis.exceptions import RedisError
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from unstuck import logs

Address = tuple[str, int]

LOOK_EVERY_SECONDS: Final = 1.0
LONGEST_FAREWELL_SECONDS: Final = 1.0

log = logging.getLogger("unstuck.sentinels")


class Sentinels(Sentinel):
    """The sentinels of one service. `asking` are redis-py's options for connections to the sentinels themselves.

    Every client of :meth:`primary` is followed from :meth:`follow` to :meth:`close`, by a thread of its own.
    """

    def __init__(self, hosts: list[Address], service: str, asking: dict[str, Any]) -> None:
        cast("Any", super()).__init__(hosts, sentinel_kwargs=asking)
        self.service = service
        self._order: tuple[Any, ...] = tuple(self.sentinels)  # those that answered last time come first
        self._newest = 0
        self._sockets: weakref.WeakKeyDictionary[socket.socket, Address] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sentinels", daemon=True)

    def primary(self, **options: Any) -> Any:
        """A client of the primary with redis-py's `options`; `ssl=True` for TLS."""
        kind = _TlsConnection if options.pop("ssl", False) else _Connection
        return cast("Any", self).master_for(self.service, connection_class=kind, **options)

    def follow(self) -> None:
        """Start to look once a second."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and the connections to the sentinels; those to the primary are their clients'."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(LONGEST_FAREWELL_SECONDS)
        for sentinel in self._order:
            sentinel.close()

    def look(self) -> Address | None:
        """Ask every sentinel once, and move whoever is elsewhere; the primary, or None if that is not known for certain."""
        states, answered, silent = [], [], []
        for sentinel in self._order:
            if self._stopping.is_set():
                return None
            try:
                states.append(sentinel.sentinel_masters().get(self.service))
            except (RedisError, OSError):
                silent.append(sentinel)
            else:
                answered.append(sentinel)
        self._order = (*answered, *silent)
        known = [state for state in states if state is not None]
        self._newest = max((_epoch(state) for state in known), default=0)
        # Whoever leads a failover has the new epoch a moment before the new address.
        named = {
            (str(state["ip"]), int(state["port"]))
            for state in known
            if _epoch(state) == self._newest and "failover_in_progress" not in state["flags"]
        }
        if len(named) != 1:
            return None
        (primary,) = named
        self._move(primary)
        return primary

    def connected(self, sock: socket.socket, address: Address) -> None:
        """A connection says that it stands, and to which address it was sent."""
        with self._lock:
            self._sockets[sock] = address

    # -- what redis-py asks when it connects

    def discover_master(self, service_name: str) -> Any:
        """The address of the primary, from a sentinel that does not lag behind what another has said.

        redis-py puts the sentinel that answers first in its list; two threads that do so at once lose one of them. So each
        call has a list of its own.
        """
        self.sentinels = list(self._order)
        return cast("Any", super()).discover_master(service_name)

    def check_master_state(self, state: Any, service_name: str) -> bool:
        """Whether a sentinel's word counts."""
        fit = cast("Any", super()).check_master_state(state, service_name)
        return bool(fit) and _epoch(state) >= self._newest

    # -- following

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_EVERY_SECONDS):
            try:
                self.look()
            except Exception:
                log.debug("sentinels unreadable", exc_info=True)

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
            from_ = ", ".join(sorted({f"{host}:{port}" for host, port in left}))
            to = f"{primary[0]}:{primary[1]}"
            logs.say(
                log, logging.INFO, "primary_moved", service=self.service, before=from_, now=to, connections=len(left)
            )


def _epoch(state: Any) -> int:
    return int(state.get("config-epoch", 0))


class _Followed:
    """Tells the sentinels' follower of each socket that it opens."""

    def _connect(self) -> Any:
        this = cast("Any", self)
        sock = cast("Any", super())._connect()
        this.connection_pool.sentinel_manager.connected(sock, (this.host, this.port))
        return sock


class _Connection(_Followed, SentinelManagedConnection):
    pass


class _TlsConnection(_Followed, SentinelManagedSSLConnection):
    pass
