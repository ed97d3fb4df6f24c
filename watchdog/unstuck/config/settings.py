"""Every setting, with its default, unit and meaning: the one place where they stand.

The structs below are the configuration file (docs/configuration.md), section by section. A field with a description is
a key of the file; the few without one are made while loading. All are frozen and safe to share among threads.
"""

from __future__ import annotations

import fnmatch
import hashlib
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from unstuck.config.custom import CustomLayout
from unstuck.config.passwords import PasswordHash
from unstuck.config.units import HookUrl, ListenAddress, MemoryLimit, Seconds, Secret, Share, written
from unstuck.model import Mode
from unstuck.redis_url import RedisUrl

OWN: Final = "unstuck"
BACKENDS: Final = (
    "unstuck",
    "custom",
    "rq",
    "celery",
    "dramatiq",
    "arq",
    "huey",
    "taskiq",
    "saq",
    "bullmq",
    "bull",
    "bee-queue",
    "sidekiq",
    "resque",
    "asynq",
    "streams",
)
DAY: Final = 86400.0
MILLISECOND: Final = 0.001


def key(meaning: str, **bounds: Any) -> Meta:
    """Describe a setting. ``least`` and ``most`` (seconds, or a share of 1) bound the types that carry a unit."""
    return Meta(description=meaning, extra={"least": MILLISECOND, "most": 365 * DAY, **bounds})


class Section(Struct, frozen=True, kw_only=True):
    """A part of the file with keys of its own."""


class Brake(Section, frozen=True, kw_only=True):
    """How many jobs may be condemned before the agent doubts itself."""

    budget: Annotated[int, Meta(description="most reclaims per queue and sweep", ge=1, le=100_000)] = 500
    share: Annotated[
        Share,
        key("largest share of a queue's in-flight jobs that may be condemned at once (from 10 in flight)", least=0.01),
    ] = Share(0.5)
    patience: Annotated[
        Seconds, key("how long the brake holds before it lets 10 % of the condemned go per sweep", least=0)
    ] = Seconds(120)


class Deadline(Section, frozen=True, kw_only=True):
    """What happens to a job that outlives its ``expected_by`` although its heartbeat goes on."""

    grace: Annotated[Seconds, key("how long after `expected_by` a job counts as late", least=0)] = Seconds(0)
    action: Annotated[
        Literal["alert", "reclaim"], Meta(description="only tell of a late job, or take it away from its worker")
    ] = "alert"


class Pacing(Section, frozen=True, kw_only=True):
    """The polling interval that the agent publishes for workers (used after an empty poll only)."""

    policy: Annotated[
        Literal["formula", "fleet", "fixed"],
        Meta(description="what the interval follows: delay and backlog (formula), number of pollers (fleet), nothing"),
    ] = "formula"
    base_interval: Annotated[Seconds, key("polling interval of a queue without load")] = Seconds(0.2)
    max_interval: Annotated[Seconds, key("longest polling interval, whatever the load")] = Seconds(10)
    delay_threshold: Annotated[Seconds, key("average delay that alone doubles the interval")] = Seconds(10)
    backlog_threshold: Annotated[
        int, Meta(description="jobs waiting that alone double the interval", ge=1, le=1_000_000_000)
    ] = 1000
    cache_limit: Annotated[
        MemoryLimit,
        Meta(description="memory use of Redis above which the penalty applies: share of maxmemory, or size (512mb)"),
    ] = MemoryLimit(share=Share(0.75))
    cache_penalty_factor: Annotated[
        float, Meta(description="factor on the interval while memory use is above `cache_limit`", ge=1, le=1000)
    ] = 2.0
    jitter: Annotated[Share, key("spread of each wait, up and down", least=0, most=0.9)] = Share(0.2)
    fleet_rate: Annotated[
        float, Meta(description="polls per second of all idle workers together (policy `fleet`)", ge=0.1, le=1_000_000)
    ] = 100.0
    hysteresis: Annotated[
        Share, key("smallest change of the interval, and of memory use, that is followed", least=0, most=0.5)
    ] = Share(0.1)


