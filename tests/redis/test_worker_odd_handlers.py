"""Handlers that do what nobody expects: odd texts, odd exceptions, copies of their own process."""

from pathlib import Path

import pytest

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
