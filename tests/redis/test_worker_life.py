"""A worker from its start to its end: starting conditions, failing jobs, waiting and waking, stopping once and twice."""

import signal

import pytest

from support.cli import run_cli
from support.ports import free_port
from support.redis_server import RedisServer
from support.waiting import wait_until
from support.worker_bench import WorkerBench
from unstuck.protocol import keys


@pytest.fixture
def bench(redis_server, processes):
    return WorkerBench(redis_server, processes)


def refused(bench, *args, handler="support.handlers:quick"):
    env = {"UNSTUCK_REDIS": bench.server.url, "HANDLER_REDIS": bench.server.url}
    return run_cli("worker", bench.name, handler, *args, env=env)


class TestStart:
    def test_without_redis_it_waits_says_so_once_and_starts_when_redis_is_there(self, redis_server, processes):
        port = free_port()
        process = processes.unstuck(
            "worker",
            "mail",
            "support.handlers:quick",
            "--redis",
            f"redis://127.0.0.1:{port}/0",
            env={"HANDLER_REDIS": redis_server.url},
        )
        process.wait_for_output(r"waiting_for_redis .*refused the connection.*trying again")
        server = RedisServer(port=port)
        try:
            server.start()
            process.wait_for_output("INFO ready")
            assert process.stderr.count("waiting_for_redis") == 1
        finally:
            process.kill()
            server.close()

    def test_a_wrong_password_ends_it_with_status_3_and_a_sentence(self, make_redis):
        server = make_redis(password="right")
        ran = run_cli(
            "worker", "mail", "support.handlers:quick", "--redis", f"redis://:wrong@127.0.0.1:{server.port}/0"
        )
        assert ran.code == 3
        assert "refused the user name or password" in ran.stderr
        assert "wrong@" not in ran.stderr

    def test_missing_rights_end_it_with_status_3_and_a_sentence(self, make_redis):
        server = make_redis()
        server.client().execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~other*", "+@all")
        ran = run_cli(
            "worker", "mail", "support.handlers:quick", "--redis", f"redis://poor:pw@127.0.0.1:{server.port}/0"
        )
        assert ran.code == 3
        assert "does not give this user the right" in ran.stderr

    def test_an_abort_time_not_below_the_published_threshold_is_refused_with_both_numbers(self, bench):
        bench.call("publish_pacing", 1, 15_000, 15_000)
        ran = refused(bench, "--abort-after", "20s")
        assert ran.code == 2
        assert "abort_after 20s is not below the agent's stuck_after 15s" in ran.stderr
        assert "--abort-after" in ran.stderr
        assert bench.client.zcard(keys.workers(bench.name)) == 0

    def test_a_published_threshold_below_three_heartbeats_is_refused_with_both_numbers(self, bench):
        bench.call("publish_pacing", 1, 15_000, 12_000)
        ran = refused(bench, "--abort-after", "6s")
        assert ran.code == 2
        assert "stuck_after 12s is below three heartbeats of 5s" in ran.stderr

    @pytest.mark.parametrize(
        ("handler", "sentence"),
        [
            ("support.handlrs:quick", "no module 'support.handlrs'"),
            ("suport.handlers:quick", "no module 'suport'"),
            ("support.handlers:quik", "has no 'quik', did you mean `quick`?"),
            ("support.handlers", "write MODULE:FUNCTION"),
            ("support.handlers:json.__name__", "is a str, not a function"),
            ("support.handlers:not_a_function_of_two", "must take two arguments: the payload and the context"),
            ("support.handlers:asynchronous", "is async; wrap it"),
        ],
    )
    def test_a_handler_that_cannot_be_called_is_explained(self, bench, handler, sentence):
        ran = refused(bench, handler=handler)
        assert ran.code == 2
        assert sentence in ran.stderr
        assert len(ran.stderr.splitlines()) == 1

    def test_a_module_near_by_is_offered_by_its_right_name(self, bench, tmp_path):
        (tmp_path / "tasks.py").write_text("def send(payload, context): pass\n")
        ran = run_cli("worker", "mail", "taks:send", cwd=tmp_path, env={"UNSTUCK_REDIS": bench.server.url})
        assert (ran.code, "did you mean `tasks`?" in ran.stderr) == (2, True)

    def test_another_protocol_version_ends_it_with_status_3(self, bench):
        bench.client.hset(keys.meta(bench.name), "v", "2")
        ran = refused(bench)
        assert ran.code == 3
        assert "field v is '2'" in ran.stderr

    def test_a_bad_queue_name_ends_it_with_status_2(self, bench):
        ran = run_cli("worker", "a{b}", "support.handlers:quick", env={"UNSTUCK_REDIS": bench.server.url})
        assert ran.code == 2
        assert "use 1 to 128 of" in ran.stderr


