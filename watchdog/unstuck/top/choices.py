"""What the person at the keyboard of `top` has chosen: order, filter, place in the list."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from unstuck.top.sources import Seen

SORTS: Final = ("trouble", "waiting", "oldest", "running", "stuck", "name")
SAMPLES: Final = 24
"""Backlogs that are remembered of each queue."""


@dataclass(slots=True)
class Choices:
    """What the person at the keyboard has chosen, and what the screen remembers for them."""

    sort: str = "trouble"
    reverse: bool = False
    filter: str = ""
    typing: bool = False  # the filter is being typed
    help: bool = False
    offset: int = 0  # first visible row
    page: int = 10  # rows that fit
    course: dict[tuple[str, str], deque[int]] = field(default_factory=dict)  # the backlog of each queue, lately
    _sampled: float = 0.0

    def press(self, key: str) -> bool:
        """A key was pressed; False: the person wants to leave."""
        if self.help:
            self.help = False
            return key != "q"
        if self.typing:
            self._type(key)
            return True
        moves = {"up": -1, "down": 1, "page up": -self.page, "page down": self.page, "home": -(10**9), "end": 10**9}
        match key:
            case "q":
                return False
            case "s":
                self.sort, self.offset = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)], 0
            case "r":
                self.reverse = not self.reverse
            case "/":
                self.typing = True
            case "escape":
                self.filter, self.offset = "", 0
            case "?" | "h":
                self.help = True
            case _ if key in moves:
                self.offset = max(0, self.offset + moves[key])
        return True

    def _type(self, key: str) -> None:
        match key:
            case "enter":
                self.typing = False
            case "escape":
                self.typing, self.filter = False, ""
            case "clear":
                self.filter = ""
            case "backspace":
                self.filter = self.filter[:-1]
            case _ if len(key) == 1:
                self.filter += key
        self.offset = 0

    def sample(self, seen: Seen) -> None:
        """Remember the backlogs of what was seen, once."""
        if seen.at == self._sampled:
            return
        self._sampled = seen.at
        before, self.course = self.course, {}
        for one in seen.doc["queues"]:
            place = one["backend"], one["queue"]
            self.course[place] = before.get(place) or deque(maxlen=SAMPLES)
            self.course[place].append(one["waiting"])
