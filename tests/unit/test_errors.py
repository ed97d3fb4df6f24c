"""Every way in which Redis can refuse has a kind for metrics and a sentence for people."""

import pytest
from redis import exceptions as e
from redis.sentinel import MasterNotFoundError

from unstuck import errors
from unstuck.errors import KINDS, classify, explain, mask_url

URL = "redis://me:hush@db.example:6379/0"
CASES = [
    (e.ConnectionError("Error 111 connecting to db:1. Connection refused."), "connection", "refused the connection"),
    (e.ConnectionError("Error -2 connecting to db:1. Name or service not known."), "connection", "does not resolve"),
    (e.ConnectionError("Error 2 connecting to unix socket: /x. No such file or directory."), "connection", "path"),
    (e.ConnectionError("Error 13 connecting to unix socket: /x. Permission denied."), "connection", "no permission"),
    (e.ConnectionError("Error 101 connecting to db:1. Network is unreachable."), "connection", "over this network"),
    (e.ConnectionError("Connection closed by server."), "connection", "closed the connection"),
    (e.ConnectionError("max number of clients reached"), "connection", "raise maxclients"),
    (e.MaxConnectionsError("Too many connections"), "connection", "takes no more connections"),
    (e.ConnectionError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "connection", "does not speak TLS"),
    (e.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "connection", "ssl_ca_certs"),
    (e.InvalidResponse("Protocol Error: b'HTTP/1.1'"), "connection", "does not answer like Redis"),
    (MasterNotFoundError("No master found for 'x'"), "connection", "no primary that the sentinels know"),
    (e.RedisClusterException("Redis Cluster cannot be connected."), "connection", "is a cluster that cannot be"),
    (e.RedisClusterException("Cluster mode is not enabled on this node"), "connection", "is not a cluster"),
    (e.TimeoutError("Timeout reading from socket"), "timeout", "did not answer in time"),
    (TimeoutError("timed out"), "timeout", "did not answer in time"),
    (ConnectionRefusedError(111, "Connection refused"), "connection", "refused the connection"),
    (e.AuthenticationError("invalid username-password pair or user is disabled."), "auth", "UNSTUCK_REDIS_PASSWORD"),
    (e.ResponseError("NOAUTH Authentication required."), "auth", "refused the user name or password"),
    (e.ResponseError("WRONGPASS invalid"), "auth", "refused the user name or password"),
    (
        e.NoPermissionError("this user has no permissions to run the 'config|get' command"),
        "noperm",
        "the right to call CONFIG GET",
    ),
    (e.ResponseError("NOPERM No permissions to access a key"), "noperm", "the right to a key or channel"),
    (
        e.ResponseError("The user executing the script can't run this command script: ab"),
        "noperm",
        "the right to a key",
    ),
    (e.BusyLoadingError("Redis is loading the dataset in memory"), "loading", "is still loading"),
    (e.ReadOnlyError("You can't write against a read only replica."), "readonly", "is a replica"),
    (e.MasterDownError("Link with MASTER is down"), "readonly", "is a replica"),
    (e.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "oom", "out of memory"),
    (e.ResponseError("OOM command not allowed when used memory"), "oom", "out of memory"),
    (e.ResponseError("NOREPLICAS Not enough good replicas to write."), "noreplicas", "min-replicas-to-write"),
    (e.ResponseError("BUSY Redis is busy running a script."), "busy", "SCRIPT KILL"),
    (e.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "misconf", "cannot save to disk"),
    (e.ResponseError("WRONGTYPE Operation against a key"), "wrongtype", "holds another type"),
    (e.NoScriptError("No matching script."), "noscript", "lost its cached scripts"),
    (e.ClusterCrossSlotError("Keys in request don't hash to the same slot"), "other", "CROSSSLOT"),
    (e.ResponseError("CROSSSLOT Keys in request don't hash"), "other", "CROSSSLOT"),
    (e.RedisClusterException("MGET - all keys must map to the same key slot"), "other", "CROSSSLOT"),
    (e.MovedError("866 127.0.0.1:7001"), "other", "use cluster://"),
    (e.ResponseError("DB index is out of range"), "other", "database number"),
    (e.ResponseError("unknown command 'EVAL_RO'"), "other", "least version"),
    (e.ResponseError("unknown command 'SENTINEL', with args beginning with: 'MASTERS' "), "other", "is no Sentinel"),
    (e.ResponseError("something new"), "other", "refused: something new"),
]


@pytest.mark.parametrize(
    ("exc", "kind", "words"), CASES, ids=[f"{type(c[0]).__name__}-{n}" for n, c in enumerate(CASES)]
)
def test_an_exception_has_a_kind_and_a_sentence_with_place_and_mend(exc, kind, words):
    assert classify(exc) == kind
    found = explain(exc, URL)
    assert found.exit_code == 3
    assert words in str(found)
    assert "db.example" in str(found)
    assert "hush" not in str(found)
    assert classify(found) == kind


def test_every_kind_is_reached_and_no_other():
    assert {kind for _, kind, _ in CASES} == set(KINDS)


@pytest.mark.parametrize(
    ("text", "kind"), [("OOM command not allowed", "oom"), ("NOREPLICAS Not enough", "noreplicas")]
)
def test_what_a_pipeline_puts_in_front_hides_neither_the_kind_nor_shows_the_arguments(text, kind):
    exc = e.ResponseError(f"Command # 2 (HSET job payload hush, with (brackets)) of pipeline caused error: {text}")
    assert classify(exc) == kind
    assert "hush" not in str(explain(exc, URL))


def test_the_real_cause_of_a_refused_transaction_counts():
    exc = e.ExecAbortError("Transaction discarded because of previous errors.")
    exc.__cause__ = e.ResponseError("OOM command not allowed")
    assert classify(exc) == "oom"


def test_a_timeout_over_tls_says_that_the_port_may_be_plain():
    assert "use redis://" in str(explain(e.TimeoutError("Timeout connecting"), "rediss://h:6379"))


def test_a_handshake_without_an_answer_says_that_the_port_is_plain():
    exc = e.TimeoutError("Timeout connecting to server")
    exc.__context__ = TimeoutError("_ssl.c:989: The handshake operation timed out")
    assert str(explain(exc, "rediss://h:6379")) == (
        "Redis at rediss://h:6379 did not answer the TLS handshake in time; if that port does not speak TLS, use redis://"
    )


def test_an_error_of_ours_is_left_as_it_is_and_a_foreign_one_is_no_outage():
    ours = errors.LeaseLost("gone")
    assert explain(ours, URL) is ours
    found = explain(KeyError("x"), URL)
    assert type(found) is errors.UnstuckError
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnstuckError, 1),
        (errors.UsageError, 2),
        (errors.InvalidName, 2),
        (errors.WrongType, 3),
        (errors.VersionMismatch, 3),
        (errors.LeaseLost, 1),
        (errors.Refused, 1),
    ],
)
def test_each_error_has_the_exit_status_of_the_contract(error, code):
    assert error("x").exit_code == code
    assert issubclass(error, errors.UnstuckError)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:pw@h:1/0", "redis://:***@h:1/0"),
        ("redis://u:p@ss@h:1", "redis://u:***@h:1"),
        (
            "sentinel://u:pw@a:1,b:2/m?sentinel_password=x&tls=true",
            "sentinel://u:***@a:1,b:2/m?sentinel_password=***&tls=true",
        ),
    ],
)
def test_a_password_in_an_address_is_masked(url, masked):
    assert mask_url(url) == masked