class QueueSettings(Struct, frozen=True, kw_only=True):
    """The settings that hold for one queue; at the top level of the file they hold for all."""

    mode: Annotated[Mode, Meta(description="only report stuck jobs (observe) or also move them (reclaim)")] = (
        Mode.OBSERVE
    )
    sweep_interval: Annotated[Seconds, key("time between two looks", least=0.1, most=3600)] = Seconds(2)
    heartbeat_interval: Annotated[Seconds, key("time between two heartbeats of a worker", least=0.1)] = Seconds(5)
    lock_ttl: Annotated[Seconds, key("life of a job's lock without renewal", least=0.1)] = Seconds(30)
    stuck_after: Annotated[Seconds, key("time without a heartbeat after which a job is stuck", least=0.3)] = Seconds(30)
    gone_after: Annotated[
        Seconds, key("time without the worker's connection after which its jobs are stuck", least=0.1)
    ] = Seconds(2)
    abort_after: Annotated[
        Seconds, key("time without a renewal after which a worker aborts its attempt", least=0.1)
    ] = Seconds(20)
    confirm_after: Annotated[
        Seconds, key("least time between the two observations that a reclaim needs", least=0.1)
    ] = Seconds(2)
    max_rescues: Annotated[
        int, Meta(description="rescues of one job; the next one makes it a dead letter", ge=0, le=10_000)
    ] = 3
    max_attempts: Annotated[int, Meta(description="failures of one job until it is a dead letter", ge=1, le=10_000)] = 5
    retry_delay: Annotated[Seconds, key("wait before the first retry; doubles with each", least=0)] = Seconds(1)
    max_retry_delay: Annotated[Seconds, key("longest wait before a retry", least=0)] = Seconds(600)
    result_ttl: Annotated[Seconds, key("how long a finished job's hash is kept")] = Seconds(3600)
    dead_max: Annotated[
        int, Meta(description="most dead letters per queue; the oldest are dropped first", ge=1, le=10_000_000)
    ] = 10_000
    dead_ttl: Annotated[Seconds, key("how long a dead letter is kept", most=3650 * DAY)] = Seconds(30 * DAY)
    deadline: Deadline = Deadline()
    brake: Brake = Brake()
    pacing: Pacing = Pacing()


class QueueRule(Struct, frozen=True, kw_only=True):
    """One entry of ``queues``: which queues it is for, and their complete settings (its own over the top level's)."""

    backend: str
    queue: str
    settings: QueueSettings
    layout: CustomLayout | None = None
    place: str = ""

    def matches(self, backend: str, queue: str) -> bool:
        """Whether the entry is for this queue; ``queue`` may be a pattern with ``*``, ``?`` and ``[…]``."""
        return self.backend == backend and fnmatch.fnmatchcase(queue, self.queue)

    @property
    def exact(self) -> bool:
        """Whether the entry names one queue, so that the queue is reported even while it does not exist."""
        return not any(sign in self.queue for sign in "*?[")


class Tls(Section, frozen=True, kw_only=True):
    """Encryption of the HTTP endpoint; off without a certificate."""

    cert: Annotated[str, Meta(description="file with the server's certificate (PEM)")] = ""
    key: Annotated[str, Meta(description="file with the certificate's private key (PEM)")] = ""
    client_ca: Annotated[
        str, Meta(description="file with the authority (PEM) whose client certificates alone are let in")
    ] = ""


class Http(Section, frozen=True, kw_only=True):
    """The endpoint for Prometheus, probes and people."""

    listen: Annotated[ListenAddress, Meta(description="address and port")] = ListenAddress("127.0.0.1", 9797)
    tls: Tls = Tls()
    basic_auth: Annotated[
        dict[str, PasswordHash],
        Meta(description="user names with hashed passwords (`python -m unstuck.config.passwords`); health stays open"),
    ] = {}


class Leader(Section, frozen=True, kw_only=True):
    """The election among agents."""

    lease: Annotated[Seconds, key("how long leadership lasts without renewal", least=1, most=3600)] = Seconds(10)


class Audit(Section, frozen=True, kw_only=True):
    """The slow pass for what only a SCAN can find."""

    interval: Annotated[Seconds, key("time between two passes over all keys", least=10)] = Seconds(300)


class Alarms(Section, frozen=True, kw_only=True):
    """From when on the agent's findings are told to the receivers in ``webhooks``."""

    stuck_jobs: Annotated[int, Meta(description="jobs of a queue that must be stuck at once", ge=1)] = 1
    stuck_for: Annotated[Seconds, key("for how long they must be, so that a quick rescue is no alarm", least=0)] = (
        Seconds(30)
    )
    dead_letters: Annotated[int, Meta(description="new dead letters of a queue within `dead_letters_within`", ge=1)] = 1
    dead_letters_within: Annotated[Seconds, key("how far back new dead letters are counted")] = Seconds(600)
    redis_away_for: Annotated[Seconds, key("how long Redis must not have answered", least=0)] = Seconds(15)
    backlog_least: Annotated[int, Meta(description="waiting jobs below which a rising backlog is no alarm", ge=1)] = 10
    backlog_for: Annotated[Seconds, key("how long a backlog must have risen while no job ended")] = Seconds(300)


