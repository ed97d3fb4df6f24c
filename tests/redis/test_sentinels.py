"""Sentinels: whoever is connected to a primary that was deposed moves to the one that they name, whatever it waits in.

The old primary stays one here: its sentinels may not turn it into a replica, as a partition would keep them from it for long.
"""

import concurrent.futures
import contextlib
import gc
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

from support.ports import free_port
from support.processes import Process, Processes
from support.programs import redis_server_program
from support.redis_server import RedisServer
from support.sentinels import PATIENCE_SECONDS, SERVICE, client_of, start_sentinel
from support.sentinels import Sentinels as Watched
from support.waiting import wait_until
from support.worker_bench import FAST
from unstuck.connections import Connections
from unstuck.protocol import Queue, keys
from unstuck.sentinels import SILENT_LOOKS, Sentinels

NO_RETRY = Retry(NoBackoff(), 0)
AGENT = """
mode: reclaim
sweep_interval: 200ms
heartbeat_interval: 200ms
lock_ttl: 2s
stuck_after: 2s
gone_after: 500ms
abort_after: 1500ms
confirm_after: 500ms
leader: {lease: 2s}
log: {format: json, level: info}
queues: [{backend: unstuck, queue: "*"}]
"""


@pytest.fixture
def watched(tmp_path: Path, processes: Processes) -> Iterator[Watched]:
    """A primary (0) that stays one when it is deposed, its replica (1), and three sentinels."""
    watched = Watched(tmp_path / "sentinels", processes.start)
    watched.servers[0].client().execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
    yield watched
    watched.close()


@pytest.fixture
def connect(watched: Watched) -> Iterator[Callable[..., Connections]]:
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Connections(watched.address, role="test", **options))


def flags_of(sentinel: Any) -> str:
    """What a sentinel says of the primary; empty while it says nothing."""
    try:
        return str(sentinel.sentinel_masters()[SERVICE]["flags"])
    except (redis.RedisError, KeyError):
        return ""


def depose(watched: Watched) -> RedisServer:
    """Fail over by command; the new primary. The old one still takes itself for one."""
    new = watched.failover()
    wait_until(lambda: watched.primary() is new, PATIENCE_SECONDS, "the replica is promoted")
    return new


def ours(server: RedisServer) -> list[str]:
    """The names of our connections at a server."""
    names = [str(one["name"]) for one in server.client().client_list()]
    return [name for name in names if name.startswith("unstuck:")]


def port_of(client: Any) -> int:
    return int(client.info("server")["tcp_port"])


def role_of(server: RedisServer) -> str:
    return str(server.client().info("replication")["role"])


def test_every_kind_of_client_moves_even_while_it_waits(watched: Watched, connect: Callable[..., Connections]) -> None:
    old, connections = watched.servers[0], connect()
    idle = [connections.reading(), connections.scripting(), connections.beating()]
    assert {port_of(client) for client in idle} == {old.port}
    subscription = connections.subscribing().pubsub()
    subscription.subscribe("news")
    assert subscription.get_message(timeout=5)
    blocking = connections.blocking(60)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waits = pool.submit(blocking.blpop, ["nothing"], 60)
        wait_until(lambda: old.client().info("clients")["blocked_clients"] == 1, 20, "it blocks")
        new = depose(watched)
        with pytest.raises(redis.ConnectionError):
            waits.result(20)
    assert not ours(old)
    with pytest.raises(redis.ConnectionError):
        subscription.get_message(timeout=5)
    # Not one error for those that were idle: neither of them repeats a command by itself.
    assert {port_of(client) for client in [*idle, blocking]} == {new.port}
    assert role_of(old) == "master", "the test is of an old primary that lives on"


def test_a_call_that_is_repeated_is_repeated_at_the_new_primary(
    watched: Watched, connect: Callable[..., Connections]
) -> None:
    old, scripting = watched.servers[0], connect(timeout=30).scripting()
    assert port_of(scripting) == old.port
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(scripting.blpop, ["something"], 25)
        wait_until(lambda: old.client().info("clients")["blocked_clients"] == 1, 20, "the call is under way")
        new = depose(watched)
        wait_until(lambda: new.client().info("clients")["blocked_clients"] == 1, 20, "it is repeated there")
        new.client().rpush("something", "here")
        assert list(call.result(20)) == [b"something", b"here"]
    assert not ours(old)


