"""A web server that receives webhooks, and does what a test tells it to."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.waiting import wait_until

Behaviour = int | str | tuple[int, dict[str, str]]
"""A status; a status with headers; `hang` (no answer until the end), `drip` (a header byte now and then), `cut` (no answer, closed)."""


@dataclass(frozen=True, slots=True)
class Post:
    """One request as it arrived."""

    at: float  # monotonic
    path: str
    headers: dict[str, str]  # lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Hooks:
    """What arrived, and what is answered: the behaviours one after the other, the last one for ever."""

    behaviours: list[Behaviour] = field(default_factory=lambda: [200])
    posts: list[Post] = field(default_factory=list)
    port: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self, count: int = 1, timeout: float = 30.0) -> Sequence[Post]:
        """The first `count` requests, as soon as they are there."""
        wait_until(lambda: len(self.posts) >= count, timeout, f"{count} webhooks have arrived")
        return self.posts[:count]

    def wait_for(self, matches: Callable[[Post], bool], timeout: float = 60.0, why: str = "a webhook matches") -> Post:
        """The first request that matches."""
        return wait_until(lambda: next(filter(matches, list(self.posts)), None), timeout, why)


@contextlib.contextmanager
def receiving(*behaviours: Behaviour) -> Iterator[Hooks]:
    """Receive on a free port until the end of the block."""
    hooks = Hooks(list(behaviours) or [200])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            hooks.posts.append(Post(time.monotonic(), self.path, headers, body))
            told = hooks.behaviours.pop(0) if len(hooks.behaviours) > 1 else hooks.behaviours[0]
            if told == "hang":
                hooks.ended.wait(60)
                self.close_connection = True
                return
            if told == "drip":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not hooks.ended.wait(0.05):
                    try:
                        self.wfile.write(b"x")
                    except OSError:
                        return
                return
            if told == "cut":
                self.close_connection = True
                return
            status, more = told if isinstance(told, tuple) else (int(told), {})
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: Any) -> None:
            return

    server = Server(("127.0.0.1", 0), Handler)
    hooks.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hooks
    finally:
        hooks.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
