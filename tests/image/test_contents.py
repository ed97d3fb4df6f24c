"""What is in the image: what it says of itself, whose its files are, and what must not be in any layer."""

import json
import re
import stat
import tarfile
from pathlib import Path
from typing import Any

import unstuck
from support.images import IMAGE, Containers, podman

ROOT = Path(__file__).resolve().parents[2]


def files_of(layers: Path) -> list[tuple[str, tarfile.TarInfo]]:
    """Every entry of every layer, whether or not a later one hides it."""
    found = []
    for layer in json.loads((layers / "manifest.json").read_text())[0]["Layers"]:
        with tarfile.open(layers / layer) as archive:
            found += [(layer, entry) for entry in archive]
    return found


def test_it_runs_as_a_numeric_user_that_is_not_root(description: dict[str, Any]) -> None:
    user, group = description["Config"]["User"].split(":")
    assert int(user) > 0
    assert int(group) > 0


def test_it_says_what_it_is(description: dict[str, Any]) -> None:
    config = description["Config"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["title"] == "unstuck"
    assert labels["version"] == unstuck.__version__
    assert labels["licenses"] == "Apache-2.0"
    assert re.fullmatch(r"[0-9a-f]{40}|unknown", labels["revision"])  # unknown outside a repository
    assert config["Entrypoint"] == ["unstuck"]
    assert config["Cmd"] == ["run"]
    assert list(config["ExposedPorts"]) == ["9797/tcp"]
    assert config["StopSignal"] in ("SIGTERM", "15")


def test_its_health_check_is_the_program_itself_without_a_shell(description: dict[str, Any]) -> None:
    check = description["Healthcheck"]["Test"]
    assert check == ["CMD", "python3", "-m", "unstuck.healthcheck"]


def test_its_size_is_told(description: dict[str, Any], layers: Path) -> None:
    own = json.loads((layers / "manifest.json").read_text())[0]["Layers"][-1]
    with tarfile.open(layers / own) as archive:
        added = sum(entry.size for entry in archive)
    print(f"\nimage: {description['Size'] / 1e6:.0f} MB, of which ours: {added / 1e6:.0f} MB")
    assert added < 80e6


def test_every_file_of_ours_is_owned_by_root_and_writable_by_nobody_else(root: Path) -> None:
    wrong = []
    for path in (root / "opt").rglob("*"):
        status = path.lstat()
        if (status.st_uid, status.st_gid) != (0, 0):
            wrong.append(f"{path}: {status.st_uid}:{status.st_gid}")
        if not path.is_symlink() and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID):
            wrong.append(f"{path}: {stat.filemode(status.st_mode)}")
    assert wrong == []


def test_nothing_of_the_build_is_left(root: Path) -> None:
    for folder in ("src", "tools", "wheels", "wheels-in", "root/.cache", "run/secrets"):
        left = root / folder
        assert not left.exists() or not any(left.iterdir()), folder
    site = next((root / "opt/unstuck/lib").glob("python3.*/site-packages"))
    installed = {path.name.split("-")[0].lower() for path in site.glob("*.dist-info")}
    assert installed & {"pip", "setuptools", "wheel", "hatchling", "editables"} == set()
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE))
    assert installed - {name.replace("-", "_") for name in locked} == {"unstuck"}


def test_no_layer_holds_a_secret_a_cache_or_a_packages_address(layers: Path) -> None:
    named = [
        f"{layer}: {entry.name}"
        for layer, entry in files_of(layers)
        if re.search(
            r"pip\.conf$|\.netrc$|\.pypirc$|/\.cache/|\.git/|(^|/)\.env$|id_rsa|\.pem\.key$|wheels-in/.", entry.name
        )
    ]
    assert named == []
    history = json.dumps(json.loads(podman("image", "inspect", IMAGE).stdout)[0]["History"])
    assert not re.search(r"https?://|index-url|password|token", history, re.IGNORECASE)


def test_the_byte_code_is_there_since_it_cannot_be_written_later(root: Path) -> None:
    package = next((root / "opt/unstuck/lib").glob("python3.*/site-packages/unstuck"))
    assert any((package / "__pycache__").glob("cli.*.pyc"))


def test_its_packages_fit_together_by_pips_own_word(containers: Containers, tmp_path: Path) -> None:
    import ensurepip

    # The image has no pip: a wheel of it is lent, and run from the archive.
    (wheel,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    options = ("--volume", f"{wheel}:/pip.whl:ro", "--tmpfs", "/tmp", "--entrypoint", "python3")
    done = containers.run("/pip.whl/pip", "check", options=options)
    assert (done.returncode, done.stdout.strip()) == (0, "No broken requirements found."), done.stderr