def looking_at(*ports: int) -> Sentinels:
    """Sentinels that look when they are told to."""
    return Sentinels([("127.0.0.1", port) for port in ports], SERVICE, {"socket_timeout": 3.0, "retry": NO_RETRY})


def test_a_sentinel_that_lags_behind_the_others_is_not_believed(watched: Watched) -> None:
    old = watched.servers[0]
    # It may log in and look, but hears and says nothing on the channel on which the sentinels tell each other.
    deaf = ("on", ">pw", "~*", "+@all", "resetchannels", "-replicaof", "-slaveof")
    for server in watched.servers.values():
        server.client().execute_command("ACL", "SETUSER", "deaf", *deaf)
    lagging = watched.watch(old, f"sentinel auth-user {SERVICE} deaf", f"sentinel auth-pass {SERVICE} pw")
    lag = client_of(lagging)
    wait_until(lambda: "s_down" not in flags_of(lag) != "", 20, "it has seen the primary")
    sentinels = looking_at(lagging, *watched.ports)
    client = sentinels.primary()
    with contextlib.closing(sentinels), contextlib.closing(client), contextlib.closing(lag):
        assert port_of(client) == old.port
        new = depose(watched)
        here = "127.0.0.1", new.port
        wait_until(lambda: sentinels.look() == here, 20, "the sentinels agree")
        assert lag.sentinel_masters()[SERVICE]["port"] == old.port
        assert port_of(client) == new.port
        connection = client.client_id()
        for _ in range(3):
            assert sentinels.look() == here
        assert sentinels.discover_master(SERVICE) == here
        for sentinel in watched.clients:
            end(sentinel)
        assert sentinels.look() is None, "one of four, with an older word, is not enough to move anybody back"
        assert client.client_id() == connection, "who is at the right place is left alone"


def test_while_the_replicas_are_still_being_told_everybody_goes_to_the_new_primary(
    tmp_path: Path, processes: Processes
) -> None:
    watched = Watched(tmp_path / "sentinels", processes.start, bystander=True)
    watched.servers[0].client().execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
    sentinels = looking_at(*watched.ports)
    client = sentinels.primary()
    with contextlib.closing(watched), contextlib.closing(sentinels), contextlib.closing(client):
        assert port_of(client) == watched.servers[0].port
        for sentinel in watched.clients:
            sentinel.sentinel_set(SERVICE, "failover-timeout", 60_000)
        watched.servers[2].freeze()
        new = depose(watched)
        here = "127.0.0.1", new.port
        told = watched.clients[0].sentinel_masters()[SERVICE]
        assert "failover_in_progress" in told["flags"]
        assert told["port"] != new.port, "the test is of a sentinel that still shows the old address"
        wait_until(lambda: sentinels.look() == here, 20, "the sentinels agree")
        connections = set()
        for _ in range(3):
            assert sentinels.look() == here
            assert port_of(client) == new.port
            connections.add(client.client_id())
        assert len(connections) == 1


def end(sentinel: Any) -> None:
    with contextlib.suppress(redis.ConnectionError):
        sentinel.shutdown(nosave=True)


def test_sentinels_that_are_gone_or_contradict_each_other_move_nobody(
    tmp_path: Path, processes: Processes, make_redis: Callable[..., RedisServer]
) -> None:
    servers = [make_redis(), make_redis()]
    ports = [start_sentinel(tmp_path, processes.start, server) for server in servers]
    clients = [client_of(port) for port in ports]
    for one in clients:
        wait_until(lambda c=one: flags_of(c) == "master", 20, "it has seen its server")
    sentinels = looking_at(*ports)
    client = sentinels.primary()
    with contextlib.closing(sentinels), contextlib.closing(client):
        before = client.client_id(), port_of(client)
        assert sentinels.look() is None
        for one in clients:
            end(one)
            one.close()
        assert sentinels.look() is None
        assert (client.client_id(), port_of(client)) == before