class TestFailures:
    def test_a_failed_job_is_scheduled_again_with_type_message_and_frames_but_no_payload(self, bench):
        bench.worker("failing")
        bench.put("one", {"secret": "hunter2"})
        body = bench.until_state("one", "scheduled")
        assert body["error"].startswith("ValueError: no such recipient\n")
        assert "in failing" in body["error"]
        assert "hunter2" not in body["error"]
        assert body["failures"] == "1"

    def test_what_the_log_says_names_job_worker_and_token_and_never_the_payload(self, bench):
        process = bench.worker("failing")
        bench.put("one", {"secret": "hunter2"})
        process.wait_for_output(r"acquired .*job=one worker=\S+ token=1\.\w{16}")
        process.wait_for_output(r"scheduled .*error=ValueError .*job=one worker=\S+ token=1\.\w{16}")
        assert "hunter2" not in process.output

    def test_a_payload_that_is_not_json_is_dead_at_once_with_a_clear_sentence(self, bench):
        process = bench.worker("quick")
        bench.queue.enqueue_text("{not json", id="one")
        bench.put("two")
        body = bench.until_state("one", "dead")
        assert body["cause"] == "payload"
        assert "payload is not JSON" in body["error"]
        assert body["payload"] == "{not json"
        bench.heard("ran", "two")
        assert "{not json" not in process.output

    def test_a_permanent_failure_is_not_tried_again(self, bench):
        bench.worker("hopeless")
        bench.put("one")
        assert bench.until_state("one", "dead")["cause"] == "permanent"

    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_a_handler_that_calls_exit_fails_its_job_only(self, bench, isolate):
        process = bench.worker("exiting", "--isolate", isolate)
        bench.put("one")
        assert bench.until_state("one", "scheduled")["error"].startswith("SystemExit: 7")
        assert process.returncode is None

    def test_a_child_process_that_crashes_fails_its_job_and_is_replaced(self, bench):
        bench.worker("crashing", "--isolate", "process")
        bench.put("one", max_attempts=1)
        body = bench.until_state("one", "dead")
        assert "was killed by signal 11" in body["error"]
        bench.put("two", max_attempts=1)
        bench.until_state("two", "dead")

    def test_a_job_without_a_body_goes_to_quarantine_and_the_next_one_runs(self, bench):
        bench.client.rpush(keys.pending(bench.name), "ghost")
        bench.put("one")
        bench.worker("quick")
        bench.heard("ran", "one")
        assert bench.client.lrange(keys.quarantine(bench.name), 0, -1) == ["ghost"]

    def test_a_damaged_key_is_complained_about_and_work_goes_on_once_it_is_mended(self, bench):
        process = bench.worker("quick")
        bench.put("one")
        bench.until_state("one", "done")
        bench.damage("started")
        bench.put("two")
        process.wait_for_output(r"claim_failed .*started holds a string where a zset belongs")
        assert bench.job("two")["state"] == "pending"
        bench.client.delete(keys.started(bench.name))
        bench.heard("ran", "two")

    def test_a_warm_child_runs_job_after_job(self, bench):
        bench.worker("quick", "--isolate", "process")
        bench.put("one", {"n": 1})
        first = bench.heard("ran", "one")
        bench.put("two", {"n": 2})
        second = bench.heard("ran", "two")
        assert first["pid"] == second["pid"]
        assert (first["payload"], second["payload"]) == ({"n": 1}, {"n": 2})


