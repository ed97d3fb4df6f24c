"""Messages: three formats, the signature, and what never stands in one."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from support.json_schema import faults
from unstuck_exporters.alarms import Alarm
from unstuck_exporters.messages import Message, Told, alert_name, body, headers, secret_of, signature
from unstuck_exporters.webhook import trial

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "webhook.schema.json").read_text())
JOB = {"job": "j1", "worker": "w1", "reason": "worker_gone", "detail": "gone", "evidence": {"attempt": 1}}
STUCK = Alarm(
    "stuck_jobs", "2 jobs of rq/mail are stuck", 1_700_000_000.0, 2, "rq", "mail", (JOB,), 1, {"mode": "observe"}
)
AWAY = Alarm("redis_away", "Redis does not answer the agent", 1_700_000_100.0, 1)


def message(*told: Told, **more) -> Message:
    return Message("msg_" + "0" * 32, 1_700_000_200.5, told or (Told(STUCK),), "1.2.3", **more)


def sent(form: str, *told: Told, **more):
    return json.loads(body(message(*told, **more), form))


class TestJson:
    def test_it_is_what_the_schema_describes(self):
        for one in (
            message(),
            message(Told(AWAY), Told(STUCK, ended=1_700_000_300.0, repeat=2)),
            trial(1.0, agent="1"),
        ):
            assert list(faults(SCHEMA, json.loads(body(one, "json")))) == []

    def test_the_example_of_the_documentation_is_what_the_schema_describes(self):
        example = (DOCS / "webhooks.md").read_text().split("```json\n")[1].split("```")[0]
        assert list(faults(SCHEMA, json.loads(example))) == []

    def test_it_carries_ids_evidence_and_times(self):
        told = sent("json")
        assert (told["status"], told["at"], told["test"]) == ("firing", "2023-11-14T22:16:40.500Z", False)
        (alarm,) = told["alarms"]
        assert alarm["jobs"] == [JOB]
        assert (alarm["since"], alarm["ended"], alarm["jobs_omitted"]) == ("2023-11-14T22:13:20.000Z", None, 1)

    def test_it_is_resolved_only_when_nothing_in_it_fires(self):
        assert sent("json", Told(STUCK, ended=1.0), Told(AWAY))["status"] == "firing"
        assert sent("json", Told(STUCK, ended=1.0))["status"] == "resolved"

    def test_the_fingerprint_stays_when_the_alarm_comes_back(self):
        first, later = Told(STUCK), Told(Alarm("stuck_jobs", "another", 9.0, 7, "rq", "mail"))
        assert first.alarm.fingerprint == later.alarm.fingerprint != AWAY.fingerprint


class TestAlertmanager:
    def test_it_fires_with_labels_times_and_ids(self):
        (alert,) = sent("alertmanager", source="eu")
        assert alert == {
            "labels": {
                "alertname": "UnstuckStuckJobs",
                "severity": "warning",
                "source": "eu",
                "backend": "rq",
                "queue": "mail",
            },
            "annotations": {"summary": "2 jobs of rq/mail are stuck", "jobs": "j1"},
            "startsAt": "2023-11-14T22:13:20.000Z",
            "endsAt": "2023-11-14T22:21:40.500Z",
        }

    def test_it_resolves_with_the_same_labels_and_the_time_of_the_end(self):
        (fires,), (ends,) = sent("alertmanager"), sent("alertmanager", Told(STUCK, ended=1_700_000_100.0))
        assert (ends["labels"], ends["endsAt"]) == (fires["labels"], "2023-11-14T22:15:00.000Z")

    def test_a_test_cannot_be_taken_for_the_real_thing(self):
        (alert,) = json.loads(body(trial(1.0, agent="1"), "alertmanager"))
        assert alert["labels"]["test"] == "true"

    def test_what_concerns_no_queue_has_no_empty_labels(self):
        (alert,) = sent("alertmanager", Told(AWAY))
        assert set(alert["labels"]) == {"alertname", "severity", "source"}
        assert alert_name("redis_away") == "UnstuckRedisAway"


class TestSlack:
    def test_it_says_in_one_line_what_is_the_matter(self):
        assert sent("slack")["text"] == "unstuck (default): 1 firing"
        assert sent("slack", Told(STUCK, ended=1.0))["text"] == "unstuck (default): resolved"
        assert sent("slack", Told(STUCK, ended=1.0), Told(AWAY))["text"] == "unstuck (default): 1 firing, 1 resolved"

    def test_the_colour_tells_how_bad_it_is(self):
        told = sent("slack", Told(AWAY), Told(STUCK), Told(STUCK, ended=1.0))
        assert [part["color"] for part in told["attachments"]] == ["danger", "warning", "good"]

    def test_names_from_redis_can_mention_nobody(self):
        bad = Alarm("stuck_jobs", "x", 1.0, 1, "rq", "mail", ({"job": "<!channel>`*", "detail": "<@U1> & *bold*"},))
        text = sent("slack", Told(bad))["attachments"][0]["text"]
        assert "<" not in text
        assert "`&lt;!channel&gt;'·`" in text

    def test_a_hundred_alarms_stay_readable(self):
        told = sent("slack", *(Told(Alarm("stuck_jobs", "x" * 5000, 1.0, 1, "rq", f"q{n}")) for n in range(50)))
        assert len(told["attachments"]) == 21
        assert all(len(part["text"]) < 3000 for part in told["attachments"])


class TestSignature:
    def test_it_is_that_of_the_standard_webhooks(self):
        """The example of the standard's own reference libraries."""
        secret = secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
        told = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
        assert told == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    def test_a_plain_secret_is_taken_as_it_is(self):
        made = headers(message(), b"{}", secret_of(" swordfish \n"), 1_700_000_000.9)
        signed = f"{made['webhook-id']}.{made['webhook-timestamp']}.".encode() + b"{}"
        expected = base64.b64encode(hmac.new(b"swordfish", signed, hashlib.sha256).digest()).decode()
        assert made["webhook-signature"] == f"v1,{expected}"
        assert made["webhook-timestamp"] == "1700000000"

    def test_without_a_secret_nothing_pretends_to_be_signed(self):
        made = headers(message(), b"{}", None, 1.0)
        assert "webhook-signature" not in made
        assert made["Idempotency-Key"] == made["webhook-id"] == "msg_" + "0" * 32

    @pytest.mark.parametrize("text", ["", " \n", "whsec_not base64!"])
    def test_an_empty_or_broken_secret_is_refused(self, text):
        with pytest.raises(ValueError, match=r"empty|base64"):
            secret_of(text)


def test_a_name_that_is_no_text_still_makes_a_message():
    assert sent("json", Told(Alarm("stuck_jobs", "x", 1.0, 1, "rq", "mail\udc80")))["alarms"][0]["queue"] == "mail?"
