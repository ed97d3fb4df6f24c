"""The main job on real input: a real RQ worker is killed, parent and horse, and `unstuck run` puts its job back, once."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import redis

from support.cli import run_cli
from support.ports import free_port
from support.processes import Process, Processes
from support.redis_server import RedisServer
from support.rq_jobs import gated
from support.waiting import wait_until

QUICK = """
mode: observe
sweep_interval: 500ms
heartbeat_interval: 1s
stuck_after: 3s
abort_after: 2s
gone_after: 1s
confirm_after: 1s
queues:
  - {backend: rq, queue: jobs, mode: MODE, stuck_after: 90s, sweep_interval: 500ms}
"""


def start_agent(processes: Processes, folder: Path, url: str, mode: str) -> tuple[Process, str]:
    config = folder / "unstuck.yaml"
    config.write_text(QUICK.replace("MODE", mode))
    port = free_port()
    agent = processes.unstuck("run", "--config", config, "--redis", url, "--http-listen", f"127.0.0.1:{port}")
    agent.wait_for_output("gate_opened", timeout=60)
    return agent, f"http://127.0.0.1:{port}"


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def sample(page: str, name: str, **labels: str) -> float:
    for line in page.splitlines():
        if line.startswith(name + "{") and all(f'{label}="{value}"' in line for label, value in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no sample {name} {labels}")


def run_a_job(processes: Processes, url: str, client: "redis.Redis[str]", job: str, name: str) -> tuple[str, Process]:
    import rq

    raw = redis.Redis.from_url(url)
    job_id = rq.Queue("jobs", connection=raw).enqueue(gated, url, job, job_timeout=600).id
    raw.close()
    worker = processes.python("-m", "support.rq_jobs", url, "jobs", "--name", name, "--beat", "5")
    wait_until(lambda: client.get(f"ran:{job}") == "1", 30, "the RQ worker to begin the job")
    return job_id, worker


def test_in_mode_reclaim_the_job_of_a_killed_rq_worker_comes_back_once_and_a_fresh_worker_finishes_it(
    processes: Processes, redis_server: RedisServer, redis_client: "redis.Redis[str]", tmp_path: Path
) -> None:
    url = redis_server.url
    job_id, worker = run_a_job(processes, url, redis_client, "one", "first")
    agent, page = start_agent(processes, tmp_path, url, "reclaim")
    worker.kill_tree()
    wait_until(lambda: redis_client.lrange("rq:queue:jobs", 0, -1) == [job_id], 60, "the job to be back in its queue")
    wait_until(
        lambda: (
            sample(read(f"{page}/metrics"), "unstuck_reclaims_total", backend="rq", action="requeued") >= 0
            and 'action="requeued",reason="worker_gone"} 1' in read(f"{page}/metrics")
        ),
        30,
        "the metric to show the rescue",
    )
    redis_client.set("gate:one", "1")
    processes.python("-m", "support.rq_jobs", url, "jobs", "--name", "second")
    wait_until(lambda: redis_client.get("ended:one") == "1", 60, "a fresh worker to finish the job")
    wait_until(lambda: redis_client.hget(f"rq:job:{job_id}", "status") == "finished", 30, "RQ to say so")
    assert redis_client.get("ran:one") == "2"
    assert redis_client.llen("rq:queue:jobs") == 0
    assert redis_client.zcard("rq:wip:jobs") == 0
    agent.terminate()
    assert agent.wait() == 0
    log = agent.output
    assert log.count(" requeued ") == 1
    assert f"job={job_id}" in log
    assert "reason=worker_gone" in log


def test_in_mode_observe_it_is_reported_with_reason_and_evidence_and_nothing_of_rq_is_written(
    processes: Processes, redis_server: RedisServer, redis_client: "redis.Redis[str]", tmp_path: Path
) -> None:
    url = redis_server.url
    job_id, worker = run_a_job(processes, url, redis_client, "two", "first")
    _, page = start_agent(processes, tmp_path, url, "observe")
    worker.kill_tree()

    def theirs() -> dict[str, object]:
        raw = redis.Redis.from_url(url)
        keys = sorted(key for key in raw.scan_iter() if key.startswith(b"rq:"))
        lasting = [key for key in keys if raw.ttl(key) == -1]
        found = {key.decode(): raw.dump(key) for key in lasting}
        raw.close()
        return found

    before = theirs()
    wait_until(
        lambda: 'unstuck_stuck_jobs{backend="rq",queue="jobs",reason="worker_gone"} 1' in read(f"{page}/metrics"),
        60,
        "the metric to show the stuck job",
    )
    wait_until(
        lambda: (
            'unstuck_reclaims_skipped_total{backend="rq",queue="jobs",cause="dry_run"} 0' not in read(f"{page}/metrics")
        ),
        30,
        "the agent to say that it left it alone",
    )
    status = json.loads(read(f"{page}/api/v1/status"))
    (finding,) = [one for one in status["findings"] if one["job"] == job_id]
    assert finding["verdict"] == "stuck"
    assert finding["reason"] == "worker_gone"
    assert finding["worker"] == "first"
    assert finding["evidence"]
    assert theirs() == before


def test_inspect_tells_a_stranger_which_job_is_stuck_and_why(
    processes: Processes, redis_server: RedisServer, redis_client: "redis.Redis[str]"
) -> None:
    job_id, worker = run_a_job(processes, redis_server.url, redis_client, "three", "first")
    worker.kill_tree()
    told = run_cli("inspect", "--redis", redis_server.url, "--json", "--window", "2s")
    assert told.code == 0, told.stderr
    document = told.json()
    (finding,) = [one for one in document["findings"] if one["job"] == job_id]
    assert (finding["backend"], finding["queue"], finding["verdict"]) == ("rq", "jobs", "stuck")
    assert finding["reason"] == "worker_gone"
    (row,) = document["queues"]
    assert row["stuck"] == 1
    assert row["running"] == 1


def test_the_agent_starts_while_redis_is_away_and_works_once_it_comes(
    processes: Processes, make_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = make_redis()
    server.stop()
    port = free_port()
    agent = processes.unstuck(
        "run", "--redis", server.url, "--http-listen", f"127.0.0.1:{port}", "--leader-lease", "2s"
    )
    agent.wait_for_output("redis_trouble", timeout=60)
    assert read(f"http://127.0.0.1:{port}/healthz")
    assert "unstuck_redis_up{" in read(f"http://127.0.0.1:{port}/metrics")
    server.start()
    agent.wait_for_output("leader_acquired", timeout=60)
    wait_until(
        lambda: 'unstuck_redis_up{source="default"} 1' in read(f"http://127.0.0.1:{port}/metrics"),
        60,
        "the metric to say that Redis is there",
    )
    agent.terminate()
    assert agent.wait() == 0