class TestWaiting:
    def test_a_new_job_wakes_an_idle_worker_long_before_its_interval(self, bench):
        # With an interval of ten minutes only the wake can start a job.
        bench.processes.unstuck(
            "worker",
            bench.name,
            "support.handlers:quick",
            env={
                "UNSTUCK_REDIS": bench.server.url,
                "HANDLER_REDIS": bench.server.url,
                "UNSTUCK_PACING_BASE_INTERVAL": "10m",
                "UNSTUCK_PACING_MAX_INTERVAL": "10m",
            },
        ).wait_for_output("INFO ready")
        self._blocked(bench)
        bench.put("one")
        bench.heard("ran", "one")
        self._blocked(bench)
        bench.put("two")
        bench.heard("ran", "two")

    def test_a_scheduled_job_is_claimed_when_it_is_due_not_an_interval_later(self, bench):
        bench.put("later", delay=1.5)
        bench.processes.unstuck(
            "worker",
            bench.name,
            "support.handlers:quick",
            "--wake",
            "off",
            env={
                "UNSTUCK_REDIS": bench.server.url,
                "HANDLER_REDIS": bench.server.url,
                "UNSTUCK_PACING_BASE_INTERVAL": "10m",
                "UNSTUCK_PACING_MAX_INTERVAL": "10m",
            },
        )
        bench.heard("ran", "later")

    def test_with_wake_off_it_blocks_nowhere_and_polls(self, bench):
        bench.worker("quick", "--wake", "off")
        bench.put("one")
        bench.heard("ran", "one")
        assert not [one for one in bench.client.client_list() if one["cmd"] == "blpop"]

    def test_the_published_interval_is_applied_and_said_in_the_record(self, bench):
        process = bench.worker("quick")
        fields = {"interval_ms": 400, "base_ms": 200, "min_ms": 200, "max_ms": 10_000, "jitter": 0.1}
        bench.call("publish_pacing", 1, 60_000, "", *(part for item in fields.items() for part in item))
        self._applies(bench, process, "400")

    @pytest.mark.parametrize(
        "damage",
        [
            {"interval_ms": "1000000000", "max_ms": "1000000000"},
            {"interval_ms": "-1"},
            {"interval_ms": "soon"},
            {"jitter": "nan"},
            {"computed_at_ms": "1"},
            {"min_ms": None},
        ],
    )
    def test_a_doubtful_published_interval_is_not_believed_and_the_doubt_is_counted(self, bench, damage):
        fields = {"interval_ms": 400, "base_ms": 200, "min_ms": 200, "max_ms": 10_000, "jitter": 0.1}
        bench.call("publish_pacing", 1, 60_000, "", *(part for item in fields.items() for part in item))
        for field, value in damage.items():
            if value is None:
                bench.client.hdel(keys.pacing(bench.name), field)
            else:
                bench.client.hset(keys.pacing(bench.name), field, value)
        process = bench.worker("quick")
        self._applies(bench, process, "200")
        worker = bench.name_of(process)
        wait_until(lambda: int(bench.record(worker).get("pacing_doubts", 0)) > 0, why="the doubt is counted")

    def test_a_pacing_key_of_the_wrong_type_is_not_believed(self, bench):
        bench.client.set(keys.pacing(bench.name), "fast")
        process = bench.worker("quick")
        self._applies(bench, process, "200")
        bench.put("one")
        bench.heard("ran", "one")

    @staticmethod
    def _applies(bench, process, interval):
        worker = bench.name_of(process)
        wait_until(lambda: bench.record(worker).get("applied_ms") == interval, 15, f"{interval} ms is applied")

    @staticmethod
    def _blocked(bench):
        wait_until(
            lambda: [one for one in bench.client.client_list() if one["cmd"] == "blpop" and "b" in one["flags"]],
            15,
            "a slot waits for a wake",
        )


