"""What can go wrong, as exceptions a person can act on.

Each error is one sentence that names the place and the mend, and carries the exit status of the command line:
2 for wrong usage or configuration, 3 for a Redis that cannot be reached or used, 1 for a refusal by the protocol.
Passwords never appear in a message: addresses go through :func:`mask_url`, and redis-py's own texts are never quoted
where they could hold the arguments of a command.

:func:`classify` reduces any exception of redis-py to a closed set of kinds, fit for a metric label;
:func:`explain` turns it into a sentence; what it says of each failure stands in :mod:`unstuck.refusals`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from unstuck.refusals import ACL_MEND, SENTENCES, connection, own_words, refusal, timeout_over_tls

KINDS: Final = (
    "timeout",
    "connection",
    "auth",
    "noperm",
    "loading",
    "readonly",
    "oom",
    "noreplicas",
    "busy",
    "misconf",
    "wrongtype",
    "noscript",
    "other",
)
"""Every value that :func:`classify` can return."""


class UnstuckError(Exception):
    """Base of all errors of unstuck; ``exit_code`` is the exit status of a command that ends with it."""

    exit_code: int = 1


class UsageError(UnstuckError):
    """A command was called in a way that cannot work."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in the configuration: where, which key, what, and how to mend it.

    ``place`` is ``file:line:column``, ``environment variable NAME`` or ``flag --name``.
    """

    place: str
    key: str
    fault: str
    mend: str = ""

    def __str__(self) -> str:
        head = f"{self.place}: {self.key}" if self.key else self.place
        return f"{head}: {self.fault}" + (f"; {self.mend}" if self.mend else "")


class ConfigurationError(UsageError):
    """The settings contradict each other or cannot be read; ``problems`` holds every fault found."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        if isinstance(problems, str):
            text = problems
        else:
            text = str(self.problems[0])
            if len(self.problems) > 1:
                text += f" (and {len(self.problems) - 1} more; `unstuck check` lists all)"
        super().__init__(text)


class RedisUnavailable(UnstuckError):
    """Redis cannot be reached or used. ``kind`` is one of :data:`KINDS`; ``url`` has no password."""

    exit_code = 3

    def __init__(self, message: str, *, kind: str = "other", url: str = "") -> None:
        self.kind = kind
        self.url = url
        super().__init__(message)


class ProtocolError(UnstuckError):
    """A script or client of the own protocol refused; nothing was changed unless the class says otherwise."""


class WrongType(ProtocolError):
    """A key of the protocol holds another Redis type than the protocol gives it."""

    exit_code = 3


class VersionMismatch(ProtocolError):
    """The queue was made by another version of the protocol (``v`` in its meta hash)."""

    exit_code = 3


class InvalidName(ProtocolError):
    """A queue name, job id or worker name has a form that the protocol refuses."""

    exit_code = 2


class LeaseLost(ProtocolError):
    """The attempt's token is not current any more: another attempt has the job, or nobody."""


class Deposed(ProtocolError):
    """A younger leader has been at this queue: its fence holds a higher epoch than ours. Step down."""


class Refused(ProtocolError):
    """The protocol refused the request; the message says why."""


class StampMoved(ProtocolError):
    """A value was computed while the queue moved on, again and again. `value` is the last one, a moment old by now."""

    def __init__(self, message: str, value: object) -> None:
        self.value = value
        super().__init__(message)


