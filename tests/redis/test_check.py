"""`unstuck check` and the clients of each kind, on real servers in every state that must be told apart."""

import socket
import time

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from support.cli import run_cli
from support.ports import free_port
from support.waiting import wait_until
from unstuck.connections import Connections, text
from unstuck.errors import ConfigurationError, classify


def checks(ran):
    return {entry["check"]: entry for entry in ran.json()["checks"]}


def grant(server, rules):
    server.client().execute_command("ACL", "SETUSER", "bob", "reset", "on", ">pw", *rules.split())
    return f"redis://bob:pw@127.0.0.1:{server.port}/0"


class TestCheck:
    def test_a_server_set_up_as_it_should_be_is_all_right(self, make_redis):
        server = make_redis(appendonly=True, maxmemory="100mb")
        ran = run_cli("check", "--redis", server.url, "--json", "--fail-on", "warning")
        assert ran.code == 0, ran.stdout
        assert {entry["status"] for entry in ran.json()["checks"]} == {"ok"}
        assert set(checks(ran)) >= {"configuration", "connection", "server", "rights", "eviction", "memory", "clock"}

    def test_it_writes_nothing(self, redis_server, redis_client):
        run_cli("check", "--redis", redis_server.url)
        assert redis_client.dbsize() == 0

    def test_an_entry_for_a_system_without_an_adapter_is_told_of(self, redis_server, tmp_path):
        path = tmp_path / "unstuck.yaml"
        path.write_text("queues:\n  - {backend: celery, queue: mails, mode: reclaim}\n")
        ran = run_cli("check", "--config", str(path), "--redis", redis_server.url, "--json", "--fail-on", "warning")
        assert (ran.code, checks(ran)["configuration"]["status"]) == (1, "warning")
        assert "celery/mails" in checks(ran)["configuration"]["detail"]

    def test_the_lines_are_aligned_and_say_what_to_mend(self, make_redis):
        server = make_redis(maxmemory="100mb", maxmemory_policy="volatile-lru")
        ran = run_cli("check", "--redis", server.url)
        assert ran.code == 0
        assert ran.stderr == ""
        assert all(line[15] == " " != line[16] for line in ran.stdout.splitlines())
        assert "! eviction      volatile-lru: Redis may throw away locks and heartbeats" in ran.stdout
        assert "CONFIG SET maxmemory-policy noeviction" in ran.stdout
        assert "off: a restart of Redis loses every job; CONFIG SET appendonly yes" in ran.stdout
        assert run_cli("check", "--redis", server.url, "--fail-on", "warning").code == 1

    def test_a_refused_connection_ends_with_3(self):
        url = f"redis://127.0.0.1:{free_port()}"
        ran = run_cli("check", "--redis", url)
        assert ran.code == 3
        assert "refused the connection; start it, or set --redis or UNSTUCK_REDIS" in ran.stderr
        assert "Traceback" not in ran.stderr

    def test_a_wrong_password_ends_with_3_and_is_not_shown(self, make_redis):
        server = make_redis(password="right")
        for url in (f"redis://:hush@127.0.0.1:{server.port}", f"redis://127.0.0.1:{server.port}"):
            ran = run_cli("check", "--redis", url)
            assert ran.code == 3
            assert "refused the user name or password; set UNSTUCK_REDIS_PASSWORD" in ran.stderr
            assert "hush" not in ran.stdout + ran.stderr
        env = {"UNSTUCK_REDIS": f"redis://127.0.0.1:{server.port}", "UNSTUCK_REDIS_PASSWORD": "right"}
        assert run_cli("check", env=env).code == 0

    def test_a_missing_right_is_named(self, make_redis):
        server = make_redis()
        observing = "~unstuck:* &unstuck:* +@read +eval +evalsha +ping +info +time +pubsub"
        ran = run_cli("check", "--json", "--redis", grant(server, observing))
        assert ran.code == 0
        assert checks(ran)["rights"]["status"] == "warning"
        assert "missing to lead: SET unstuck:{unstuck-check}:fence" in checks(ran)["rights"]["detail"]
        ran = run_cli("check", "--json", "--mode", "reclaim", "--redis", grant(server, observing))
        assert ran.code == 3
        assert "missing to reclaim" in checks(ran)["rights"]["detail"]
        ran = run_cli("check", "--json", "--redis", grant(server, observing + " -hgetall -zscore"))
        assert ran.code == 3
        assert "missing to observe: HGETALL unstuck:leader, ZSCORE" in checks(ran)["rights"]["detail"]
        ran = run_cli("check", "--json", "--redis", grant(server, observing.replace("~unstuck:*", "~other:*")))
        assert ran.code == 3

    def test_a_user_who_may_not_even_look_is_told_which_command(self, make_redis):
        ran = run_cli("check", "--redis", grant(make_redis(), "~* +ping"))
        assert ran.code == 3
        assert "does not give this user the right to call INFO" in ran.stderr

    def test_another_programs_key_under_our_name_is_named(self, redis_server, redis_client):
        redis_client.set("unstuck:leader", "x")
        ran = run_cli("check", "--redis", redis_server.url)
        assert ran.code == 3
        assert "unstuck:leader is a string, not a hash" in ran.stderr
        assert redis_client.get("unstuck:leader") == "x"

    def test_a_replica_ends_with_3(self, make_redis):
        primary = make_redis()
        replica = make_redis(replicaof=("127.0.0.1", primary.port))
        wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up")
        ran = run_cli("check", "--redis", replica.url)
        assert ran.code == 3
        assert "is a replica and takes no writes; give the address of the primary" in ran.stderr
        ran = run_cli("check", "--json", "--redis", primary.url)
        assert checks(ran)["replicas"]["mend"] == "CONFIG SET min-replicas-to-write 1"

    def test_a_frozen_server_ends_with_3_within_the_time_out(self, make_redis):
        server = make_redis()
        server.freeze()
        started = time.monotonic()
        ran = run_cli("check", "--redis", server.url, "--redis-timeout", "500ms")
        assert ran.code == 3
        assert time.monotonic() - started < 8
        assert "did not answer in time" in ran.stderr

    def test_a_server_that_is_no_redis_ends_with_3(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(20)
            ran = run_cli(
                "check", "--redis", f"redis://127.0.0.1:{server.getsockname()[1]}", "--redis-timeout", "300ms"
            )
        assert ran.code == 3

    def test_a_database_that_does_not_exist_ends_with_3(self, redis_server):
        ran = run_cli("check", "--redis", redis_server.url.replace("/0", "/99"))
        assert ran.code == 3
        assert "does not have that database number" in ran.stderr


class TestConnections:
    @pytest.fixture
    def connections(self, redis_server):
        with Connections(redis_server.url, role="test", timeout=1.0) as made:
            yield made

    def test_replies_are_bytes_and_text_reads_them(self, connections):
        client = connections.scripting()
        client.set("k", b"\xffa")
        assert connections.reading().get("k") == b"\xffa"
        assert text(connections.reading().get("k")) == "\ufffda"
        assert (text(None), text("x"), text(5)) == ("", "x", "5")

    def test_every_connection_has_our_name_and_speaks_resp2(self, connections):
        connections.blocking(0.1).ping()
        connections.beating().ping()
        listed = connections.reading().client_list()
        ours = [one for one in listed if one["name"] == "unstuck:test"]
        assert len(ours) == 3
        assert {one["resp"] for one in ours} == {"2"}

    def test_looks_are_shared_and_waits_are_not(self, connections):
        assert connections.reading() is connections.reading()
        assert connections.reading() is not connections.scripting()
        assert connections.blocking(1) is not connections.blocking(1)

    def test_a_wait_may_last_longer_than_the_time_out_of_looks(self, connections):
        assert connections.blocking(1.5).blpop(["nothing"], 1.5) is None

    def test_a_look_at_a_frozen_server_fails_once_and_in_time(self, redis_server, connections):
        client = connections.reading()
        client.ping()
        redis_server.freeze()
        started = time.monotonic()
        with pytest.raises(RedisTimeoutError):
            client.get("x")
        assert time.monotonic() - started < 2.5

    def test_a_lost_subscription_is_an_error_and_not_a_silent_reconnect(self, redis_server, connections):
        subscription = connections.subscribing().pubsub()
        subscription.ssubscribe("channel")
        assert subscription.get_sharded_message(timeout=1)["type"] == "ssubscribe"
        redis_server.client().client_kill_filter(_type="pubsub")
        with pytest.raises(RedisConnectionError):
            wait_until(lambda: subscription.get_sharded_message(timeout=0.2))
        subscription.close()

    def test_a_safe_script_survives_a_restart_of_the_connection(self, redis_server, connections):
        client = connections.scripting()
        client.ping()
        redis_server.client().client_kill_filter(_type="normal", skipme=True)
        assert client.eval("return 1", 0) == 1

    def test_after_close_new_clients_are_made(self, connections):
        first = connections.reading()
        connections.close()
        connections.close()
        assert connections.reading() is not first
        assert connections.reading().ping()

    def test_a_socket_file_serves_as_well(self, make_redis):
        server = make_redis(unix_socket=True, password="pw")
        with Connections(server.unix_url, role="test") as connections:
            assert connections.reading().ping()
            assert "pw" not in connections.describe() + repr(connections)

    def test_nobody_there_is_a_connection_error_of_every_kind(self):
        port = free_port()
        for form in (f"redis://127.0.0.1:{port}", f"sentinel://127.0.0.1:{port}/m", f"cluster://127.0.0.1:{port}"):
            with Connections(form, timeout=0.5) as connections:
                with pytest.raises(Exception) as caught:  # noqa: PT011 — the classes differ, the kind does not
                    connections.reading().ping()
                assert classify(caught.value) == "connection"

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), 1e9])
    def test_a_time_out_without_sense_is_refused(self, timeout):
        with pytest.raises(ConfigurationError, match="redis_timeout"):
            Connections("redis://h", timeout=timeout)

    def test_a_user_without_the_right_to_a_name_connects_all_the_same(self, make_redis):
        with Connections(grant(make_redis(), "~* +ping +get"), role="test") as connections:
            assert connections.reading().ping()