def test_a_sentinel_that_takes_its_primary_for_down_is_not_heard_however_new_its_word(
    tmp_path: Path, processes: Processes, make_redis: Callable[..., RedisServer]
) -> None:
    gone, server = make_redis(), make_redis()
    stale = start_sentinel(tmp_path, processes.start, gone, f"sentinel config-epoch {SERVICE} 5", down_after_ms=500)
    well = start_sentinel(tmp_path, processes.start, server)
    gone.kill()
    with contextlib.closing(client_of(stale)) as one, contextlib.closing(client_of(well)) as other:
        wait_until(lambda: "s_down" in flags_of(one), 20, "it takes its primary for down")
        wait_until(lambda: flags_of(other) == "master", 20, "the other has seen its own")
    sentinels = looking_at(stale, well)
    client = sentinels.primary()
    with contextlib.closing(sentinels), contextlib.closing(client):
        connection = client.client_id()
        assert sentinels.look() == ("127.0.0.1", server.port)
        assert (client.client_id(), sentinels.discover_master(SERVICE)) == (connection, ("127.0.0.1", server.port))


def test_a_silent_sentinel_is_asked_last_and_stops_nobody_who_connects(
    tmp_path: Path, processes: Processes, make_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_redis()
    port = start_sentinel(tmp_path, processes.start, server)
    here = "127.0.0.1", server.port
    with contextlib.closing(client_of(port)) as one, socket.create_server(("127.0.0.1", 0)) as silent:
        wait_until(lambda: flags_of(one) == "master", 20, "it has seen its server")
        address = silent.getsockname()
        asking = {"socket_timeout": 0.3, "retry": NO_RETRY}
        sentinels = Sentinels([address, ("127.0.0.1", port)], SERVICE, asking)
        with contextlib.closing(sentinels), concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = [pool.submit(sentinels.discover_master, SERVICE) for _ in range(8)]
            assert {one.result(20) for one in found} == {here}
            assert sentinels.look() == here
            silent.close()
            assert sentinels.discover_master(SERVICE) == here
            end(one)
            with caplog.at_level("INFO", "unstuck.sentinels"):
                for _ in range(SILENT_LOOKS + 2):
                    assert sentinels.look() is None
            assert [record.message for record in caplog.records] == ["sentinels_silent"]
            with pytest.raises(MasterNotFoundError, match="No master found for 'jobs'"):
                sentinels.discover_master(SERVICE)


def test_a_server_that_is_no_sentinel_says_so_itself(redis_server: RedisServer) -> None:
    sentinels = looking_at(redis_server.port)
    with contextlib.closing(sentinels), pytest.raises(redis.ResponseError, match=r"(?i)unknown command .sentinel"):
        sentinels.discover_master(SERVICE)


def test_the_thread_ends_with_the_last_client_and_begins_anew_in_a_forked_child(watched: Watched) -> None:
    sentinels = looking_at(*watched.ports)
    sentinels.follow()
    client = sentinels.primary()
    assert client.ping()
    thread = sentinels._thread
    child = os.fork()
    if child == 0:  # its exit status is what it found
        found = 1
        with contextlib.suppress(BaseException):
            found = 0 if client.ping() and sentinels._thread is not thread and sentinels._thread.is_alive() else 2
        os._exit(found)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert thread.is_alive()
    client.close()
    del client, sentinels
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def test_another_name_of_the_same_server_is_no_other_place(
    tmp_path: Path, processes: Processes, make_redis: Callable[..., RedisServer]
) -> None:
    server = make_redis()
    names = ("sentinel resolve-hostnames yes", "sentinel announce-hostnames yes")
    port = start_sentinel(tmp_path, processes.start, server, *names)
    sentinels = looking_at(port)
    client, sentinel = sentinels.primary(), client_of(port)
    with contextlib.closing(sentinels), contextlib.closing(client), contextlib.closing(sentinel):
        wait_until(lambda: flags_of(sentinel) == "master", 20, "it has seen its server")
        connection = client.client_id()
        sentinel.execute_command("SENTINEL", "REMOVE", SERVICE)
        sentinel.execute_command("SENTINEL", "MONITOR", SERVICE, "localhost", str(server.port), "1")
        assert sentinels.look() == ("localhost", server.port)
        assert client.client_id() == connection


def test_over_tls_too_and_whoever_reads_ends_in_order(
    tmp_path: Path, processes: Processes, make_redis: Callable[..., RedisServer]
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    files = {
        "tls_cert_file": str(cert),
        "tls_key_file": str(key),
        "tls_ca_cert_file": str(ca),
        "tls_auth_clients": False,
    }
    tls_ports = [free_port(), free_port()]
    servers = [make_redis(tls_port=port, **files) for port in tls_ports]
    port = free_port()
    conf = tmp_path / "sentinel.conf"
    lines = [f"tls-port {port}", "port 0", f"dir {tmp_path}", "tls-replication yes"]
    lines += [f"{name.replace('_', '-')} {'no' if value is False else value}" for name, value in files.items()]
    conf.write_text("\n".join([*lines, f"sentinel monitor {SERVICE} 127.0.0.1 {tls_ports[0]} 1"]) + "\n")
    processes.start(redis_server_program(), conf, "--sentinel")
    address = f"sentinel://127.0.0.1:{port}/{SERVICE}?tls=true&ssl_ca_certs={ca}"
    sentinel = redis.Redis(host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=str(ca), decode_responses=True)
    wait_until(lambda: flags_of(sentinel) == "master", 20, "the sentinel sees the primary")
    with Connections(address, role="test") as connections, concurrent.futures.ThreadPoolExecutor() as pool:
        reading, blocking = connections.reading(), connections.blocking(60)
        assert port_of(reading) == servers[0].port
        waits = pool.submit(blocking.blpop, ["nothing"], 60)
        wait_until(lambda: servers[0].client().info("clients")["blocked_clients"] == 1, 20, "it blocks")
        sentinel.execute_command("SENTINEL", "REMOVE", SERVICE)
        sentinel.execute_command("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", str(tls_ports[1]), "1")
        with pytest.raises(redis.ConnectionError):
            waits.result(20)
        assert port_of(reading) == servers[1].port
        assert not ours(servers[0])
    sentinel.close()


class TestTogether:
    @pytest.fixture
    def config(self, tmp_path: Path) -> Path:
        path = tmp_path / "unstuck.yaml"
        path.write_text(AGENT)
        return path

    @pytest.fixture
    def agent(self, watched: Watched, processes: Processes, config: Path) -> Process:
        listen = f"127.0.0.1:{free_port()}"
        agent = processes.unstuck("run", "--config", config, "--redis", watched.address, "--http-listen", listen)
        agent.wait_for_output("gate_opened", timeout=60)
        return agent

    def test_agent_and_worker_go_on_at_the_new_primary_and_a_healthy_job_is_left_alone(
        self, watched: Watched, processes: Processes, agent: Process, redis_server: RedisServer
    ) -> None:
        old, told = watched.servers[0], redis_server.client()
        env = {"UNSTUCK_REDIS": watched.address, "HANDLER_REDIS": redis_server.url}
        worker = processes.unstuck("worker", "mail", "support.handlers:patient", *FAST, env=env)
        worker.wait_for_output("INFO ready")
        job = Queue(old.client(), "mail").enqueue({}).id
        wait_until(lambda: told.llen("told"), 20, "the handler has begun")
        old.client().wait(1, 5000)
        new = depose(watched)
        there: Any = new.client()
        wait_until(lambda: there.hget(keys.LEADER, "owner"), 30, "the leader is elected")
        owner = there.hget(keys.LEADER, "owner")
        agent.wait_for_output("gate_closed[^\\n]*failover", timeout=30)
        wait_until(lambda: agent.stderr.count('"gate_opened"') > 1, 30, "the gate opens again")
        assert there.hget(keys.LEADER, "owner") == owner
        assert int(there.hget(keys.LEADER, "epoch")) > 0
        told.rpush(f"go:{job}", "go")
        wait_until(lambda: there.hget(keys.job("mail", job), "state") == "done", 20, "the job is done")
        body = there.hgetall(keys.job("mail", job))
        assert (body["attempt"], body.get("rescues", "0")) == ("1", "0")
        assert "requeued" not in agent.stderr
        assert not ours(old)
        assert role_of(old) == "master", "the test is of an old primary that lives on"
