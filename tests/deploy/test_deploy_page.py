"""Every command of docs/deploy.md is run here, or says that it needs an engine, or is run by the test that is named."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.compose import ROOT
from support.ports import free_port
from support.processes import Processes, child_env
from support.programs import program
from support.redis_server import RedisServer

PAGE = (ROOT / "docs/deploy.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MARKS = ("# needs a container engine", "# needs a cluster")
ELSEWHERE = {
    "pip install unstuck": "tests/packaging/test_wheel.py",
    "unstuck run --config unstuck.yaml": "test_the_agent_runs_with_the_pages_command",
    "python3 -m unstuck.healthcheck": "test_the_agent_runs_with_the_pages_command",
}


def commands() -> Iterator[str]:
    for block in BLOCKS:
        if not block.startswith(MARKS):
            yield from block.splitlines()


def environment(folder: Path) -> dict[str, str | None]:
    """The programs of this checkout, and no settings of the person who runs the tests."""
    return {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": None}


def test_the_page_shows_all_four_ways() -> None:
    assert [title for title in ("pip", "Container", "Compose", "Kubernetes") if f"\n## {title}\n" not in PAGE] == []


def test_its_commands_work_one_after_the_other(make_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    server = make_redis(appendonly=True, maxmemory="100mb")
    cli = tmp_path / "redis-cli"
    cli.write_text(f'#!/bin/sh\nexec {program("redis-cli", package="redis-server")} -p {server.port} "$@"\n')
    cli.chmod(0o755)
    (tmp_path / "unstuck.yaml").write_text(f"redis: {server.url}\n")
    for command in commands():
        if command in ELSEWHERE:
            continue
        here = command.replace(":6379", f":{server.port}")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", here],
            cwd=tmp_path,
            env=child_env(environment(tmp_path)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert "ERR" not in done.stdout, f"{command}\n{done.stdout}"
    assert "unstuck-reclaim" in server.client().execute_command("ACL", "USERS")


def test_the_agent_runs_with_the_pages_command(processes: Processes, redis_server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "unstuck.yaml").write_text(f"redis: {redis_server.url}\n")
    listen = f"127.0.0.1:{free_port()}"
    env = {**environment(tmp_path), "UNSTUCK_HTTP_LISTEN": listen}
    run, health = "unstuck run --config unstuck.yaml", "python3 -m unstuck.healthcheck"
    assert {run, health} <= set(commands())
    agent = processes.start("bash", "-c", f"exec {run}", env=env, cwd=tmp_path)
    agent.wait_for_output("agent_started", timeout=60)
    asked = subprocess.run(health.split(), env=child_env(env), capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", "")
    agent.freeze()
    asked = subprocess.run(health.split(), env=child_env(env), capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    assert asked.stderr.startswith(f"unstuck: http://{listen} does not answer")
    agent.thaw()
    agent.terminate()
    assert agent.wait(20) == 0
    asked = subprocess.run(health.split(), env=child_env(env), capture_output=True, text=True, check=False)
    assert asked.returncode == 1


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#]+)\)", PAGE))))
def test_what_it_links_to_is_there(path: str) -> None:
    assert (ROOT / "docs" / path).exists()


class TestTheDockerfile:
    def test_hadolint_has_nothing_to_say(self) -> None:
        done = subprocess.run(
            [Path(sys.executable).parent / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_it_uses_only_what_docker_and_an_old_buildah_both_take(self) -> None:
        text = (ROOT / "Dockerfile").read_text()
        assert not re.search(r"<<-?[\"']?EOF|--link|^# syntax=", text, re.MULTILINE)

    def test_everything_that_it_copies_is_let_in_by_dockerignore_and_nothing_else(self) -> None:
        copied = set()
        for words in re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
            copied |= set(words.split()[:-1])
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        assert {line[1:] for line in ignored if line.startswith("!")} == copied
        assert ignored[1] == "*"
        for name in copied:
            assert (ROOT / name).exists(), name

    def test_the_wheel_needs_nothing_that_is_not_copied(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        needed = {project["project"]["readme"], *project["project"]["license-files"]}
        needed |= {path.split("/")[0] for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
        needed |= set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"])
        let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
        assert needed - let_in == set()
