"""The image, run as a person would run it. A lane of its own: `make test-image` builds it and names it for us.

Without that name nothing here is collected: an image takes root, minutes, and Debian's buildah and podman.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.images import IMAGE, Containers, podman


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return None if IMAGE else True


@pytest.fixture
def containers() -> Iterator[Containers]:
    started = Containers()
    yield started
    started.close()


@pytest.fixture(scope="session")
def description() -> dict[str, Any]:
    """What the image says of itself."""
    found: dict[str, Any] = json.loads(podman("image", "inspect", IMAGE).stdout)[0]
    return found


@pytest.fixture(scope="session")
def root() -> Iterator[Path]:
    """The image's files."""
    yield Path(podman("image", "mount", IMAGE).stdout.strip())
    podman("image", "unmount", IMAGE)


@pytest.fixture(scope="session")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image as it would be pushed: an archive with a file per layer, opened into a folder."""
    folder = tmp_path_factory.mktemp("layers")
    podman("save", "--format", "docker-archive", "--output", folder / "image.tar", IMAGE)
    subprocess.run(["tar", "-xf", folder / "image.tar", "-C", folder], check=True)
    (folder / "image.tar").unlink()
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)
