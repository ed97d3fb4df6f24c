"""What a worker can be told; seconds, shares and words, with the defaults of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from unstuck.errors import ConfigurationError
from unstuck.protocol import RetryLimits, Terms
from unstuck.worker.waiting import OwnPace

if TYPE_CHECKING:
    from unstuck.config import QueueSettings

LOCKS = {"pessimistic": "ttl", "optimistic": "none"}


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker works. Durations are seconds."""

    concurrency: int = 1
    lock: Literal["pessimistic", "optimistic"] = "pessimistic"
    isolate: Literal["thread", "process"] = "thread"
    wake: bool = True
    interrupt: bool = False
    heartbeat_interval: float = 5.0
    lock_ttl: float = 30.0
    abort_after: float = 20.0
    stuck_after: float = 30.0
    """What holds while no agent has published its own."""
    pace: OwnPace = field(default_factory=OwnPace)
    limits: RetryLimits = field(default_factory=RetryLimits)

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= 1000:
            raise ConfigurationError(f"concurrency {self.concurrency}: use 1 to 1000")
        if not 0 < self.heartbeat_interval < self.abort_after:
            raise ConfigurationError(
                f"abort_after {self.abort_after:g}s is not above heartbeat_interval {self.heartbeat_interval:g}s: one "
                "missed heartbeat would end every job"
            )
        if self.lock_ttl <= self.heartbeat_interval:
            raise ConfigurationError(
                f"lock_ttl {self.lock_ttl:g}s is not above heartbeat_interval {self.heartbeat_interval:g}s: a lock must "
                "outlive its renewal"
            )
        self.must_fit(self.stuck_after, "stuck_after")
        if self.interrupt and self.isolate == "process":
            raise ConfigurationError("--interrupt is for --isolate thread; a child process is ended instead")

    @classmethod
    def of(cls, settings: QueueSettings, **given: Any) -> WorkerOptions:
        """From the settings of a queue; `given` are the options that are no settings."""
        return cls(
            # Plain floats: redis-py writes a duration that is more than a float as text that Redis cannot read.
            heartbeat_interval=float(settings.heartbeat_interval),
            lock_ttl=float(settings.lock_ttl),
            abort_after=float(settings.abort_after),
            stuck_after=float(settings.stuck_after),
            pace=OwnPace(
                float(settings.pacing.base_interval),
                float(settings.pacing.max_interval),
                float(settings.pacing.jitter),
            ),
            limits=RetryLimits(
                max_attempts=settings.max_attempts,
                retry_delay_ms=_ms(settings.retry_delay),
                result_ttl_ms=_ms(settings.result_ttl),
                dead_max=settings.dead_max,
                dead_ttl_ms=_ms(settings.dead_ttl),
            ),
            **given,
        )

    @property
    def terms(self) -> Terms:
        """What each claim stores with its attempt."""
        return Terms(
            lock="none" if self.lock == "optimistic" else "ttl",
            lock_ttl_ms=_ms(self.lock_ttl),
            heartbeat_ms=_ms(self.heartbeat_interval),
            abort_after_ms=_ms(self.abort_after),
        )

    def must_fit(self, stuck_after: float, what: str = "the agent's stuck_after") -> None:
        """Raise ConfigurationError unless a worker of these options gives up before an agent would judge it."""
        if self.abort_after >= stuck_after:
            raise ConfigurationError(
                f"abort_after {self.abort_after:g}s is not below {what} {stuck_after:g}s: a worker must give up before it "
                f"is judged; set abort_after to {stuck_after * 2 / 3:g}s or less (flag --abort-after), or raise stuck_after"
            )
        if stuck_after < 3 * self.heartbeat_interval:
            raise ConfigurationError(
                f"{what} {stuck_after:g}s is below three heartbeats of {self.heartbeat_interval:g}s; set "
                f"heartbeat_interval to {stuck_after / 3:g}s or less (flag --heartbeat-interval), or raise stuck_after"
            )

    def record(self) -> Mapping[str, str | int]:
        """The part of a worker's record that never changes."""
        return {
            "concurrency": self.concurrency,
            "lock": self.lock,
            "isolate": self.isolate,
            "wake": "on" if self.wake else "off",
        }


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
