"""The built wheel is what people install, so it is built, looked into, and installed beside PyPI's `watchdog`."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.processes import child_env

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel of this checkout, built with the pinned backend of this environment."""
    folder = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_its_top_level_is_exactly_the_two_packages(names):
    tops = {name.split("/")[0] for name in names}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops == {"unstuck", "unstuck_exporters", info}


def test_it_has_every_file_of_the_two_packages(names):
    for root, package in (("watchdog", "unstuck"), ("exporters", "unstuck_exporters")):
        here = {
            path.relative_to(ROOT / root).as_posix()
            for path in (ROOT / root / package).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        assert here - names == set()


def test_it_has_the_scripts_the_alerts_and_the_dashboards(names):
    assert any(re.fullmatch(r"unstuck/protocol/lua/\w+\.lua", name) for name in names)
    for folder in ("alerts", "grafana"):
        assert f"unstuck/{folder}/README.md" in names
    assert not any(name.endswith((".pyc", ".log", ".rdb")) for name in names)


def test_it_carries_the_licence_and_the_command(wheel):
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            name.split(".dist-info/")[-1]: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/" in name
        }
    assert "unstuck = unstuck.cli:main" in texts["entry_points.txt"]
    assert "License-Expression: Apache-2.0" in texts["METADATA"]
    assert "Apache License" in texts["licenses/LICENSE"]


@pytest.fixture(scope="module")
def neighbours(wheel, tmp_path_factory) -> Path:
    """The Python of a fresh environment that has the wheel and PyPI's `watchdog`; our dependencies are this one's."""
    folder = tmp_path_factory.mktemp("neighbours")
    python = folder / "bin" / "python"
    # Our dependencies come from the environment of the tests, through a .pth file: only the two that must get along are
    # installed anew.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    for command in (
        [sys.executable, "-m", "venv", folder],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "watchdog", wheel],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(site + "\n")
    return python


def run(python: Path, code: str, folder: Path) -> str:
    env = child_env({"PYTHONPATH": None})
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_watchdog_of_pypi_works_beside_it(neighbours, tmp_path):
    shown = run(neighbours, "import watchdog.observers, unstuck; print(unstuck.__file__)", tmp_path)
    assert shown.strip().startswith(str(neighbours.parents[1]))


def test_every_module_of_the_installed_wheel_can_be_imported(neighbours, tmp_path):
    code = """
import importlib, pkgutil, unstuck, unstuck_exporters
for package in (unstuck, unstuck_exporters):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            print(module.name)
"""
    assert "unstuck.assets" in run(neighbours, code, tmp_path).split()


def test_shipped_files_are_found_in_the_installed_package(neighbours, tmp_path):
    code = """
from unstuck.assets import asset
print(asset("alerts/README.md"), asset("grafana/README.md").read_text()[:9])
"""
    shown = run(neighbours, code, tmp_path)
    assert "site-packages/unstuck/alerts/README.md" in shown
    assert "# Grafana" in shown
    code = "from unstuck.assets import asset; print([entry.name for entry in asset('protocol/lua').iterdir()])"
    assert ".lua" in run(neighbours, code, tmp_path)
