"""The command line as a person meets it: a process with arguments, two streams and an exit status."""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.processes import Process, Running, child_env


@dataclass(frozen=True, slots=True)
class Ran:
    """What a finished command left."""

    code: int
    stdout: str
    stderr: str
    left_behind: tuple[Running, ...]  # processes that it started and that outlived it; killed by now

    def json(self) -> Any:
        """Return the one JSON document on standard output; fail when there is anything else there."""
        try:
            return json.loads(self.stdout)
        except json.JSONDecodeError as broken:
            raise AssertionError(f"standard output is not one JSON document: {broken}\n{self.stdout}") from None


def run_cli(
    *args: str | Path,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float = 60.0,
) -> Ran:
    """Run `python -m unstuck ARGS` to its end and return exit status and output.

    `env` is added to an environment without any UNSTUCK_* variable (None removes a variable). It runs in `cwd`, else
    in an empty folder. Longer than `timeout` seconds is a failure, and shows the end of the output.
    """
    with tempfile.TemporaryDirectory(prefix="unstuck-cli-") as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        (folder / "in").write_text(stdin or "")
        with (folder / "in").open("rb") as given:
            process = Process(
                (sys.executable, "-m", "unstuck", *(str(arg) for arg in args)),
                folder / "out",
                folder / "err",
                child_env(env),
                cwd or folder / "empty",
                given,
            )
            try:
                code = process.wait(timeout)
                return Ran(code, process.stdout, process.stderr, tuple(process.family()))
            finally:
                process.kill_tree()
