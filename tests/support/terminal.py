"""A pseudo-terminal with a program in it: what it shows is kept as a terminal would, and keys can be pressed."""

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from support.processes import child_env
from support.waiting import wait_until

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]")


@dataclass(slots=True)
class Terminal:
    """A running program and its end of the line."""

    process: "subprocess.Popen[bytes]"
    descriptor: int
    raw: str = ""
    left: bytes = field(default=b"")

    def read(self) -> str:
        """Everything that it has shown so far, colours and movements included."""
        with contextlib.suppress(OSError):  # Linux says EIO when the program has ended
            while select.select([self.descriptor], [], [], 0)[0]:
                got = os.read(self.descriptor, 65_536)
                if not got:
                    break
                self.raw += (self.left + got).decode("utf-8", "replace")
        return self.raw

    def screen(self) -> str:
        """The last screen: what came after the cursor was last put into the corner, without colours."""
        return _SEQUENCE.sub("", self.read().rpartition("\x1b[H")[2])

    def press(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def shows(self, text: str, timeout: float = 60.0) -> str:
        """Wait until the screen shows this."""
        wait_until(lambda: text in self.screen(), timeout, f"the screen shows {text!r}")
        return self.screen()

    def ends(self, timeout: float = 60.0) -> int:
        """Wait for the end, reading on; the exit status."""
        ended = time.monotonic() + timeout
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < ended, f"it does not end; it showed {self.screen()!r}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        self.read()
        return self.process.returncode

    def settings(self) -> list[object]:
        """How the terminal is set: echo, lines."""
        return list(termios.tcgetattr(self.descriptor))


@contextlib.contextmanager
def terminal(arguments: Sequence[str], columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """Run `unstuck` with these arguments in a terminal of this size."""
    outer, inner = os.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    env = child_env({"TERM": "xterm-256color", "COLUMNS": None, "NO_COLOR": None})
    process = subprocess.Popen(
        [sys.executable, "-m", "unstuck", *arguments],
        stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True,
    )  # fmt: skip
    shown = Terminal(process, outer)
    try:
        yield shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(outer)
        os.close(inner)
