"""Counting the server's instructions with valgrind's callgrind."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stand import Server


def callgrind(folder: Path) -> Sequence[str]:
    """What to put before the server's command."""
    if shutil.which("valgrind") is None:
        raise SystemExit("bench: counting instructions needs valgrind; install it")
    for old in folder.glob("calls*"):
        old.unlink()
    return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/calls", "--quiet"]


class Counted:
    """A server under callgrind: `between()` gives the instructions since the last call."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.dumps = 0

    def between(self) -> int:
        subprocess.run(["callgrind_control", "-d", str(self.server.process.pid)], check=True, capture_output=True)
        self.dumps += 1
        text = self.last.read_text("utf-8", "replace")
        found = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0

    @property
    def last(self) -> Path:
        return self.folder / f"calls.{self.dumps}"