class TestStop:
    def test_sigterm_lets_the_running_job_finish_while_heartbeats_go_on_and_takes_no_other(self, bench):
        process = bench.worker("patient")
        bench.put("one")
        bench.heard("began")
        bench.put("two")
        process.terminate()
        process.wait_for_output("stopping .*jobs=1")
        before = bench.job("one")["heartbeat_at"]
        wait_until(lambda: bench.job("one")["heartbeat_at"] > before, why="heartbeats go on")
        bench.go("one")
        assert process.wait(15) == 0
        assert bench.job("one")["state"] == "done"
        assert bench.job("two")["state"] == "pending"
        assert bench.client.zcard(keys.workers(bench.name)) == 0
        assert bench.client.hgetall(keys.ops(bench.name)) == {}

    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_a_second_sigterm_releases_what_runs_and_ends(self, bench, isolate):
        process = bench.worker("deaf", "--concurrency", "2", "--isolate", isolate)
        bench.put("one")
        bench.put("two")
        bench.heard("began", count=2)
        process.terminate()
        process.wait_for_output("stopping")
        process.terminate()
        assert process.wait(15) == 0
        assert {bench.job(job)["state"] for job in ("one", "two")} == {"pending"}
        assert {bench.job(job)["failures"] for job in ("one", "two")} == {"0"}
        assert [event["cause"] for event in bench.events() if event["event"] == "released"] == ["shutdown"] * 2
        assert bench.client.zcard(keys.workers(bench.name)) == 0
        assert process.family() == []

    def test_ctrl_c_is_a_first_stop_too_also_for_children(self, bench):
        process = bench.worker("patient", "--isolate", "process")
        bench.put("one")
        bench.heard("began")
        process.interrupt()
        process.wait_for_output("stopping")
        bench.go("one")
        assert process.wait(15) == 0
        assert bench.job("one")["state"] == "done"

    @pytest.mark.parametrize("wake", ["on", "off"])
    def test_an_idle_worker_ends_at_once_although_its_wait_is_long(self, bench, wake):
        process = bench.processes.unstuck(
            "worker",
            bench.name,
            "support.handlers:quick",
            "--wake",
            wake,
            "--concurrency",
            "3",
            env={
                "UNSTUCK_REDIS": bench.server.url,
                "HANDLER_REDIS": bench.server.url,
                "UNSTUCK_PACING_BASE_INTERVAL": "10m",
                "UNSTUCK_PACING_MAX_INTERVAL": "10m",
            },
        )
        process.wait_for_output("INFO ready")
        bench.until_control(bench.name_of(process))
        process.terminate()
        assert process.wait(10) == 0

    def test_stopped_twice_while_redis_is_away_it_ends_with_status_3_and_names_the_jobs(
        self, make_redis, redis_server, processes
    ):
        bench = WorkerBench(make_redis(), processes, told=redis_server)
        process = bench.worker("deaf", "--redis-timeout", "200ms")
        bench.put("one")
        bench.heard("began")
        bench.server.freeze()
        process.terminate()
        process.wait_for_output("stopping")
        process.terminate()
        process.wait_for_output("letting_go")
        process.terminate()
        assert process.wait(30) == 3
        assert "1 running job could not be released: one; the agent will find it" in process.stderr
        bench.server.thaw()

    def test_stopped_while_waiting_for_redis_it_ends_with_status_0(self, processes):
        process = processes.unstuck(
            "worker", "mail", "support.handlers:quick", "--redis", f"redis://127.0.0.1:{free_port()}/0"
        )
        process.wait_for_output("waiting_for_redis")
        process.send(signal.SIGTERM)
        assert process.wait(10) == 0
