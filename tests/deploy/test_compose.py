"""The compose file: valid, at one with the files that it mounts, and alive.

The last test starts the same processes from these very files, Grafana excepted, kills a worker, and sees the rescue
arrive at the receiver.
"""

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from support.compose import ROOT, Compose, Stage
from support.processes import Processes
from support.waiting import wait_until
from unstuck.config import load

BIN = Path(sys.executable).parent
COMPOSE = Compose()
MOUNTS = [mount for service in COMPOSE.services for mount in COMPOSE.mounts(service)]
FILES = [mount for mount in MOUNTS if mount.source is not None]


def source(target: str) -> Path:
    """The file behind a path in a container."""
    (found,) = {mount.source for mount in FILES if mount.target == target}
    assert found is not None
    return found


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def listening(service: str) -> set[int]:
    """The ports on which a service listens, by its command, its environment or its image's."""
    entry = COMPOSE.services[service]
    words = [str(word) for word in [*entry.get("entrypoint", []), *entry.get("command", [])]]
    if service == "redis":
        return {int(words[words.index("--port") + 1])}
    if service == "receiver":
        return {int(words[-1])}
    if service == "grafana":
        return {int(entry["environment"]["GF_SERVER_HTTP_PORT"])}
    if words[:1] == ["run"]:
        return {int(COMPOSE.image_environment()["UNSTUCK_HTTP_LISTEN"].rpartition(":")[2])}
    return {int(port) for word in words for port in re.findall(r"^--web\.listen-address=\S*:(\d+)$", word)}


def ports_of(house: str) -> set[int]:
    """The ports that can be reached under a host name."""
    return {port for name in COMPOSE.services if COMPOSE.house(name) == house for port in listening(name)}


