"""What may be wrong with a configuration, and that each fault names its place, its key and its mend."""

import pytest

from unstuck.config import load
from unstuck.errors import ConfigurationError


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """Load a text that must be refused; give every fault as (place after the file's name, text)."""
    monkeypatch.chdir(tmp_path)

    def faults(text, environ=None, flags=None):
        (tmp_path / "u.yaml").write_text(text)
        with pytest.raises(ConfigurationError) as caught:
            load((tmp_path / "u.yaml").relative_to(tmp_path), environ or {}, flags or {})
        assert caught.value.exit_code == 2
        return [str(problem) for problem in caught.value.problems]

    return faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stuck-after: 60s", "u.yaml:1:1: stuck-after: is not a setting; did you mean `stuck_after`?"),
        ("stuckAfter: 60s", "u.yaml:1:1: stuckAfter: is not a setting; did you mean `stuck_after`?"),
        ("mode: observe\nbrake:\n  shar: 5%", "u.yaml:3:3: brake.shar: is not a setting; did you mean `share`?"),
        ("queues: [{backend: rq, stuck-after: 9s}]", "u.yaml:1:24: queues[0].stuck-after: is not a setting; did you"),
        ("log: {colour: red}", "u.yaml:1:7: log.colour: is not a setting; known in log: format, level"),
        ("mode: reclam", "u.yaml:1:1: mode: 'reclam' is not one of observe, reclaim; did you mean `reclaim`?"),
        ("mode: on", "mode: True is not one of observe, reclaim"),
        ("log: {level: loud}", "'loud' is not one of debug, info, warning, error"),
        ("stuck_after: 60", "stuck_after: a duration needs a unit; write 60s if seconds are meant (or 60ms, 60m)"),
        ("stuck_after: 1:30", "stuck_after: '1:30' is not a duration; write a number and a unit"),
        ("stuck_after: 5 parsecs", "'5 parsecs' is not a duration"),
        ("stuck_after: -5s", "-5s is negative"),
        ("stuck_after: .nan", "nan is not a duration"),
        ("stuck_after: [5s]", "a list is not a duration"),
        ("stuck_after: yes", "True is not a duration"),
        ("stuck_after: 2020-01-01", "'2020-01-01' is not a duration"),
        ("sweep_interval: 0s", "0s is too small; the least is 100ms"),
        ("sweep_interval: 2h", "2h is too large; the most is 1h"),
        ("brake: {share: 0.5}", "brake.share: a share is a percentage; write 50%"),
        ("brake: {share: 150%}", "150% is more than the whole"),
        ("brake: {share: 0%}", "0% is too small"),
        ("brake: {budget: 0}", "brake.budget: 0 is not taken (expected `int` >= 1)"),
        ("brake: {budget: many}", "'many' is not taken (expected `int`, got `str`); write a whole number"),
        ("brake: 5", "u.yaml:1:1: brake: is a section"),
        ("max_rescues: -1", "max_rescues: -1 is not taken"),
        ("max_rescues: 1.5", "max_rescues: 1.5 is not taken"),
        ("pacing: {cache_limit: 512}", "a memory limit needs a unit; write 512mb"),
        ("pacing: {cache_limit: 0%}", "0% is too small"),
        ("pacing: {cache_limit: lots}", "'lots' is no amount of memory"),
        ("pacing: {cache_penalty_factor: .nan}", "pacing.cache_penalty_factor: nan is not taken"),
        ("pacing: {cache_penalty_factor: .inf}", "pacing.cache_penalty_factor: inf is not taken"),
        ("pacing: {cache_penalty_factor: 0}", "pacing.cache_penalty_factor: 0 is not taken"),
        ("pacing: {cache_penalty_factor: -2}", "pacing.cache_penalty_factor: -2 is not taken"),
        ("pacing: {delay_threshold: 0s}", "pacing.delay_threshold: 0s is too small"),
        ("pacing: {backlog_threshold: 0}", "pacing.backlog_threshold: 0 is not taken"),
        ("pacing: {backlog_threshold: -3}", "pacing.backlog_threshold: -3 is not taken"),
        ("pacing: {jitter: 100%}", "100% is too large; the most is 90%"),
        ("pacing: {policy: formul}", "'formul' is not one of formula, fleet, fixed; did you mean `formula`?"),
        ("pacing: {fleet_rate: .nan}", "pacing.fleet_rate: nan is not taken"),
        ("pacing: {fleet_rate: 0}", "pacing.fleet_rate: 0 is not taken"),
        ("pacing: {fleet_rate: -1}", "pacing.fleet_rate: -1 is not taken"),
        ("pacing: {hysteresis: 60%}", "60% is too large; the most is 50%"),
        ("pacing: {base_interval: .nan}", "nan is not a duration"),
        ("pacing: {max_interval: 0s}", "pacing.max_interval: 0s is too small"),
        ("redis: localhost", "redis: address 'localhost': the form in front of :// is missing; write it like"),
        ("redis: 5", "redis: 5 is no address"),
        ("http: {listen: 9797}", "http.listen: 9797 is no address to listen on; write HOST:PORT"),
        ('http: {listen: "h:99999"}', "port 99999 is above 65535"),
        ("http: {tls: {cert: a.pem}}", "http.tls.cert: has no effect without http.tls.key; add http.tls.key"),
        ("http: {basic_auth: [bob]}", "http.basic_auth: is a section"),
        ("queues: {backend: rq}", "u.yaml:1:1: queues: is a list"),
        ("queues: [rq]", "u.yaml:1:10: queues[0]: is a section"),
        ("queues: [{queue: mail}]", "queues[0].backend: is missing; one of unstuck, custom, rq"),
        ("queues: [{backend: sidekik}]", "'sidekik' is not a queue system; did you mean `sidekiq`?"),
        ("queues: [{backend: rq, queue: 5}]", "queues[0].queue: 5 is no name"),
        ("queues: [{backend: rq, lock: x}]", "queues[0].lock: is not a setting"),
        ("queues: [{backend: rq, redis: x}]", "queues[0].redis: is not a setting"),
        ("webhooks: [{format: json}]", "webhooks[0].url: is missing"),
        (
            "webhooks: [{url: http://x, rules: stuck_jobs}]",
            "webhooks[0].rules: 'stuck_jobs' is not a list; write it as [one, another]",
        ),
        (
            "webhooks: [{url: http://x, rules: [stuck_job]}]",
            "webhooks[0].rules: 'stuck_job' is not one of stuck_jobs, dead_letters, brake_engaged, redis_away, backlog_rising; did you mean `stuck_jobs`?",
        ),
        ("webhooks: [{url: http://x, send_resolved: maybe}]", "webhooks[0].send_resolved: 'maybe' is not taken"),
        ("webhooks: [{url: http://x, name: The Pager}]", "webhooks[0].name: 'The Pager' is not taken"),
        ("alarms: {stuck_jobs: 0}", "alarms.stuck_jobs: 0 is not taken"),
        ("webhooks: [{url: ftp://x}]", "webhooks[0].url: no web address; write it like https://host/path"),
        ("mode: observe\nmode: reclaim", "u.yaml:2:1: mode: is given twice, first at u.yaml:1:1; remove one"),
        ("brake: {budget: 1, budget: 2}", "u.yaml:1:20: brake.budget: is given twice"),
        ("mode: [", "u.yaml:1:8: is no valid YAML"),
        ("\tmode: observe", "u.yaml:1:1: is no valid YAML"),
        ("mode: !!python/name:os.system x", "the tag"),
        ("a: &a {b: *a}", "an alias contains itself"),
        ("<<: {mode: reclaim}", "a key must be a plain word"),
        ("just words", "holds no keys"),
        ("- mode", "holds no keys"),
    ],
)
def test_a_fault_in_the_file_names_place_key_and_mend(faults, text, message):
    found = faults(text)
    assert any(message in fault for fault in found), found
    assert all(fault.startswith("u.yaml") for fault in found)


