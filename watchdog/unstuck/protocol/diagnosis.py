"""Name what a script refused: its error codes become exceptions with the place and the mend, in this one room.

Scripts stay quick because they do not describe wrong types themselves: Redis raises a bare WRONGTYPE before their first
write, and only then is every key of the queue asked for its type here, and those of the jobs and workers that the call named.
Plain commands on one key do so in :func:`naming`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unstuck.errors import Deposed, InvalidName, Refused, VersionMismatch, WrongType, classify
from unstuck.protocol import keys

if TYPE_CHECKING:
    from redis import Redis
    from redis.exceptions import ResponseError

_STEM = re.compile(r"(unstuck:\{([^}]*)\}:)")


def translate(client: Redis, key: str, error: ResponseError, args: Sequence[object] = ()) -> Exception:
    """The exception for an error reply of one of our scripts; any other error is returned as it is.

    `args` are those of the call: among them are the names of the jobs and workers whose keys it went to.
    """
    text = re.sub(r"^Command # \d+ .*? of pipeline caused error: ", "", str(error))
    code, _, rest = text.partition(" ")
    rest = re.sub(r" script: [0-9a-f]{40}.*$", "", rest)
    match code:
        case "UNSTUCKVERSION":
            return VersionMismatch(
                f"{key}: field v is {rest[:40]!r}, this is protocol version {keys.VERSION}; "
                "use the unstuck version that made the queue, or drain it and delete its keys"
            )
        case "UNSTUCKNAME":
            what, _, name = rest.rpartition(" ")
            return InvalidName(f"{what} {name[:140]!r}: use 1 to 128 of A-Z a-z 0-9 . _ : - (no colon in queue names)")
        case "UNSTUCKVALUE":
            return Refused(f"{key}: a script was called with a value it cannot take: {rest[:200]}")
        case "UNSTUCKNUMBER":
            place = rest[:300]
            return WrongType(f"{place}: not a whole number; nothing was changed; set it to one, or delete the field")
        case "UNSTUCKFENCED":
            return Deposed(
                f"{key}: a younger leader (epoch {rest[:20]}) has been at this queue; this agent stepped down"
            )
        case _ if "WRONGTYPE" in text.split(" script:")[0]:
            return WrongType(_wrong_type(client, key, error, args))
        case _:
            return error


def wrong_keys(client: Redis, *queues: str) -> list[tuple[str, str, str]]:
    """Fixed keys of some queues that hold another type than the protocol gives them: (key, found, expected)."""
    return _misplaced_among(
        client, ((keys.stem(queue) + part, kind) for queue in queues for part, kind in keys.STRUCTURES.items())
    )


def _misplaced_among(client: Redis, places: Iterable[tuple[str, str]]) -> list[tuple[str, str, str]]:
    asked = list(places)
    pipe = client.pipeline(transaction=False)
    for name, _ in asked:
        pipe.type(name)
    found = map(_word, pipe.execute())
    return [
        (name, there, expected)
        for (name, expected), there in zip(asked, found, strict=True)
        if there not in ("none", expected)
    ]


@contextmanager
def naming(client: Redis, key: str, expected: str) -> Iterator[None]:
    """While this lasts, one key is asked by plain commands. Raises WrongType, with its name, if it is no `expected`."""
    from redis.exceptions import ResponseError

    try:
        yield
    except ResponseError as error:
        if classify(error) != "wrongtype":
            raise
        raise WrongType(misplaced(key, _word(client.type(key)), expected)) from error


def misplaced(name: str, found: str, expected: str) -> str:
    """The sentence for a key of the wrong type."""
    return (
        f"{name} holds a {found} where a {expected} belongs; nothing was changed; "
        f"rename it away (RENAME {name} {name}:aside) and run this again"
    )


def _owners(client: Redis, queue: str, names: Sequence[str]) -> list[str]:
    """The workers that hold those of `names` that are jobs."""
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.hget(keys.job(queue, name), "worker")
    found = pipe.execute(raise_on_error=False)
    return [_word(one) for one in found if isinstance(one, str | bytes)]


def _word(kind: object) -> str:
    return kind.decode() if isinstance(kind, bytes) else str(kind)


def _wrong_type(client: Redis, key: str, error: ResponseError, args: Sequence[object]) -> str:
    matched = _STEM.match(key)
    wrong = wrong_keys(client, matched[2]) if matched else []
    if matched and not wrong:
        names = dict.fromkeys(str(one) for one in args if keys.is_id(one))
        names |= dict.fromkeys(_owners(client, matched[2], list(names)))
        asked = ((f"{matched[1]}{kind}:{name}", type_) for name in names for kind, type_ in keys.NAMED.items())
        wrong = _misplaced_among(client, asked)
    if wrong:
        return misplaced(*wrong[0])
    return f"{key}: a key of this queue holds the wrong type ({error}); nothing was changed"
