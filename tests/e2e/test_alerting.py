"""The whole way of an alert with the real programs: workers are killed, Prometheus, Alertmanager and a receiver tell of it,
the jobs are rescued, and the receiver hears that it is over. Then the same without Prometheus, by the agent itself.
"""

import json
import re
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.hooks import Hooks, Post, receiving
from support.ports import free_port
from support.processes import Process, Processes
from support.programs import alertmanager_program, prometheus_program
from support.promtool import ALERTS
from support.redis_server import RedisServer
from support.waiting import wait_until
from unstuck.protocol import Queue
from unstuck_exporters.rules import rendered

QUICK = """
sweep_interval: 500ms
heartbeat_interval: 1s
lock_ttl: 4s
stuck_after: 4s
abort_after: 3s
gone_after: 1s
confirm_after: 2s
leader: {lease: 3s}
"""
WORKER = ("--heartbeat-interval", "1s", "--lock-ttl", "4s", "--abort-after", "3s")


def ask(address: str, query: str) -> list[dict[str, Any]]:
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return list(json.loads(answer.read())["data"]["result"])
    except OSError:
        return []


def short_rules() -> str:
    """Our rules with short waits. An agent that is restarted is not down, and its series may be gone for a while."""
    text = rendered("rules", {"gap": "10s"})
    text = re.sub(r"keep_firing_for: \w+", "keep_firing_for: 20s", text)
    head, *rest = re.split(r"(?=- alert: )", text)
    return head + "".join(
        part
        if re.match(r"- alert: Unstuck(AgentDown|NoLeader|GateClosed)", part)
        else re.sub(r"(?<=\n        for: )\w+", "3s", part)
        for part in rest
    )


def quick_alertmanager(address: str) -> str:
    """Our configuration with short waits, and with receivers that are there."""
    config = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    for receiver in config["receivers"]:
        for hook in receiver["webhook_configs"]:
            hook["url"] = f"{address}/{receiver['name']}"
    return yaml.safe_dump(config)


class Stage:
    """Everything that a small installation has."""

    def __init__(self, processes: Processes, redis: RedisServer, client: Any, folder: Path, hooks: Hooks) -> None:
        self.processes, self.redis, self.folder, self.hooks = processes, redis, folder, hooks
        self.queue = Queue(client, "mail")
        self.agent_port, self.prometheus_port, alertmanager_port = free_port(), free_port(), free_port()
        self.prometheus = f"http://127.0.0.1:{self.prometheus_port}"
        (folder / "rules.yml").write_text(short_rules())
        (folder / "alertmanager.yml").write_text(quick_alertmanager(hooks.url))
        (folder / "prometheus.yml").write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(folder / "rules.yml")],
                    "alerting": {
                        "alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}]
                    },
                    "scrape_configs": [
                        {
                            "job_name": "unstuck",
                            "static_configs": [{"targets": [f"127.0.0.1:{self.agent_port}"]}],
                        }
                    ],
                }
            )
        )
        processes.start(
            alertmanager_program(),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{alertmanager_port}",
            "--cluster.listen-address=",
        )
        processes.start(
            prometheus_program(),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
        )

    def agent(self, mode: str, more: str = "") -> Process:
        config = self.folder / f"{mode}.yaml"
        config.write_text(f"mode: {mode}\n{QUICK}{more}")
        agent = self.processes.unstuck(
            *("run", "--config", config, "--redis", self.redis.url),
            *("--http-listen", f"127.0.0.1:{self.agent_port}"),
        )
        agent.wait_for_output("gate_opened", timeout=90)
        return agent

    def worker(self, handler: str) -> Process:
        return self.processes.unstuck(
            *("worker", "mail", f"support.handlers:{handler}", *WORKER),
            env={"UNSTUCK_REDIS": self.redis.url, "HANDLER_REDIS": self.redis.url},
        )

    def states(self, jobs: list[str]) -> list[str]:
        return [self.queue.show(job)["state"] for job in jobs]

    def was(self, alert: str, state: str) -> bool:
        told = f'max_over_time(ALERTS{{alertname="{alert}",alertstate="{state}",queue="mail"}}[10m]) == 1'
        return bool(ask(self.prometheus, told))


