"""The services of a compose file as processes of this machine: each gets a loopback address of its own and keeps its ports.

What the containers' engine does is done here by text: a host name becomes the service's address, `0.0.0.0` the address of
the service itself, a mounted file a copy under the service's own folder. So the files that are tested are the shipped ones.
"""

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.processes import Process, Processes
from support.programs import alertmanager_program, prometheus_program, redis_server_program

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "compose.yaml"


@dataclass(frozen=True, slots=True)
class Mount:
    """One entry of `volumes`; `source` is None for a named volume."""

    service: str
    volume: str
    target: str
    read_only: bool
    source: Path | None


class Compose:
    """A compose file, read."""

    def __init__(self, path: Path = FILE) -> None:
        self.path = path
        self.document: dict[str, Any] = yaml.safe_load(path.read_text())
        self.services: dict[str, dict[str, Any]] = self.document["services"]

    def mounts(self, service: str) -> Iterator[Mount]:
        """The mounts of a service, in order."""
        for entry in self.services[service].get("volumes", []):
            source, target, *mode = entry.split(":")
            path = (self.path.parent / source).resolve() if source.startswith(".") else None
            yield Mount(service, source, target, "ro" in mode, path)

    def house(self, service: str) -> str:
        """The service whose network a service lives in; usually its own."""
        mode = str(self.services[service].get("network_mode", ""))
        return mode.removeprefix("service:") if mode.startswith("service:") else service

    def image_environment(self) -> dict[str, str]:
        """What the Dockerfile sets for the program: the variables of unstuck."""
        return dict(re.findall(r"\b(UNSTUCK_[A-Z_]+)=(\S+)", (ROOT / "Dockerfile").read_text()))


class Stage:
    """Starts services of a compose file, each in a folder of its own."""

    def __init__(self, compose: Compose, processes: Processes, folder: Path) -> None:
        self.compose, self.processes, self.folder = compose, processes, folder
        chance = random.SystemRandom()
        self._net = f"127.{chance.randrange(16, 250)}.{chance.randrange(1, 250)}"
        self._names = list(compose.services)

    def address(self, service: str) -> str:
        """The loopback address of a service."""
        return f"{self._net}.{self._names.index(self.compose.house(service)) + 10}"

    def start(self, service: str) -> Process:
        """Start one service as its entry says."""
        entry = self.compose.services[service]
        home = self.folder / service
        mounts = list(self.compose.mounts(service))
        for mount in mounts:
            inside = home / mount.target.lstrip("/")
            if mount.source is None:
                inside.mkdir(parents=True, exist_ok=True)
            else:
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.write_text(self._local(service, mount.source.read_text(), home, mounts))
        program = self._program(entry)
        words = [str(word) for word in [*entry.get("entrypoint", []), *entry.get("command", [])]]
        if words and words[0] in ("redis-server", "python3"):
            words.pop(0)  # the image's own program, which is ours here
        words = [self._local(service, word, home, mounts) for word in words]
        ours = self.compose.image_environment() if entry["image"] == "unstuck" else {}
        given = {**ours, **entry.get("environment", {})}
        environment = {name: self._local(service, str(value), home, mounts) for name, value in given.items()}
        (home / "app").mkdir(parents=True, exist_ok=True)
        return self.processes.start(*program, *words, env=environment, cwd=home / "app")

    def _program(self, entry: dict[str, Any]) -> list[str | Path]:
        image = str(entry["image"]).split(":")[0]
        if image == "unstuck":
            return [sys.executable, *(() if "entrypoint" in entry else ("-m", "unstuck"))]
        if image == "redis":
            return [redis_server_program()]
        return [{"prom/prometheus": prometheus_program, "prom/alertmanager": alertmanager_program}[image]()]

    def _local(self, service: str, text: str, home: Path, mounts: list[Mount]) -> str:
        """The text with addresses and paths of the containers made those of this machine."""
        roots = {f"/{mount.target.split('/')[1]}/" for mount in mounts} | {mount.target for mount in mounts}
        for root in sorted(roots, key=len, reverse=True):
            text = re.sub(rf"(?<![\w./-]){re.escape(root)}(?=[\w*]|$|[\s\"'])", f"{home}{root}", text)
        for name in self._names:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}:(?=\d)", f"{self.address(name)}:", text)
        if service in ("alertmanager", "receiver"):
            text = text.replace("127.0.0.1", self.address(service))
        return text.replace("0.0.0.0", self.address(service))
