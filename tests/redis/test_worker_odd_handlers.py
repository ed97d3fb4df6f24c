"""Handlers that do what nobody expects: odd texts, odd exceptions, copies of their own process."""

from pathlib import Path

import pytest

from support.cli import run_cli
from support.waiting import wait_until
from support.worker_bench import WorkerBench


def alive(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def bench(redis_server, processes):
    return WorkerBench(redis_server, processes)


class TestTexts:
    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_progress_with_a_lone_surrogate_is_stored_spelt_out_and_heartbeats_go_on(self, bench, isolate):
        process = bench.worker("naming_files", "--concurrency", "2", "--isolate", isolate)
        bench.put("one")
        bench.put("two")
        bench.heard("began", count=2)
        wait_until(lambda: bench.job("one").get("progress") == "caf\\udce9.txt", why="its progress is stored")
        before = bench.job("two")["heartbeat_at"]
        wait_until(lambda: bench.job("two")["heartbeat_at"] > before, why="its neighbour is renewed")
        for job in ("one", "two"):
            bench.go(job)
            bench.until_state(job, "done")
        assert "heartbeat_failed" not in process.output

    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_an_exception_text_with_a_lone_surrogate_fails_the_attempt_and_the_slot_goes_on(self, bench, isolate):
        bench.worker("failing_oddly", "--isolate", isolate)
        for job in ("one", "two"):
            bench.put(job)
            body = bench.until_state(job, "scheduled")
            assert body["error"].startswith("ValueError: no such file: caf\\udce9.txt\n")

    @pytest.mark.parametrize("isolate", ["thread", "process"])
    def test_an_exception_that_has_no_text_fails_its_attempt_under_the_name_of_its_type(self, bench, isolate):
        process = bench.worker("failing_without_words", "--isolate", isolate)
        for job in ("one", "two"):
            bench.put(job)
            body = bench.until_state(job, "scheduled")
            assert body["error"].startswith("Speechless\n")
            assert "in failing_without_words" in body["error"]
        assert process.returncode is None


class TestCopies:
    """Handlers that fork, and whose copy comes back."""

    @pytest.mark.parametrize("isolate", ["thread", "process"])
    @pytest.mark.parametrize("ending", ["return", "raise", "exit"])
    def test_a_copy_that_comes_back_is_ended_and_answers_for_no_job(self, bench, isolate, ending):
        process = bench.worker("forking", "--isolate", isolate)
        bench.put("one", ending)
        copy = bench.heard("began", "one")["pid"]
        bench.until_state("one", "done")
        bench.put("two", "fail")
        original = bench.heard("began", "two")["pid"]
        assert copy != original
        bench.go("one")
        wait_until(lambda: not alive(copy), why="the copy is gone")
        assert bench.job("two")["state"] == "active"
        bench.go("two")
        assert bench.until_state("two", "scheduled")["error"].startswith("ValueError: fail\n")
        assert alive(original)
        assert process.returncode is None
        assert bench.stats()["completed"] == 1


class TestModules:
    """What a handler's module may do while it is imported."""

    @pytest.mark.parametrize("isolate", ["thread", "process"])
    @pytest.mark.parametrize(
        ("code", "sentence"),
        [
            (
                "raise SystemExit(0)",
                "importing tasks ended the program (SystemExit: 0); put what is to run as a program",
            ),
            ("import sys; sys.exit()", "importing tasks ended the program (SystemExit); put what is to run"),
            (
                "raise SystemExit('use\\nme')",
                "importing tasks ended the program (SystemExit: use me); put what is to run",
            ),
            ("class Stop(BaseException): pass\nraise Stop('no')", "importing tasks failed: Stop: no"),
            ("from support.handlers import Speechless\nraise Speechless", "importing tasks failed: Speechless"),
        ],
    )
    def test_a_module_that_does_not_come_to_its_end_is_explained(self, bench, tmp_path, isolate, code, sentence):
        (tmp_path / "tasks.py").write_text(f"{code}\n")
        env = {"UNSTUCK_REDIS": bench.server.url}
        ran = run_cli("worker", "mail", "tasks:send", "--isolate", isolate, cwd=tmp_path, env=env)
        assert ran.code == 2
        assert f"handler 'tasks:send': {sentence}" in ran.stderr
        assert len(ran.stderr.splitlines()) == 1

    def test_a_module_that_ends_only_the_child_is_explained_in_the_log(self, bench, tmp_path):
        code = "import sys\nif 'unstuck.worker.child' in sys.argv[0].replace('/', '.'): sys.exit()\n"
        (tmp_path / "picky.py").write_text(code + "def send(payload, context): pass\n")
        process = bench.processes.unstuck(
            "worker",
            bench.name,
            "picky:send",
            "--isolate",
            "process",
            cwd=tmp_path,
            env={"UNSTUCK_REDIS": bench.server.url},
        )
        process.wait_for_output(r"not_ready .*importing picky ended the program \(SystemExit\)")
