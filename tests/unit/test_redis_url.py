"""The address of Redis in all its forms."""

import pytest

from unstuck.errors import ConfigurationError
from unstuck.redis_url import RedisUrl


@pytest.mark.parametrize(
    ("text", "form", "hosts", "db"),
    [
        ("redis://h", "redis", (("h", 6379),), 0),
        ("redis://h:7/3", "redis", (("h", 7),), 3),
        ("redis://[::1]:7/", "redis", (("::1", 7),), 0),
        ("rediss://h?db=2", "rediss", (("h", 6379),), 2),
        ("sentinel://a,b:7/mymaster/2", "sentinel", (("a", 26379), ("b", 7)), 2),
        ("cluster://a:1,b:2", "cluster", (("a", 1), ("b", 2)), 0),
    ],
)
def test_a_form_is_read(text, form, hosts, db):
    made = RedisUrl.parse(text)
    assert (made.form, made.hosts, made.db) == (form, hosts, db)
    assert RedisUrl.parse(made.reveal()) == made


def test_a_socket_file_may_have_a_database_and_a_password():
    made = RedisUrl.parse("unix://u:p%40@/run/redis.sock?db=4")
    assert (made.path, made.db, made.username, made.password) == ("/run/redis.sock", 4, "u", "p@")
    assert str(made) == "unix://u:***@/run/redis.sock?db=4"
    assert RedisUrl.parse(made.reveal()) == made


def test_special_characters_of_a_password_survive_and_are_not_shown():
    made = RedisUrl.parse("redis://u:a%2Fb%40c%3A%23@h:1/0")
    assert made.password == "a/b@c:#"
    assert RedisUrl.parse(made.reveal()).password == "a/b@c:#"
    assert "a/b" not in repr(made) + str(made)
    assert RedisUrl.parse("redis://u:a@b@h").password == "a@b"


def test_the_passwords_of_sentinels_are_kept_apart_and_not_shown():
    made = RedisUrl.parse("sentinel://:pw@a/m?sentinel_password=spw&tls=true")
    assert (made.password, made.option("sentinel_password"), made.tls) == ("pw", "spw", True)
    assert "pw" not in str(made).replace("sentinel_password", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost:6379", "the form in front of :// is missing; write it like redis://127.0.0.1:6379/0"),
        ("http://h", "'http' is no form of Redis address"),
        ("reddis://h", "did you mean `redis`?"),
        ("redis://", "the host is missing"),
        ("redis://h:x", "port 'x' is not a number"),
        ("redis://h:0", "port '0' is not a number"),
        ("redis://h/x", "database 'x' is not a number"),
        ("redis://::1/0", "an IPv6 address stands in brackets"),
        ("redis://[::1", "the ] of the IPv6 address is missing"),
        ("redis://a:1,b:2", "several hosts need sentinel://"),
        ("redis://:p#w@h", "a # in a password must be written %23"),
        ("unix://relative.sock", "must be absolute"),
        ("sentinel://a:1", "the service name is missing"),
        ("cluster://a:1/2", "a cluster has only database 0"),
        ("redis://h?socket_timeout=5", "unknown option 'socket_timeout'"),
        ("rediss://h?ssl_ca_cert=x", "did you mean `ssl_ca_certs`?"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs is one of"),
        ("cluster://h?tls=perhaps", "write true or false"),
    ],
)
def test_an_address_without_sense_is_refused_with_the_mend(text, message):
    with pytest.raises(ConfigurationError) as caught:
        RedisUrl.parse(text)
    assert message in str(caught.value)