CUSTOM = '{backend: custom, queue: q, pending: {list: p}, in_flight: {list: f}, lock: "l:{id}"}'


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("queue: q", 'queue: "q*"', "queues[0].queue: a custom queue needs one name"),
        ("queue: q, ", "", "queues[0].queue: a custom queue needs one name"),
        ("pending: {list: p}, ", "", "queues[0].pending: is missing; add `pending: {list:"),
        ("{list: p}", "p", "queues[0].pending: names one Redis type and its key"),
        ("{list: p}", "{lst: p}", "queues[0].pending.lst: is no type that can hold ids here; did you mean `list`?"),
        ("{list: p}", "{list: 5}", "queues[0].pending.list: is no key"),
        ("{list: p}", "{list: f}", "queues[0].in_flight: is the same key as pending"),
        ("l:{id}", "l:{job}", "queues[0].lock: holds no {id}"),
        (', lock: "l:{id}"', "", "without lock and heartbeat nothing shows whether a job lives"),
        ('"l:{id}"', '"l:{id}", requeue: top', "'top' is not one of left, right"),
        ('"l:{id}"', '"l:{id}", stuck_after: 9s', "stuck_after 9s is below three heartbeats of 5s"),
    ],
)
def test_a_fault_in_a_custom_layout_names_the_part(faults, before, after, message):
    found = faults(f"queues: [{CUSTOM.replace(before, after)}]")
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "stuck_after: 14s\nabort_after: 9s",
            "u.yaml:1:1: stuck_after: stuck_after 14s is below three heartbeats of 5s",
        ),
        ("heartbeat_interval: 11s", "u.yaml:1:1: heartbeat_interval: stuck_after 30s is below three heartbeats of 11s"),
        ("abort_after: 30s", "abort_after 30s is not below stuck_after 30s; a worker must give up"),
        ("abort_after: 5s", "abort_after 5s is not above heartbeat_interval 5s"),
        ("lock_ttl: 5s", "lock_ttl 5s is not above heartbeat_interval 5s"),
        ("retry_delay: 11m", "max_retry_delay 10m is below retry_delay 11m"),
        ("pacing: {base_interval: 11s}", "pacing.base_interval: base_interval 11s is above max_interval 10s"),
        (
            "queues: [{backend: unstuck, stuck_after: 10s}]",
            "u.yaml:1:29: queues[0].stuck_after: stuck_after 10s is below",
        ),
        ("queues: [{backend: rq, pacing: {max_interval: 1ms}}]", "queues[0].pacing.max_interval: base_interval 200ms"),
    ],
)
def test_thresholds_that_contradict_each_other_are_refused_where_they_were_set(faults, text, message):
    found = faults(text)
    assert any(message in fault for fault in found), found


