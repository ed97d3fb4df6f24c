"""What can go wrong, as exceptions a person can act on.

Each error is one sentence that names the place and the mend, and carries the exit status of the command line:
2 for wrong usage or configuration, 3 for a Redis that cannot be reached or used, 1 for a refusal by the protocol.
Passwords never appear in a message: addresses go through :func:`mask_url`, and redis-py's own texts are never quoted
where they could hold the arguments of a command.

:func:`classify` reduces any exception of redis-py to a closed set of kinds, fit for a metric label;
:func:`explain` turns it into a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

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
_PIPELINE: Final = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
_CODE: Final = re.compile(r"^([A-Z]{3,})\b")


def _text(exc: BaseException) -> str:
    """The server's own words, without the command that redis-py quotes in front of them in a pipeline."""
    return _PIPELINE.sub("", str(exc))


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
        found = _CODE.match(_text(exc))
        code = found.group(1) if found else ""
    if code in _CODES:
        return _CODES[code]
    # redis-py says by itself that a cluster cannot take keys of several slots at once: that is no lost connection.
    if "same key slot" in str(exc):
        return "other"
    if "user executing the script can't" in _text(exc):  # what a script may not do is refused without a code
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


_ACL_MEND: Final = "`unstuck acl` prints the ACL line that is needed"
_SENTENCES: Final = {
    "timeout": "did not answer in time; look at its load, at SLOWLOG GET and at the network between",
    "auth": "refused the user name or password; set UNSTUCK_REDIS_PASSWORD (or redis_password_file) and the user "
    "in the address",
    "noperm": f"does not give this user the right to a key or channel; {_ACL_MEND}",
    "loading": "is still loading its data; wait until INFO persistence says loading:0",
    "readonly": "is a replica and takes no writes; give the address of the primary, or use sentinel://",
    "oom": "is out of memory and refuses writes; raise maxmemory or let the workers drain the queues",
    "noreplicas": "has too few replicas in reach for min-replicas-to-write; bring the replicas back",
    "busy": "is blocked by a long script; wait, or end it with SCRIPT KILL",
    "misconf": "cannot save to disk and refuses writes (MISCONF); mend its disk, see the Redis log",
    "noscript": "has lost its cached scripts; load them again by running the command once more",
}


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
    sentence = _SENTENCES.get(kind) or _refusal(exc) or _connection(exc)
    if kind == "noperm" and (command := re.search(r"'([^' ]+)' command", _text(exc))):
        sentence = f"does not give this user the right to call {command[1].upper().replace('|', ' ')}; {_ACL_MEND}"
    if sentence and kind == "timeout" and where.startswith("rediss://"):
        sentence += "; if that port does not speak TLS, use redis://"
    if sentence is None:
        if type(exc).__module__.split(".")[0] != "redis":
            return UnstuckError(f"{type(exc).__name__}: {exc}")
        sentence = f"refused: {_text(exc)[:300]}"
    return RedisUnavailable(f"{place} {sentence}", kind=kind, url=where)


_CONNECTION: Final = (
    # (classes of the exception or its cause, parts of its text in lower case, sentence); the first that fits is said.
    (
        ("SSLCertVerificationError",),
        ("certificate verify failed",),
        "shows a TLS certificate that is not trusted; name its authority with ?ssl_ca_certs=FILE",
    ),
    (
        ("SSLError",),
        ("ssl:", "ssl error"),
        "does not speak TLS as asked; use redis:// for a plain port, rediss:// for a TLS port",
    ),
    (
        ("gaierror",),
        ("name or service not known", "name resolution", "nodename nor servname", "no address assoc"),
        "cannot be found: the host name does not resolve; check its spelling and the DNS",
    ),
    (
        ("MaxConnectionsError",),
        ("max number of clients",),
        "takes no more connections; raise maxclients or close idle clients (CLIENT LIST)",
    ),
    (
        ("MasterNotFoundError", "SlaveNotFoundError"),
        (),
        "has no primary that the sentinels know or reach; check the service name and `SENTINEL masters`",
    ),
    (
        (),
        ("cluster mode is not enabled", "cluster support disabled"),
        "is not a cluster; use redis:// instead of cluster://",
    ),
    (
        ("RedisClusterException", "ClusterDownError", "SlotNotCoveredError"),
        (),
        "is a cluster that cannot be reached or does not cover all slots; see CLUSTER INFO",
    ),
    (
        ("InvalidResponse",),
        ("protocol error",),
        "does not answer like Redis; check the port, and use rediss:// if it is a TLS port",
    ),
    (
        ("ConnectionRefusedError",),
        ("refused",),
        "refused the connection; start it, or set --redis or UNSTUCK_REDIS to where it listens",
    ),
    (
        ("PermissionError",),
        ("permission denied",),
        "cannot be opened: no permission on the socket file; mend its mode or run as a user of its group",
    ),
    (
        ("FileNotFoundError",),
        ("no such file",),
        "cannot be opened: the file named in the address does not exist; check the path",
    ),
    (
        (),
        ("unreachable", "no route"),
        "cannot be reached over this network; check the address and the firewall",
    ),
)


def _connection(exc: BaseException) -> str | None:
    """The sentence for a connection that could not be made or kept; None for anything else."""
    if classify(exc) != "connection":
        return None
    names, low = _names(exc), _text(exc).lower()
    for classes, parts, sentence in _CONNECTION:
        if names & set(classes) or any(part in low for part in parts):
            return sentence
    return "closed the connection; see its log, and whether the port expects TLS (rediss://)"


def _names(exc: BaseException) -> set[str]:
    """The class names of an exception, of what it derives from, and of its causes."""
    causes = [cause for cause in (exc, exc.__cause__, exc.__context__) if cause is not None]
    return {cls.__name__ for cause in causes for cls in type(cause).__mro__}


_REFUSALS: Final = (
    (
        ("ClusterCrossSlotError", "CrossSlotTransactionError"),
        ("crossslot", "same key slot"),
        "is a cluster and the keys of one command lie in different slots (CROSSSLOT); use cluster:// as address",
    ),
    (("MovedError", "AskError"), ("moved ",), "is a cluster; use cluster://HOST:PORT as address"),
    (
        (),
        ("db index is out of range", "invalid db index"),
        "does not have that database number; use one below its `databases` setting",
    ),
    (
        (),
        ("unknown command", "unknown redis command", "unknown subcommand"),
        "does not know a command that is needed; Redis 7.0 or Valkey 7.2 is the least version",
    ),
)


def _refusal(exc: BaseException) -> str | None:
    """The sentence for an answer that says the address or the server does not fit; None for anything else."""
    names, low = _names(exc), _text(exc).lower()
    for classes, parts, sentence in _REFUSALS:
        if names & set(classes) or any(part in low for part in parts):
            return sentence
    return None
