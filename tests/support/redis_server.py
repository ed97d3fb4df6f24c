"""Real Redis (or Valkey) servers, one process each, with a port and a folder of their own."""

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import redis

from support.ports import free_port
from support.processes import Process, child_env
from support.programs import redis_server_program
from support.waiting import wait_until

Setting = str | int | bool | tuple[str | int, ...]


class RedisServer:
    """A server that keeps nothing on disk unless asked: `RedisServer(appendonly=True, maxmemory="20mb")`.

    Keyword arguments are lines of redis.conf with `_` for `-`: True and False are yes and no, a tuple gives several
    words (`replicaof=("127.0.0.1", 6379)`). Port and folder stay the same when it is started again, so that with
    `appendonly=True` a restart finds its data.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        password: str | None = None,
        unix_socket: bool = False,
        program: Path | None = None,
        **config: Setting,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="unstuck-redis-"))
        self.password = password
        self.socket_path = self.folder / "redis.sock" if unix_socket else None
        self.process: Process | None = None
        self._program = program or redis_server_program()
        self._config = config
        self._port_is_ours = port is None
        self.port = port or free_port()
        self._clients: list[redis.Redis] = []

    # ── addresses ──

    @property
    def url(self) -> str:
        """redis://…/0, with the password if there is one."""
        return f"redis://{self._credentials}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """unix://…, for a server made with `unix_socket=True`."""
        assert self.socket_path, "made without unix_socket=True"
        return f"unix://{self._credentials}{self.socket_path}?db=0"

    @property
    def _credentials(self) -> str:
        return f":{self.password}@" if self.password else ""

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client (text, not bytes, unless `decode_responses=False`); it is closed with the server."""
        client = redis.Redis.from_url(self.url, **{"decode_responses": True, **options})
        self._clients.append(client)
        return client

    # ── life and death ──

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def start(self) -> "RedisServer":
        """Start it and return when it answers. A start of a running one does nothing."""
        if self.running:
            return self
        while True:
            self.process = Process(
                self._command(), self.folder / "stdout", self.folder / "stderr", child_env(), self.folder
            )
            if self._answers():
                return self
            # Somebody took the port between our look and the server's start.
            taken = "Address already in use" in self.log or "Address already in use" in self.process.output
            if not (taken and self._port_is_ours):
                raise AssertionError(f"{self._program} did not start:\n{self.log[-3000:]}{self.process.tail()}")
            (self.folder / "log").unlink()
            self.port = free_port()

    def stop(self) -> None:
        """End it in an orderly way (SIGTERM); a frozen one is thawed for that."""
        if self.process is not None and self.running:
            self.process.terminate()
            self.process.thaw()
            self.process.wait(20)
            self.process.kill_tree()

    def kill(self) -> None:
        """End it without a chance to say anything (SIGKILL)."""
        if self.process is not None:
            self.process.kill_tree()

    def restart(self) -> None:
        """Stop and start it on the same port; its run id is a new one."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Let it answer nothing while connections stay open (SIGSTOP)."""
        assert self.process, "not started"
        self.process.freeze()

    def thaw(self) -> None:
        assert self.process, "not started"
        self.process.thaw()

    def close(self) -> None:
        """End it and remove all that it had."""
        for client in self._clients:
            with contextlib.suppress(redis.RedisError, OSError):
                client.close()
        self._clients.clear()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ── state ──

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def clean(self) -> None:
        """Make it as good as new for the next test: running, thawed, empty, no scripts, no functions, counters at zero."""
        if self.running:
            self.thaw()
        self.start()
        client = self.client()
        # Not a pipeline: a script may still be running, and only these two are let through then.
        with contextlib.suppress(redis.ResponseError):
            client.script_kill()
        client.flushall()
        client.script_flush()
        client.config_resetstat()
        client.client_unpause()
        client.close()
        self._clients.remove(client)

    def wait_for_replicas(self, count: int, timeout: float = 20.0) -> None:
        """Wait until so many replicas are in sync."""
        with contextlib.closing(redis.Redis.from_url(self.url, decode_responses=True)) as client:
            wait_until(
                lambda: sum(replica.get("state") == "online" for replica in _replicas(client)) >= count,
                timeout,
                f"{count} replicas of {self.url} are online",
            )

    def _answers(self) -> bool:
        """Tell whether it answers PING; False once it has ended, AssertionError when it does neither."""
        process = self.process
        assert process is not None
        greeting = b"PING\r\n"
        if self.password:
            greeting = f"AUTH {self.password}\r\n".encode() + greeting

        def pong() -> str:
            if process.returncode is not None:
                return "ended"
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                    connection.sendall(greeting)
                    answer = connection.recv(200)
                    while b"PONG" not in answer and b"-" not in answer:
                        more = connection.recv(200)
                        if not more:
                            return ""
                        answer += more
            except OSError:
                return ""
            return "answers" if b"+PONG" in answer else ""

        if wait_until(pong, 20, f"the server on port {self.port} answers") == "ended":
            return False
        # On a port that was taken meanwhile it may have been the other one who answered.
        return process.returncode is None and "Address already in use" not in self.log

    def _command(self) -> tuple[str, ...]:
        settings: dict[str, Setting] = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "logfile": str(self.folder / "log"),
            "save": "",
            "appendonly": False,
            "daemonize": False,
            # Tests make the server slow or full on purpose.
            "enable_debug_command": "local",
            # Without this a replica's first synchronisation waits five seconds.
            "repl_diskless_sync_delay": 0,
        }
        if self.password:
            settings["requirepass"] = self.password
        if self.socket_path:
            settings["unixsocket"] = str(self.socket_path)
        command = [str(self._program)]
        for name, value in {**settings, **self._config}.items():
            command.append(f"--{name.replace('_', '-')}")
            words = value if isinstance(value, tuple) else (value,)
            command.extend({True: "yes", False: "no"}[word] if isinstance(word, bool) else str(word) for word in words)
        return tuple(command)


def _replicas(client: redis.Redis) -> list[dict[str, Any]]:
    info: dict[str, Any] = client.info("replication")
    return [value for name, value in info.items() if name.startswith("slave") and name[5:].isdigit()]
