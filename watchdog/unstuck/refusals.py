"""What each failure of Redis means to a person: the part of the sentence behind "Redis at …", with its mend.

What may go wrong: redis-py tells many failures only by its text, which changes with its versions and may quote the
arguments of a command. So it is looked at here and never shown; :func:`unstuck.errors.explain` makes the sentence whole.
"""

from __future__ import annotations

import re
from typing import Final

_PIPELINE: Final = re.compile(r"^Command # \d+ \(.*?\) of pipeline caused error: ", re.DOTALL)
ACL_MEND: Final = "`unstuck acl` prints the ACL line that is needed"
SENTENCES: Final = {
    "timeout": "did not answer in time; look at its load, at SLOWLOG GET and at the network between",
    "auth": "refused the user name or password; set UNSTUCK_REDIS_PASSWORD (or redis_password_file) and the user "
    "in the address",
    "noperm": f"does not give this user the right to a key or channel; {ACL_MEND}",
    "loading": "is still loading its data; wait until INFO persistence says loading:0",
    "readonly": "is a replica and takes no writes; give the address of the primary, or use sentinel://",
    "oom": "is out of memory and refuses writes; raise maxmemory or let the workers drain the queues",
    "noreplicas": "has too few replicas in reach for min-replicas-to-write; bring the replicas back",
    "busy": "is blocked by a long script; wait, or end it with SCRIPT KILL",
    "misconf": "cannot save to disk and refuses writes (MISCONF); mend its disk, see the Redis log",
    "noscript": "has lost its cached scripts; load them again by running the command once more",
}
"""What a failure of each kind means, where the kind alone says it."""


def own_words(exc: BaseException) -> str:
    """The server's own words, without the command that redis-py quotes in front of them in a pipeline."""
    return _PIPELINE.sub("", str(exc))


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
        ("unknown command 'sentinel'", "unknown command `sentinel`"),
        "is no Sentinel; use redis:// for a plain Redis, or give the address of a Sentinel",
    ),
    (
        (),
        ("unknown command", "unknown redis command", "unknown subcommand"),
        "does not know a command that is needed; Redis 7.0 or Valkey 7.2 is the least version",
    ),
)


def connection(exc: BaseException) -> str:
    """The sentence for a connection that could not be made or kept."""
    names, low = class_names(exc), own_words(exc).lower()
    for classes, parts, sentence in _CONNECTION:
        if names & set(classes) or any(part in low for part in parts):
            return sentence
    return "closed the connection; see its log, and whether the port expects TLS (rediss://)"


def refusal(exc: BaseException) -> str | None:
    """The sentence for an answer that says the address or the server does not fit; None for anything else."""
    names, low = class_names(exc), own_words(exc).lower()
    for classes, parts, sentence in _REFUSALS:
        if names & set(classes) or any(part in low for part in parts):
            return sentence
    return None


def timeout_over_tls(exc: BaseException) -> str:
    """The sentence for no answer in time where TLS was asked for: a plain port keeps silent about the handshake."""
    waited = any("handshake" in str(cause) for cause in _causes(exc))
    what = "did not answer the TLS handshake in time" if waited else SENTENCES["timeout"]
    return f"{what}; if that port does not speak TLS, use redis://"


def class_names(exc: BaseException) -> set[str]:
    """The class names of an exception, of what it derives from, and of its causes."""
    return {cls.__name__ for cause in _causes(exc) for cls in type(cause).__mro__}


def _causes(exc: BaseException) -> list[BaseException]:
    return [cause for cause in (exc, exc.__cause__, exc.__context__) if cause is not None]
