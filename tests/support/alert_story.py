"""A story about one alert for promtool: what is seen before, during and after the trouble, and what is said.

The trouble begins at minute 5 and lasts for the alert's `for` and ten minutes more. `begins` and `ends` are the first minute at
which the expression holds, and the first at which it does not any more, in minutes after the trouble began and ended:
rates and windows need time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

CALM = 5
"""Minutes before the trouble."""
SLACK = 10
"""Minutes that the trouble goes on after the alert must fire."""
AFTER = 400
"""Minutes that are told of after the trouble."""

AGENT = 'job="unstuck", instance="a:9797"'
SOURCE = f'{AGENT}, source="default"'
MAIL = f'{AGENT}, backend="unstuck", queue="mail"'
JOB = {"job": "unstuck"}
ONE = {**JOB, "instance": "a:9797"}
REDIS = {**JOB, "source": "default"}
QUEUE = {**JOB, "backend": "unstuck", "queue": "mail"}


@dataclass(frozen=True)
class On:
    """From the last value on, so much more each minute."""

    step: float


Part = float | tuple[float, float] | On | None
"""A value; a first value and what is added each minute; what is added to the value before; absent."""


@dataclass(frozen=True)
class Told:
    """The values of one series, a sample a minute."""

    before: Part
    during: Part
    after: Part

    def values(self, trouble: int) -> str:
        """As promtool wants them; ``trouble`` in minutes."""
        runs, last = [], 0.0
        for part, minutes in ((self.before, CALM), (self.during, trouble), (self.after, AFTER)):
            if part is None:
                runs.append(f"_x{minutes}")
                continue
            step = part.step if isinstance(part, On) else part[1] if isinstance(part, tuple) else 0
            first = last + step if isinstance(part, On) else part[0] if isinstance(part, tuple) else part
            last = first + step * (minutes - 1)
            runs.append(f"{first}{step:+}x{minutes - 1}")
        return " ".join(runs)


@dataclass(frozen=True)
class Case:
    """One alert."""

    series: Mapping[str, Told]
    labels: Mapping[str, str]
    says: str
    begins: int = 0
    ends: int = 0
    trouble: int | None = None  # minutes, where `for` and ten more are not what is meant
    quiet: Mapping[str, Told] = field(default_factory=dict)  # a second story of other labels, in which it must not fire


def always(value: float) -> Told:
    return Told(value, value, value)


def trouble(during: float, *, else_: float = 0) -> Told:
    return Told(else_, during, else_)


def q(name: str, **labels: str) -> str:
    """A series of the queue `mail`."""
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return f"{name}{{{MAIL}{more}}}"


def other(name: str, **labels: str) -> str:
    """The same of the queue `quiet`."""
    return q(name, **labels).replace('queue="mail"', 'queue="quiet"')


def duty(name: str) -> str:
    return f'{name}{{{AGENT}, collector="sweep"}}'


def counted(step: float) -> Told:
    """A counter that grows by ``step`` a minute while the trouble lasts."""
    return Told(0, On(step), On(0))


WAITING = q("unstuck_queue_jobs", state="waiting")
RUNNING = q("unstuck_queue_jobs", state="running")
STUCK = q("unstuck_stuck_jobs", reason="worker_gone")
IDLE = q("unstuck_queue_workers", state="idle")
FINISHED = q("unstuck_jobs_finished_total")
ENABLED = q("unstuck_reclaim_enabled")
WORKS: Mapping[str, Told] = {
    other("unstuck_queue_jobs", state="waiting"): always(500),
    other("unstuck_queue_jobs", state="running"): always(5),
    other("unstuck_queue_workers", state="idle"): always(5),
    other("unstuck_jobs_finished_total"): Told((0, 9), On(9), On(9)),
}
"""A queue with a steady backlog that is worked off."""
