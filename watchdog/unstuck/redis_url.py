"""The address of a Redis, in every form that unstuck takes.

========================================================  ================================================
``redis://[user[:password]@]host[:port][/db]``            one server
``rediss://…``                                            the same over TLS
``unix:///path/to.sock[?db=N]``                           a socket file (user and password before the path)
``sentinel://[user:password@]h1:p1,h2:p2/SERVICE[/db]``   the primary that the sentinels name, now and later
``cluster://[user:password@]h1:p1,h2:p2``                 a cluster, from any of these nodes
========================================================  ================================================

Options behind ``?``: ``db``, ``tls=true`` (sentinel and cluster), ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``,
``ssl_cert_reqs`` (required, optional, none), ``ssl_check_hostname``, and for sentinels that ask for their own password
``sentinel_username``, ``sentinel_password``. Time-outs and retries are not options of the address: unstuck sets them
for each kind of call (:mod:`unstuck.connections`).
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote

from unstuck.errors import ConfigurationError, mask_url
from unstuck.spelling import did_you_mean

Form = Literal["redis", "rediss", "unix", "sentinel", "cluster"]
FORMS: Final[dict[str, Form]] = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "sentinel": "sentinel",
    "cluster": "cluster",
}
_OPTIONS: Final = (
    "db",
    "tls",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "sentinel_username",
    "sentinel_password",
)
_EXAMPLE: Final = "write it like redis://127.0.0.1:6379/0"
_DEFAULT_PORT: Final = {"sentinel": 26379}


class RedisUrl:
    """A parsed address. ``str()`` and ``repr()`` never show a password; :meth:`reveal` gives the whole text.

    ``hosts`` are (host, port) pairs; ``path`` is set for ``unix`` only, ``service`` for ``sentinel`` only. It is not a
    dataclass on purpose: encoders write those out field by field, the password included.
    """

    __slots__ = ("db", "form", "hosts", "options", "password", "path", "service", "tls", "username")

    def __init__(
        self,
        form: Form,
        hosts: tuple[tuple[str, int], ...] = (),
        *,
        path: str = "",
        service: str = "",
        db: int = 0,
        username: str | None = None,
        password: str | None = None,
        tls: bool = False,
        options: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.form: Final = form
        self.hosts: Final = hosts
        self.path: Final = path
        self.service: Final = service
        self.db: Final = db
        self.username: Final = username
        self.password: Final = password
        self.tls: Final = tls
        self.options: Final = options

    @classmethod
    def parse(cls, text: object) -> RedisUrl:
        """Read an address; ConfigurationError with the fault and its mend, the password masked, if it has no sense."""
        if not isinstance(text, str):
            raise ConfigurationError(f"{text!r} is no address; {_EXAMPLE}")
        try:
            return _parse(text)
        except ValueError as fault:
            raise ConfigurationError(f"address {mask_url(text)!r}: {fault}") from None

    def with_credentials(self, username: str | None, password: str | None) -> RedisUrl:
        """The same place with another user or password; None keeps what is there."""
        return RedisUrl(
            self.form,
            self.hosts,
            path=self.path,
            service=self.service,
            db=self.db,
            username=username or self.username,
            password=password if password is not None else self.password,
            tls=self.tls,
            options=self.options,
        )

    def option(self, name: str) -> str | None:
        """The value of an option behind ``?``, None if it was not given."""
        return dict(self.options).get(name)

    def reveal(self) -> str:
        """The address with its passwords, for handing to a child process' environment; never for a log."""
        return self._render(quote(self.password, safe="") if self.password is not None else None, hide=False)

    def __str__(self) -> str:
        return self._render("***" if self.password is not None else None, hide=True)

    def __repr__(self) -> str:
        return f"RedisUrl({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedisUrl) and self.reveal() == other.reveal()

    def __hash__(self) -> int:
        return hash(self.reveal())

    def _render(self, password: str | None, *, hide: bool) -> str:
        user = quote(self.username, safe="") if self.username else ""
        auth = f"{user}:{password}@" if password is not None else f"{user}@" if user else ""
        place = self.path if self.form == "unix" else ",".join(f"{_bracket(h)}:{p}" for h, p in self.hosts)
        if self.form == "sentinel":
            place += f"/{quote(self.service, safe='')}"
        options = [
            (k, "***" if hide and k.endswith("password") else quote(v, safe="/")) for k, v in self.options if k != "db"
        ]
        if self.form == "unix" and self.db:
            options.append(("db", str(self.db)))
        elif self.form in ("redis", "rediss") or self.db:
            place += f"/{self.db}"
        query = "&".join(f"{k}={v}" for k, v in options)
        return f"{self.form}://{auth}{place}" + (f"?{query}" if query else "")


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _parse(text: str) -> RedisUrl:
    scheme, mark, rest = text.strip().partition("://")
    form = FORMS.get(scheme.lower())
    if not mark or form is None:
        if mark:
            raise ValueError(f"{scheme!r} is no form of Redis address{did_you_mean(scheme, FORMS)}; {_EXAMPLE}")
        raise ValueError(f"the form in front of :// is missing; {_EXAMPLE}")
    rest, _, fragment = rest.partition("#")
    if fragment:
        raise ValueError("a # in a password must be written %23")
    rest, _, query = rest.partition("?")
    options = _options(query)
    # The last @ ends the credentials, so that a password with a bare @ in it still works.
    auth, at, place = rest.rpartition("@")
    username, password = _credentials(auth) if at else (None, None)
    tls = form == "rediss" or _truth("tls", options.get("tls", "false"))
    kept = tuple(sorted((k, v) for k, v in options.items() if k != "db"))
    if form == "unix":
        if not place.startswith("/"):
            raise ValueError("the path of the socket file must be absolute, as in unix:///run/redis/redis.sock")
        return RedisUrl(
            form,
            path=unquote(place),
            db=_db(options.get("db", "0")),
            username=username,
            password=password,
            options=kept,
        )
    netloc, _, path = place.partition("/")
    hosts = tuple(_host(part, _DEFAULT_PORT.get(form, 6379)) for part in netloc.split(","))
    if len(hosts) > 1 and form in ("redis", "rediss"):
        raise ValueError("several hosts need sentinel://h1:p1,h2:p2/SERVICE or cluster://h1:p1,h2:p2")
    service = ""
    if form == "sentinel":
        service, _, path = path.partition("/")
        service = unquote(service)
        if not service:
            raise ValueError("the service name is missing, as in sentinel://host:26379/mymaster")
    db = _db(options.get("db", path.strip("/") or "0"))
    if form == "cluster" and db:
        raise ValueError("a cluster has only database 0; leave the number out")
    return RedisUrl(form, hosts, service=service, db=db, username=username, password=password, tls=tls, options=kept)