_CODES: Final = {
    "NOAUTH": "auth",
    "WRONGPASS": "auth",
    "NOPERM": "noperm",
    "LOADING": "loading",
    "READONLY": "readonly",
    "MASTERDOWN": "readonly",
    "OOM": "oom",
    "NOREPLICAS": "noreplicas",
    "NOGOODSLAVE": "noreplicas",
    "BUSY": "busy",
    "MISCONF": "misconf",
    "WRONGTYPE": "wrongtype",
    "NOSCRIPT": "noscript",
    "CLUSTERDOWN": "connection",
}
_CLASSES: Final = {
    "CrossSlotTransactionError": "other",
    "InvalidPipelineStack": "other",
    "AuthenticationError": "auth",
    "AuthorizationError": "auth",
    "AuthenticationWrongNumberOfArgsError": "auth",
    "NoPermissionError": "noperm",
    "BusyLoadingError": "loading",
    "ReadOnlyError": "readonly",
    "MasterDownError": "readonly",
    "OutOfMemoryError": "oom",
    "NoScriptError": "noscript",
    "ClusterDownError": "connection",
    "TimeoutError": "timeout",
    "ConnectionError": "connection",
    "InvalidResponse": "connection",
    "RedisClusterException": "connection",
    "OSError": "connection",
}
_CODE: Final = re.compile(r"^([A-Z]{3,})\b")


def classify(exc: BaseException) -> str:
    """The kind of a failed exchange with Redis: one of :data:`KINDS`, never the text.

    Some refusals have no class of their own in redis-py (NOREPLICAS, BUSY, MISCONF, WRONGTYPE): they are told by the
    code in front of the message, also behind the prefix that a pipeline adds.
    """
    if isinstance(exc, RedisUnavailable):
        return exc.kind
    if isinstance(exc, WrongType):
        return "wrongtype"
    code = str(getattr(exc, "status_code", None) or "")
    if code not in _CODES:
        found = _CODE.match(own_words(exc))
        code = found.group(1) if found else ""
    if code in _CODES:
        return _CODES[code]
    # redis-py says by itself that a cluster cannot take keys of several slots at once: that is no lost connection.
    if "same key slot" in str(exc):
        return "other"
    if "user executing the script can't" in own_words(exc):  # what a script may not do is refused without a code
        return "noperm"
    # ExecAbort only says that an earlier command of the transaction was refused: look at that one.
    if type(exc).__name__ == "ExecAbortError" and exc.__cause__ is not None:
        return classify(exc.__cause__)
    for cls in type(exc).__mro__:
        if cls.__name__ in _CLASSES:
            return _CLASSES[cls.__name__]
    return "other"


def mask_url(url: object) -> str:
    """The address with ``***`` in the place of every password, also of those in the query."""
    text = re.sub(r"^([a-z+]+://)([^/?#]*):([^/?#]*)@", r"\1\2:***@", str(url), flags=re.IGNORECASE)
    return re.sub(r"([?&][a-z_]*password=)[^&#]*", r"\1***", text, flags=re.IGNORECASE)


def explain(exc: BaseException, url: object = "") -> UnstuckError:
    """One clear sentence for an exception of redis-py or the operating system.

    ``url`` is the address that was used; a password in it is masked. An :class:`UnstuckError` is returned as it is.
    The result is to be raised ``from exc``.
    """
    if isinstance(exc, UnstuckError):
        return exc
    where = mask_url(url) if url else ""
    place = f"Redis at {where}" if where else "Redis"
    kind = classify(exc)
    if kind == "wrongtype":
        return WrongType(
            f"{place}: a key holds another type than expected (WRONGTYPE); another program writes under the same "
            "name: look with TYPE and rename or remove that key"
        )
    sentence = SENTENCES.get(kind) or refusal(exc) or (connection(exc) if kind == "connection" else None)
    if kind == "noperm" and (command := re.search(r"'([^' ]+)' command", own_words(exc))):
        sentence = f"does not give this user the right to call {command[1].upper().replace('|', ' ')}; {ACL_MEND}"
    if kind == "timeout" and where.startswith("rediss://"):
        sentence = timeout_over_tls(exc)
    if sentence is None:
        if type(exc).__module__.split(".")[0] != "redis":
            return UnstuckError(f"{type(exc).__name__}: {exc}")
        sentence = f"refused: {own_words(exc)[:300]}"
    return RedisUnavailable(f"{place} {sentence}", kind=kind, url=where)