class Webhook(Section, frozen=True, kw_only=True):
    """A receiver of the agent's findings."""

    url: Annotated[HookUrl, Meta(description="address that is posted to")]
    format: Annotated[Literal["json", "slack", "alertmanager"], Meta(description="shape of the message")] = "json"
    name: Annotated[str, Meta(description="name in metrics and logs", pattern="^[a-z0-9][a-z0-9_.-]{0,31}$|^$")] = ""
    rules: Annotated[
        tuple[Literal["stuck_jobs", "dead_letters", "brake_engaged", "redis_away", "backlog_rising"], ...],
        Meta(description="what it is told of; empty for everything"),
    ] = ()
    secret_file: Annotated[str, Meta(description="file with the secret that signs each message (HMAC)")] = ""
    timeout: Annotated[Seconds, key("longest wait for the receiver", most=60)] = Seconds(5)
    repeat_interval: Annotated[Seconds, key("time after which it is told again what still holds", least=1)] = Seconds(
        4 * 3600
    )
    group_interval: Annotated[
        Seconds, key("least time between two messages; what comes meanwhile is put together", least=0)
    ] = Seconds(10)
    give_up_after: Annotated[Seconds, key("how long one message is tried again", least=0)] = Seconds(600)
    send_resolved: Annotated[bool, Meta(description="tell also when it is over")] = True


class Log(Section, frozen=True, kw_only=True):
    """What the agent writes to standard error."""

    format: Annotated[Literal["text", "json"], Meta(description="lines for people or for machines")] = "text"
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least important line that is written")
    ] = "info"


class Settings(QueueSettings, frozen=True, kw_only=True):
    """Everything; its own queue settings hold for the own protocol and are the base of every entry of ``queues``."""

    redis: Annotated[
        RedisUrl, Meta(description="address: redis://, rediss://, unix://, sentinel://…/SERVICE or cluster://")
    ] = RedisUrl("redis", (("127.0.0.1", 6379),))
    redis_username: Annotated[str, Meta(description="user, over the one in the address")] = ""
    redis_password_file: Annotated[str, Meta(description="file with the password, over the one in the address")] = ""
    redis_timeout: Annotated[Seconds, key("longest wait for an answer of Redis", least=0.1, most=60)] = Seconds(5)
    http: Http = Http()
    leader: Leader = Leader()
    audit: Audit = Audit()
    queues: tuple[QueueRule, ...] = ()
    alarms: Alarms = Alarms()
    webhooks: tuple[Webhook, ...] = ()
    log: Log = Log()

    redis_password: Secret | None = None
    notes: tuple[str, ...] = ()
    places: dict[str, str] = {}

    @property
    def address(self) -> RedisUrl:
        """Where Redis is, with the credentials that hold."""
        password = self.redis_password.reveal() if self.redis_password else None
        return self.redis.with_credentials(self.redis_username or None, password)

    def match(self, backend: str, queue: str) -> QueueRule | None:
        """The first entry of ``queues`` that is for this queue, None if there is none."""
        return next((rule for rule in self.queues if rule.matches(backend, queue)), None)

    def for_queue(self, backend: str, queue: str, *, least_stuck_after: float = 0.0) -> QueueSettings:
        """What holds for one queue: its entry, else the top level; a foreign queue without entry is only observed.

        ``least_stuck_after`` (seconds) is the adapter's own least threshold: a lower ``stuck_after`` is raised to it.
        """
        rule = self.match(backend, queue)
        found = rule.settings if rule else self.defaults()
        changes: dict[str, Any] = {}
        if rule is None and backend != OWN:
            changes["mode"] = Mode.OBSERVE
        if found.stuck_after < least_stuck_after:
            changes["stuck_after"] = Seconds(least_stuck_after)
        return msgspec.structs.replace(found, **changes) if changes else found

    def defaults(self) -> QueueSettings:
        """The top level's queue settings by themselves."""
        return QueueSettings(**{name: getattr(self, name) for name in QueueSettings.__struct_fields__})

    def place(self, name: str) -> str:
        """Where a key such as ``brake.budget`` was set (``file:line:column``, …), or ``default``."""
        return self.places.get(name, "default")

    def as_dict(self) -> dict[str, Any]:
        """Plain values as they would be written in a file; secrets are ``***``."""
        made: dict[str, Any] = written(self)
        for name in ("notes", "places", "redis_password"):
            made.pop(name)
        if self.redis_password is not None:
            made["redis_password"] = "***"  # noqa: S105 — the sign that one is set
        return made

    @property
    def digest(self) -> str:
        """16 hex digits that are equal for agents that would act alike: without secrets, addresses, places and log."""
        told = self.as_dict()
        for name in (
            "redis",
            "redis_username",
            "redis_password",
            "redis_password_file",
            "redis_timeout",
            "http",
            "log",
        ):
            told.pop(name, None)
        for rule in told["queues"]:
            rule.pop("place")
        for hook in told["webhooks"]:
            hook.pop("secret_file")
        return hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()[:16]
