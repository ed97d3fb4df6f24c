"""Settings that are right one by one and impossible together.

Each check says which keys it looks at. A fault is reported at the key that was set last of all by a person: in an entry
of ``queues`` at the entry's own key, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from unstuck.config.documents import Node
from unstuck.config.settings import OWN, QueueSettings, Settings
from unstuck.errors import Problem


@dataclass(frozen=True, slots=True)
class Check:
    """A condition over some keys; ``fault`` and ``mend`` are made from the settings that break it.

    ``backends``: for which entries of ``queues`` it means anything; empty for all.
    """

    keys: tuple[str, ...]
    holds: Callable[[QueueSettings], bool]
    fault: Callable[[QueueSettings], str]
    mend: Callable[[QueueSettings], str]
    backends: tuple[str, ...] = ()


CHECKS: Final = (
    Check(
        ("stuck_after", "heartbeat_interval"),
        lambda s: s.stuck_after >= 3 * s.heartbeat_interval,
        lambda s: f"stuck_after {s.stuck_after} is below three heartbeats of {s.heartbeat_interval}",
        lambda s: (
            f"set stuck_after to {_up(3 * s.heartbeat_interval)} or more, "
            f"or heartbeat_interval to {_down(s.stuck_after / 3)} or less"
        ),
        (OWN, "custom"),
    ),
    Check(
        ("abort_after", "stuck_after"),
        lambda s: s.abort_after < s.stuck_after,
        lambda s: f"abort_after {s.abort_after} is not below stuck_after {s.stuck_after}",
        lambda s: f"a worker must give up before it is judged: set abort_after to {_down(s.stuck_after * 2 / 3)}",
        (OWN,),
    ),
    Check(
        ("abort_after", "heartbeat_interval"),
        lambda s: s.abort_after > s.heartbeat_interval,
        lambda s: f"abort_after {s.abort_after} is not above heartbeat_interval {s.heartbeat_interval}",
        lambda s: (
            f"one missed heartbeat would end every job: set abort_after to {_up(2 * s.heartbeat_interval)} or more"
        ),
        (OWN,),
    ),
    Check(
        ("lock_ttl", "heartbeat_interval"),
        lambda s: s.lock_ttl > s.heartbeat_interval,
        lambda s: f"lock_ttl {s.lock_ttl} is not above heartbeat_interval {s.heartbeat_interval}",
        lambda s: f"a lock must outlive its renewal: set lock_ttl to {_up(3 * s.heartbeat_interval)} or more",
        (OWN,),
    ),
    Check(
        ("max_retry_delay", "retry_delay"),
        lambda s: s.max_retry_delay >= s.retry_delay,
        lambda s: f"max_retry_delay {s.max_retry_delay} is below retry_delay {s.retry_delay}",
        lambda s: f"set max_retry_delay to {s.retry_delay} or more",
    ),
    Check(
        ("pacing.base_interval", "pacing.max_interval"),
        lambda s: s.pacing.base_interval <= s.pacing.max_interval,
        lambda s: f"base_interval {s.pacing.base_interval} is above max_interval {s.pacing.max_interval}",
        lambda s: f"set pacing.base_interval to {s.pacing.max_interval} or less",
    ),
)


def _up(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms" if seconds < 1 else f"{round(seconds + 0.0499, 1):g}s"


def _down(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms" if seconds < 2 else f"{int(seconds)}s"


def find(top: Node, path: str) -> Node | None:
    """The node at a key such as ``brake.budget``, None if it was not given."""
    node: Node | None = top
    for name in path.split("."):
        node = node.section.get(name) if node else None
    return node if node and node.value is not None else None


def contradictions(settings: Settings, top: Node) -> Iterator[Problem]:
    """Every broken check, of the top level and of each entry of ``queues``."""
    for check in CHECKS:
        if not check.holds(settings):
            yield _problem(check, settings, top, "")
    queues = find(top, "queues")
    entries = {node.place: (n, node) for n, node in enumerate(queues.value)} if queues else {}
    for rule in settings.queues:
        number, node = entries[rule.place]
        for check in CHECKS:
            own = any(find(node, name) for name in check.keys)
            meant = not check.backends or rule.backend in check.backends
            if own and meant and not check.holds(rule.settings):
                yield _problem(check, rule.settings, node, f"queues[{number}].")
    yield from _http(settings, top)


def _problem(check: Check, settings: QueueSettings, node: Node, prefix: str) -> Problem:
    name = next((name for name in check.keys if find(node, name)), check.keys[0])
    found = find(node, name)
    place = found.place if found else "default"
    return Problem(place, prefix + name, check.fault(settings), check.mend(settings))


def _http(settings: Settings, top: Node) -> Iterator[Problem]:
    tls = settings.http.tls
    for name, needed in (("cert", "key"), ("key", "cert"), ("client_ca", "cert")):
        if getattr(tls, name) and not getattr(tls, needed):
            found = find(top, f"http.tls.{name}")
            place = found.place if found else "default"
            mend = f"add http.tls.{needed}, or remove http.tls.{name}"
            yield Problem(place, f"http.tls.{name}", f"has no effect without http.tls.{needed}", mend)