def about(post: Post, alert: str, status: str) -> bool:
    return any((one["labels"]["alertname"], one["status"]) == (alert, status) for one in post.json()["alerts"])


@pytest.mark.timeout(600)
def test_killed_workers_are_told_of_and_their_rescue_too(
    processes: Processes, redis_server: RedisServer, redis_client: Any, tmp_path: Path
) -> None:
    with receiving() as hooks:
        stage = Stage(processes, redis_server, redis_client, tmp_path, hooks)
        observer = stage.agent("observe")
        workers = [stage.worker("deaf") for _ in range(3)]
        jobs = [stage.queue.enqueue({"to": "ada"}).id for _ in range(3)]
        wait_until(lambda: stage.states(jobs) == ["active"] * 3, 90, "three workers have taken the jobs")
        for worker in workers:
            worker.kill_tree()

        wait_until(lambda: stage.was("UnstuckStuckJobs", "pending"), 90, "the alert to be pending")
        wait_until(lambda: stage.was("UnstuckStuckJobs", "firing"), 90, "the alert to fire")
        told = hooks.wait_for(lambda post: about(post, "UnstuckStuckJobs", "firing"), 90, "the receiver hears of it")
        assert told.path == "/unstuck-chat"
        (alert,) = (one for one in told.json()["alerts"] if one["labels"]["alertname"] == "UnstuckStuckJobs")
        assert alert["labels"]["queue"] == "mail"
        assert re.match(r"Stuck jobs of unstuck/mail: [123]\.", alert["annotations"]["description"])
        assert stage.states(jobs) == ["active"] * 3, "an agent that observes moves nothing"
        assert not any(about(post, "UnstuckStuckJobs", "resolved") for post in hooks.posts)

        observer.terminate()
        observer.wait(60)
        rescuer = stage.agent("reclaim")
        rescuer.wait_for_output("requeued", timeout=90)
        stage.worker("quick")
        wait_until(lambda: stage.states(jobs) == ["done"] * 3, 90, "the jobs are rescued and done")
        hooks.wait_for(lambda post: about(post, "UnstuckStuckJobs", "resolved"), 120, "the receiver hears the end")


@pytest.mark.timeout(600)
def test_the_agent_tells_by_itself_of_killed_workers_and_of_a_redis_that_is_away(
    processes: Processes, redis_server: RedisServer, redis_client: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    with receiving() as hooks:
        stage = Stage(processes, redis_server, redis_client, tmp_path, hooks)
        more = f"""
alarms: {{stuck_for: 0s, redis_away_for: 2s}}
webhooks: [{{url: "{hooks.url}/direct", secret_file: "{secret}", group_interval: 1s}}]
"""
        stage.agent("reclaim", more)
        worker = stage.worker("deaf")
        job = stage.queue.enqueue({"card": "4111-1111"}).id
        wait_until(lambda: stage.states([job]) == ["active"], 90, "the worker has taken the job")
        worker.kill_tree()

        def direct(rule: str, status: str) -> Post:
            def matches(post: Post) -> bool:
                if post.path != "/direct":
                    return False
                return any((one["rule"], one["status"]) == (rule, status) for one in post.json()["alarms"])

            return hooks.wait_for(matches, 90, f"the agent tells that {rule} is {status}")

        told = direct("stuck_jobs", "firing")
        assert told.headers["webhook-signature"].startswith("v1,")
        assert [one["job"] for one in told.json()["alarms"][0]["jobs"]] == [job]
        direct("stuck_jobs", "resolved")
        assert stage.states([job]) == ["pending"]
        redis_server.stop()
        direct("redis_away", "firing")
        redis_server.start()
        direct("redis_away", "resolved")
        assert not any(b"4111" in post.body for post in hooks.posts)
