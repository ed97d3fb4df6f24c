"""Fixtures for every test: real servers and real processes. They fail where a program is missing; they never skip."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from support import processes as accounting
from support.processes import Processes
from support.redis_server import RedisServer

pytest_plugins = ["support.no_skipping"]


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """Fail the session, on its last test, when a process that a test has started outlives all of them."""
    yield
    left = accounting.remaining()
    for process, _ in left:
        process.kill_tree()
    assert not left, "tests left processes behind (killed now): " + "; ".join(
        f"{process}: {', '.join(f'{one.pid} {one.command}' for one in alive)}" for process, alive in left
    )


@pytest.fixture(scope="session")
def _shared_redis() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """An empty server that all tests of the session share, one after the other; settings are not to be changed.

    A test may freeze, stop or kill it: the next one gets it running and empty. Who changes settings, needs a
    password, or needs it to stay empty of the agent's traces takes `make_redis`.
    """
    _shared_redis.clean()
    return _shared_redis


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of `redis_server`."""
    return redis_server.url


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of `redis_server` that gives text."""
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def make_redis() -> Iterator[Callable[..., RedisServer]]:
    """Start servers for this test alone: `make_redis(password="x", maxmemory="20mb")`, options as RedisServer's."""
    servers: list[RedisServer] = []

    def make(**options: object) -> RedisServer:
        server = RedisServer(**options)  # type: ignore[arg-type]
        servers.append(server)
        return server.start()

    yield make
    for server in reversed(servers):
        server.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Start processes for this test alone; at its end they are gone with everything that they started."""
    folder = tmp_path / "processes"
    folder.mkdir()
    started = Processes(folder)
    yield started
    started.stop_all()
