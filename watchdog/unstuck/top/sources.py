"""Where `top` looks: at a running agent over HTTP, or straight at Redis, read-only, as `inspect` does.

What may go wrong: another program may answer at the address, so what it says is believed only if it has the shape of a
status. Nothing here writes to Redis.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from unstuck.adapters import adapters_for
from unstuck.choosing import Choice, narrowed
from unstuck.connections import Connections
from unstuck.errors import UnstuckError, UsageError, explain
from unstuck.inspection import Look, compare, look
from unstuck.report import Document

if TYPE_CHECKING:
    from unstuck.config import Settings

TIMEOUT_SECONDS: Final = 5.0
MOST_EVENTS: Final = 100
_LARGEST_ANSWER: Final = 32 * 1024 * 1024


class AgentUnavailable(UnstuckError):
    """No agent answers at this address, or it does not let us in."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen at one moment."""

    doc: Document  # of `inspect`; from an agent also its part
    address: str  # for people, without passwords
    at: float  # monotonic
    events: tuple[Document, ...] = ()  # newest last; only an agent tells them


class Source(Protocol):
    """Something to look at again and again."""

    def read(self) -> Seen:
        """Look once. Raises UnstuckError with a sentence for people."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class AgentSource:
    """A running agent. ``ca``: file with the authority of its certificate; ``cert`` and ``key``: ours, if it wants one."""

    def __init__(
        self, url: str, *, user: str = "", password: str = "", ca: str = "", cert: str = "", key: str = ""
    ) -> None:
        import requests

        if not url.startswith(("http://", "https://")) or "@" in url:
            raise UsageError(
                f"--url: {url.rsplit('@', maxsplit=1)[-1]!r} must be http://HOST:PORT or https://…, a name in --user"
            )
        for option, name in (("--ca", ca), ("--cert", cert), ("--key", key)):
            if name and not Path(name).is_file():
                raise UsageError(f"{option}: there is no file {name}")
        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy stands between us and an agent, and no .netrc speaks for the user
        if user:
            self._session.headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        self._session.verify = ca or True
        self._session.cert = (cert, key) if key else cert or None
        self._tag = ""
        self._seen: Seen | None = None

    def read(self) -> Seen:
        answer = self._get("/api/v1/status", {"If-None-Match": self._tag} if self._tag else {})
        if answer.status_code == 304 and self._seen is not None:
            return self._seen
        doc = _decoded(answer.content)
        try:
            cursor = doc["agent"]["cursor"]
            doc["queues"], doc["findings"], doc["agent"]["outlook"]
        except (KeyError, TypeError):
            raise AgentUnavailable(f"{self._url} answers, but not with the status of an unstuck agent") from None
        events = self._seen.events if self._seen else ()
        if self._seen is None or self._seen.doc["agent"]["cursor"] != cursor:
            events = tuple(_decoded(self._get(f"/api/v1/events?limit={MOST_EVENTS}", {}).content)["events"])
        self._tag = answer.headers.get("ETag", "")
        self._seen = Seen(doc, self._url, time.monotonic(), events)
        return self._seen

    def close(self) -> None:
        self._session.close()

    def _get(self, path: str, headers: dict[str, str]) -> Any:
        import requests

        try:
            answer = self._session.get(
                self._url + path, headers=headers, timeout=TIMEOUT_SECONDS, allow_redirects=False
            )
        except requests.exceptions.SSLError as error:
            raise AgentUnavailable(f"{self._url}: TLS failed ({_cause(error)}); see --ca, --cert, --key") from error
        except requests.exceptions.Timeout as error:
            raise AgentUnavailable(f"{self._url} does not answer within {TIMEOUT_SECONDS:.0f} s") from error
        except requests.exceptions.RequestException as error:
            raise AgentUnavailable(f"no agent answers at {self._url} ({_cause(error)})") from error
        if answer.status_code == 401:
            raise AgentUnavailable(f"{self._url} wants a user name and password; see --user, --password-file")
        if answer.status_code == 403:
            raise AgentUnavailable(f"{self._url} wants a client certificate; see --cert, --key")
        if answer.status_code not in (200, 304) or len(answer.content) > _LARGEST_ANSWER:
            raise AgentUnavailable(f"{self._url}{path.partition('?')[0]} answers {answer.status_code}")
        return answer


def _decoded(body: bytes) -> Any:
    """JSON, also such with names that are no text."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        pass
    try:
        return json.loads(body)
    except ValueError:
        return None


def _cause(error: BaseException) -> str:
    """The innermost cause, in few words."""
    inner: Any = error
    while (deeper := getattr(inner, "reason", None) or inner.__cause__ or inner.__context__) is not None:
        if isinstance(deeper, str) or deeper is inner:
            break
        inner = deeper
    return str(getattr(inner, "strerror", None) or inner)


class RedisSource:
    """Redis itself. Each look is compared with one at least ``window`` seconds before; the first one waits for that."""

    def __init__(
        self, settings: Settings, choice: Choice, window: float, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._settings = settings
        self._window = window
        self._wait = wait
        self._connections = Connections.of(settings, role="top")
        self._client = self._connections.reading()
        self._adapters = narrowed(adapters_for(settings, self._client, self._client), choice)
        self._looks: deque[Look] = deque()
        if not self._adapters:
            raise UsageError("this version has no reader for the chosen queue system yet; leave out --backend")

    def read(self) -> Seen:
        try:
            if not self._looks:
                self._looks.append(look(self._client, self._adapters, self._settings))
                if any(one.running for one in self._looks[0].queues.values()):
                    self._wait(self._window)
            now = look(self._client, self._adapters, self._settings)
            while len(self._looks) > 1 and now.began - self._looks[1].ended >= self._window:
                self._looks.popleft()
            doc = compare(self._client, self._looks[0], now).document
        except Exception as error:
            self._looks.clear()  # what was seen before a failure is no evidence for what comes after it
            if type(error).__module__.split(".")[0] != "redis":
                raise
            raise explain(error, self._settings.address) from error
        self._looks.append(now)
        return Seen(doc, self._connections.describe(), time.monotonic())

    def close(self) -> None:
        self._connections.close()


def narrowed_to(seen: Seen, choice: Choice) -> Seen:
    """The same with only the chosen queues: an agent tells of all that it knows."""
    if not choice.backends and not choice.queues:
        return seen
    doc = dict(seen.doc)
    for part in ("queues", "findings"):
        doc[part] = [one for one in doc[part] if choice.includes(one["backend"], one["queue"])]
    events = tuple(one for one in seen.events if not one["queue"] or choice.includes(one["backend"], one["queue"]))
    return replace(seen, doc=doc, events=events)