def _credentials(auth: str) -> tuple[str | None, str | None]:
    username, colon, password = auth.partition(":")
    return unquote(username) or None, unquote(password) if colon else None


def _host(part: str, default_port: int) -> tuple[str, int]:
    host, port = part, ""
    if part.startswith("["):
        host, bracket, after = part[1:].partition("]")
        if not bracket:
            raise ValueError("the ] of the IPv6 address is missing")
        port = after.removeprefix(":")
    elif part.count(":") == 1:
        host, _, port = part.partition(":")
    elif ":" in part:
        raise ValueError("an IPv6 address stands in brackets, as in redis://[::1]:6379/0")
    if not host:
        raise ValueError(f"the host is missing; {_EXAMPLE}")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"port {port!r} is not a number from 1 to 65535; a / # ? or : in a password is written %XX")
    return unquote(host), int(port) if port else default_port


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"database {text!r} is not a number; {_EXAMPLE}")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(f"{name} is {text!r}; write true or false")
    return text.lower() in ("true", "1", "yes")


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(
                f"unknown option {name!r}{did_you_mean(name, _OPTIONS)}; time-outs and retries are set by unstuck"
                " (redis_timeout)"
            )
    if options.get("ssl_cert_reqs", "required") not in ("required", "optional", "none"):
        raise ValueError("ssl_cert_reqs is one of required, optional, none")
    _truth("ssl_check_hostname", options.get("ssl_check_hostname", "true"))
    return options