class TestTheFile:
    def test_it_is_valid_by_the_compose_schema(self):
        done = subprocess.run(
            [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE.path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_every_yaml_file_of_the_folder_is_tidy(self):
        done = subprocess.run(
            [BIN / "yamllint", "--strict", "--config-file", ROOT / "deploy/.yamllint", ROOT / "deploy"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_every_named_volume_and_network_is_declared_and_used(self):
        named = {mount.volume for mount in MOUNTS if mount.source is None}
        assert named == set(COMPOSE.document["volumes"])
        used = {name for entry in COMPOSE.services.values() for name in entry.get("networks", [])}
        assert used == set(COMPOSE.document["networks"])

    def test_every_service_has_a_health_or_says_why_not_and_waits_only_for_those_that_have_one(self):
        for name, entry in COMPOSE.services.items():
            own_image = entry["image"] == "unstuck" and "entrypoint" not in entry
            assert "healthcheck" in entry or own_image, name
            for other, condition in entry.get("depends_on", {}).items():
                if condition["condition"] == "service_healthy":
                    assert COMPOSE.services[other].get("healthcheck") != {"disable": True}, f"{name} waits for {other}"

    def test_nothing_is_published_beyond_this_machine_and_redis_not_at_all(self):
        for name, entry in COMPOSE.services.items():
            for published in entry.get("ports", []):
                host, _, inside = published.split(":")
                assert host == "127.0.0.1", name
                assert int(inside) in listening(name), name
        assert "ports" not in COMPOSE.services["redis"]
        assert COMPOSE.document["networks"]["inside"]["internal"] is True

    def test_no_password_stands_in_it_and_grafana_has_no_account_to_guess(self):
        text = COMPOSE.path.read_text()
        assert not re.search(r"PASSWORD|requirepass|SECRET(?!URITY)", text)
        grafana = COMPOSE.services["grafana"]["environment"]
        assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
        assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
        assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"

    def test_redis_keeps_what_it_has_and_throws_nothing_away(self):
        words = COMPOSE.services["redis"]["command"]
        assert words[words.index("--appendonly") + 1] == "yes"
        assert words[words.index("--maxmemory-policy") + 1] == "noeviction"

    def test_what_is_ours_runs_without_rights_on_a_read_only_root(self):
        for name, entry in COMPOSE.services.items():
            if entry["image"] == "unstuck":
                assert entry["read_only"] is True, name
                assert entry["cap_drop"] == ["ALL"], name


class TestItsFiles:
    @pytest.mark.parametrize("mount", FILES, ids=lambda mount: f"{mount.service} {mount.target}")
    def test_what_is_mounted_exists_inside_the_repository_and_is_read_only(self, mount):
        assert mount.source.is_relative_to(ROOT)
        assert mount.source.exists(), f"{mount.source.relative_to(ROOT)} is mounted by {mount.service} and missing"
        assert not mount.source.is_dir() or any(mount.source.rglob("*.*")), f"{mount.source.relative_to(ROOT)} is empty"
        assert mount.read_only

    def test_the_configuration_is_one_that_the_program_takes(self):
        settings = load(source("/etc/unstuck/unstuck.yaml"), COMPOSE.services["agent-1"]["environment"])
        assert settings.mode.value == "reclaim"
        assert str(settings.address) == "redis://redis:6379/0"
        assert COMPOSE.services["agent-1"]["environment"]["UNSTUCK_CONFIG"] == "/etc/unstuck/unstuck.yaml"

    def test_agents_and_workers_share_one_configuration_and_one_redis(self):
        ours = [entry for entry in COMPOSE.services.values() if entry["image"] == "unstuck" and "environment" in entry]
        assert len({json.dumps(entry["environment"], sort_keys=True) for entry in ours}) == 1
        assert sum(entry.get("command", [""])[0] == "worker" for entry in ours) == 3
        assert sum(entry.get("command", [""])[0] == "run" for entry in ours) == 2

    def test_prometheus_scrapes_every_agent_under_the_job_that_the_rules_ask_for(self):
        prometheus = document(source("/etc/prometheus/prometheus.yml"))
        (scrape,) = prometheus["scrape_configs"]
        targets = [target for group in scrape["static_configs"] for target in group["targets"]]
        agents = {name for name, entry in COMPOSE.services.items() if entry.get("command") == ["run"]}
        assert {target.partition(":")[0] for target in targets} == agents
        for rules in (mount.source for mount in FILES if mount.target.startswith("/etc/prometheus/rules/")):
            assert set(re.findall(r'\bjob="([^"]+)"', rules.read_text())) == {scrape["job_name"]}, rules

    def test_prometheus_loads_the_shipped_rules_from_where_they_are_mounted(self):
        prometheus = document(source("/etc/prometheus/prometheus.yml"))
        (pattern,) = prometheus["rule_files"]
        mounted = {mount.target: mount.source for mount in FILES if Path(mount.target).match(pattern)}
        assert ROOT / "alerts/rules.yml" in mounted.values()
        assert ROOT / "deploy/rescues.yml" in mounted.values()

    def test_alertmanager_is_the_shipped_one_and_prometheus_finds_it(self):
        assert source("/etc/alertmanager/alertmanager.yml") == ROOT / "alerts/alertmanager.yml"
        prometheus = document(source("/etc/prometheus/prometheus.yml"))
        (group,) = prometheus["alerting"]["alertmanagers"]
        assert group["static_configs"] == [{"targets": [f"alertmanager:{min(listening('alertmanager'))}"]}]

    def test_every_receiver_that_alertmanager_posts_to_is_there(self):
        urls = re.findall(
            r"^\s*(?:- )?url: (\S+)$", source("/etc/alertmanager/alertmanager.yml").read_text(), re.MULTILINE
        )
        assert urls
        for url in urls:
            parts = urllib.parse.urlsplit(url)
            house = "alertmanager" if parts.hostname == "127.0.0.1" else parts.hostname
            assert parts.port in ports_of(house) - listening("alertmanager"), url

    def test_every_host_and_port_that_a_file_names_is_a_service_that_listens_there(self):
        own = [
            mount.source for mount in FILES if mount.source.is_file() and mount.source.is_relative_to(ROOT / "deploy")
        ]
        pattern = rf"(?<![\w.-])({'|'.join(COMPOSE.services)}):(\d+)"
        found = 0
        for path in {COMPOSE.path, *own}:
            text = re.sub(r"^\s*image: .*$", "", path.read_text(), flags=re.MULTILINE)
            for house, port in re.findall(pattern, text):
                assert int(port) in ports_of(house), f"{path.name}: {house}:{port}"
                found += 1
        assert found >= 4

    def test_grafana_reads_prometheus_and_finds_its_dashboards(self):
        folder = source("/etc/grafana/provisioning")
        sources = [one for path in folder.glob("datasources/*.y*ml") for one in document(path)["datasources"]]
        assert [one["url"] for one in sources] == [f"http://prometheus:{min(listening('prometheus'))}"]
        providers = [one for path in folder.glob("dashboards/*.y*ml") for one in document(path)["providers"]]
        targets = {mount.target for mount in COMPOSE.mounts("grafana")}
        assert providers
        for provider in providers:
            assert provider["options"]["path"] in targets
        assert list(source("/var/lib/grafana/dashboards").glob("*.json"))

    def test_the_dashboards_use_the_data_source_that_is_provisioned(self):
        folder = source("/etc/grafana/provisioning")
        uids = {one.get("uid") for path in folder.glob("datasources/*.y*ml") for one in document(path)["datasources"]}
        for path in source("/var/lib/grafana/dashboards").glob("*.json"):
            named = set(re.findall(r'"uid":\s*"(\$\{[^"]+\}|[^"]+)",\s*"type":\s*"prometheus"', path.read_text()))
            named |= set(re.findall(r'"type":\s*"prometheus",\s*"uid":\s*"([^"]+)"', path.read_text()))
            assert {uid for uid in named if not uid.startswith("$")} <= uids, path.name


def ask(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read() or b"null")
    except OSError:
        return None


@pytest.mark.timeout(400)
def test_the_same_processes_show_a_killed_workers_rescue_at_the_receiver(processes: Processes, tmp_path: Path) -> None:
    stage = Stage(COMPOSE, processes, tmp_path)
    stage.start("redis")
    client: Any = redis.Redis(host=stage.address("redis"), port=6379, decode_responses=True)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False

    wait_until(answers, 30, "Redis to answer")
    receiver = stage.start("receiver")
    stage.start("alertmanager")
    agents = [stage.start(name) for name in ("agent-1", "agent-2")]
    workers = [stage.start(name) for name in ("worker-1", "worker-2", "worker-3")]
    stage.start("load")
    stage.start("prometheus")
    for agent in agents:
        agent.wait_for_output("agent_started", timeout=60)
    prometheus = f"http://{stage.address('prometheus')}:9090"

    def value(query: str) -> float:
        found = ask(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
        result = found["data"]["result"] if found else []
        return float(result[0]["value"][1]) if result else 0.0

    wait_until(lambda: value('sum(up{job="unstuck"})') == len(agents), 90, "Prometheus to scrape both agents")
    wait_until(lambda: value("sum(unstuck_leader)") == 1, 60, "one of them to lead")
    assert {group["name"] for group in ask(f"{prometheus}/api/v1/rules")["data"]["groups"]} > {"rescues"}
    wait_until(lambda: any("gate_opened" in agent.output for agent in agents), 90, "the leader's gate to open")
    # One that is in the middle of something.
    victim = wait_until(
        lambda: next((one for one in workers if holds(client, one.pid)), None), 60, "a worker to be busy"
    )
    victim.kill()
    wait_until(lambda: any("requeued" in agent.output for agent in agents), 90, "an agent to put its jobs back")
    receiver.wait_for_output(r"^/\w+ firing JobsRescued mail: Jobs of a dead worker were put back\.", timeout=150)


def holds(client: Any, pid: int) -> bool:
    return any(f":{pid}:" in key for key in client.scan_iter(match="unstuck:{mail}:held:*"))
