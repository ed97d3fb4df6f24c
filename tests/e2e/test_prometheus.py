"""A real Prometheus scrapes a real agent while a worker of ours is killed, and shows the stuck job and its rescue."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from support.ports import free_port
from support.processes import Processes
from support.programs import prometheus_program
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Lease, Queue, Terms

AGENT = """
mode: reclaim
sweep_interval: 500ms
heartbeat_interval: 1s
lock_ttl: 4s
stuck_after: 4s
abort_after: 3s
gone_after: 1s
confirm_after: 3s
"""
SCRAPE = """
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: unstuck, static_configs: [{targets: ["127.0.0.1:PORT"]}]}
"""


def ask(prometheus: str, query: str) -> list[dict[str, Any]]:
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return list(json.loads(answer.read())["data"]["result"])
    except OSError:
        return []


def test_prometheus_shows_a_stuck_job_and_then_its_rescue(
    processes: Processes, redis_server: RedisServer, redis_client: Any, tmp_path: Path
) -> None:
    agent_port, port = free_port(), free_port()
    (tmp_path / "unstuck.yaml").write_text(AGENT)
    (tmp_path / "prometheus.yml").write_text(SCRAPE.replace("PORT", str(agent_port)))
    agent = processes.unstuck(
        *("run", "--config", tmp_path / "unstuck.yaml", "--redis", redis_server.url),
        *("--http-listen", f"127.0.0.1:{agent_port}"),
    )
    processes.start(
        prometheus_program(),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    prometheus = f"http://127.0.0.1:{port}"
    agent.wait_for_output("gate_opened", timeout=60)
    wait_until(lambda: ask(prometheus, 'up{job="unstuck"} == 1'), 60, "Prometheus to scrape the agent")
    queue = Queue(redis_client, "mail")
    job = queue.enqueue({"to": "ada"}).id
    lease = queue.claim("host:1:deadbeef", "0", Terms(lock_ttl_ms=4000, heartbeat_ms=1000, abort_after_ms=3000))
    assert isinstance(lease, Lease)  # and nobody ever beats for it
    wait_until(
        lambda: ask(prometheus, 'max_over_time(unstuck_stuck_jobs{backend="unstuck",queue="mail"}[5m]) == 1'),
        90,
        "Prometheus to show the stuck job",
    )
    wait_until(
        lambda: ask(prometheus, 'unstuck_reclaims_total{backend="unstuck",queue="mail",action="requeued"} == 1'),
        90,
        "Prometheus to show its rescue",
    )
    assert queue.show(job)["state"] == "pending"
    assert queue.show(job)["rescues"] == "1"