@pytest.mark.parametrize(
    "text",
    [
        "stuck_after: 15s\nabort_after: 14s",
        "confirm_after: 100ms",
        "queues: [{backend: rq, stuck_after: 10s}]",  # RQ's own heartbeat sets its least threshold, not ours
        "queues: [{backend: unstuck, queue: fast, heartbeat_interval: 1s, stuck_after: 3s, abort_after: 2s}]",
        "pacing: {base_interval: 10s}",
    ],
)
def test_thresholds_at_their_limits_are_taken(tmp_path, text):
    (tmp_path / "u.yaml").write_text(text)
    load(tmp_path / "u.yaml")


def test_every_fault_is_found_in_one_go_and_each_only_once(faults):
    found = faults("mod: x\nstuck_after: 5\nqueues: [{backend: rq}, {backend: rqq}]", {"UNSTUCK_BRAKE_BUDGET": "x"})
    assert len(found) == 4
    assert sum("stuck_after" in fault for fault in found) == 1


def test_the_message_says_how_many_more_faults_there_are(tmp_path):
    (tmp_path / "u.yaml").write_text("a: 1\nb: 2\nc: 3")
    with pytest.raises(ConfigurationError, match=r"u.yaml:1:1: a: .* \(and 2 more; `unstuck check` lists all\)"):
        load(tmp_path / "u.yaml")


def test_a_contradiction_between_file_and_variable_names_the_one_that_can_be_seen(faults):
    found = faults("mode: reclaim", {"UNSTUCK_STUCK_AFTER": "10s"})
    assert found[0].startswith("environment variable UNSTUCK_STUCK_AFTER: stuck_after: stuck_after 10s is below")


def test_a_wrong_flag_is_named_as_it_was_typed(faults):
    assert faults("", flags={"brake.budget": "x"})[0].startswith("flag --brake-budget: brake.budget: 'x' is not taken")
    assert faults("", flags={"stuckafter": "9s"})[0].endswith("did you mean `--stuck-after`?")


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot be read .No such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(ConfigurationError, match=r"cannot be read .Is a directory"):
        load(tmp_path)
    (tmp_path / "latin").write_bytes(b"mode: observe\nlog: \xe9")
    with pytest.raises(ConfigurationError, match="latin:2: is not UTF-8 text"):
        load(tmp_path / "latin")
    (tmp_path / "nul").write_bytes(b"mode: \x00")
    with pytest.raises(ConfigurationError, match="is no valid YAML"):
        load(tmp_path / "nul")
    (tmp_path / "big").write_bytes(b"#" * 1_000_001)
    with pytest.raises(ConfigurationError, match="larger than 1 MB"):
        load(tmp_path / "big")


def test_a_document_without_a_bottom_is_refused_where_it_gets_too_deep(faults):
    too_deep = "is nested more than 50 levels deep; no setting lies that deep; remove it"
    assert faults("a: " + "[" * 3000 + "]" * 3000) == [f"u.yaml:1:53: {too_deep}"]
    assert faults("".join(f"{' ' * n}a:\n" for n in range(300))) == [f"u.yaml:50:50: {too_deep}"]
    chained = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 400))
    assert faults(chained) == [f"u.yaml:1:10: {too_deep}"]


def test_aliases_that_stand_for_millions_of_values_are_refused(faults):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9)]
    (fault,) = faults("\n".join(lines))
    assert "holds more than 50,000 values, those of its aliases counted; write out what its aliases" in fault
    assert fault.startswith("u.yaml:")


def test_a_password_file_that_cannot_be_used_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"UNSTUCK_REDIS_PASSWORD_FILE.*cannot be read"):
        load(None, {"UNSTUCK_REDIS_PASSWORD_FILE": str(tmp_path / "absent")})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty; put the password into it"):
        load(None, {"UNSTUCK_REDIS_PASSWORD_FILE": str(tmp_path / "empty")})


def test_a_password_in_a_wrong_address_is_not_repeated(faults):
    (found,) = faults("redis: redis://me:hush@host:port/0")
    assert "hush" not in found
    assert "port 'port' is not a number" in found
