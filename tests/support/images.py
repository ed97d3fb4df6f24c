"""The image that `make test-image` built, and containers of it, with podman on the store that it was built into."""

import json
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

from support.waiting import wait_until

IMAGE = os.environ.get("UNSTUCK_TEST_IMAGE", "")
STORE = Path(os.environ.get("UNSTUCK_IMAGE_STORE", "/var/cache/unstuck-image"))
# What lets podman run as root where systemd and cgroups are somebody else's.
PODMAN = ("podman", "--runtime", "/usr/sbin/runc", "--cgroup-manager=cgroupfs")
LIMITS = ("--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
# A read-only root, no writable home, and no /tmp unless a test asks for one.
READ_ONLY = ("--no-healthcheck", "--read-only", "--read-only-tmpfs=false")

Done = subprocess.CompletedProcess[str]


def podman(*words: str | Path, check: bool = True, timeout: float = 240) -> Done:
    """Run podman on the store that the image was built into."""
    done = subprocess.run(
        [*PODMAN, *(str(word) for word in words)],
        env={**os.environ, "CONTAINERS_STORAGE_CONF": str(STORE / "storage.conf")},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert not check or done.returncode == 0, f"podman {' '.join(map(str, words))}:\n{done.stdout}{done.stderr}"
    return done


class Container:
    """A running container of the image, with a read-only root and nothing writable but what is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(podman("inspect", self.name).stdout)[0]["State"]
        return found

    @property
    def log(self) -> str:
        done = podman("logs", self.name)
        return done.stdout + done.stderr

    def wait_for_log(self, text: str, timeout: float = 60) -> None:
        wait_until(lambda: text in self.log, timeout, f"the container says {text!r}")

    def run(self, *words: str, check: bool = True) -> Done:
        """Run a program in it, without a shell."""
        return podman("exec", self.name, *words, check=check)


class Containers:
    """Starts containers, and removes them again."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def run(self, *command: str, options: tuple[str, ...] = (), timeout: float = 120) -> Done:
        """Run the image to its end: status and output."""
        name = self._name()
        words = ("run", "--rm", "--name", name, *READ_ONLY, *LIMITS)
        return podman(*words, *options, IMAGE, *command, check=False, timeout=timeout)

    def start(self, *command: str, options: tuple[str, ...] = ()) -> Container:
        """Run the image in the background."""
        name = self._name()
        words = ("run", "--detach", "--name", name, *READ_ONLY, *LIMITS)
        podman(*words, *options, IMAGE, *command)
        return Container(name)

    def _name(self) -> str:
        self._names.append(f"unstuck-test-{uuid.uuid4().hex[:12]}")
        return self._names[-1]

    def close(self) -> None:
        for name in self._names:
            podman("rm", "--force", "--time", "0", "--ignore", name)
