"""Messages: alarms in the words of a receiver. Three formats, and the signature that lets a receiver trust one.

The `json` format is described in docs/webhooks.md and docs/webhook.schema.json. Headers follow the Standard Webhooks:
`webhook-id` is the idempotency key (the same at every attempt), `webhook-signature` is HMAC-SHA256 over id, time and body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from unstuck_exporters.alarms import Alarm

ALERTMANAGER_PATH: Final = "/api/v2/alerts"
ALERTMANAGER_REPEAT_SECONDS: Final = 60.0
"""Alertmanager counts an alert as over when it is not repeated; it does the rest of repeating and grouping itself."""
_ALERTMANAGER_LIFE_SECONDS: Final = 300.0
_MOST_LINES: Final = 20
_SLACK_MOST_CHARACTERS: Final = 2900


@dataclass(frozen=True, slots=True)
class Told:
    """One alarm in a message."""

    alarm: Alarm
    ended: float | None = None  # Unix time; None: it fires
    repeat: int = 0  # how often it was told before

    @property
    def status(self) -> str:
        return "firing" if self.ended is None else "resolved"


@dataclass(frozen=True, slots=True)
class Message:
    """What one delivery says."""

    id: str
    at: float  # Unix time
    alarms: tuple[Told, ...]
    agent: str = ""  # version
    source: str = "default"  # which Redis
    test: bool = False

    @property
    def status(self) -> str:
        """`firing` if anything in it fires."""
        return "firing" if any(told.ended is None for told in self.alarms) else "resolved"


def body(message: Message, form: str) -> bytes:
    """The message in a format of the settings."""
    return json.dumps(_FORMATS[form](message), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def headers(message: Message, content: bytes, secret: bytes | None, now: float) -> dict[str, str]:
    """The headers of one attempt at ``now`` (Unix time)."""
    made = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"unstuck/{message.agent or '0'}",
        "Idempotency-Key": message.id,
        "webhook-id": message.id,
        "webhook-timestamp": str(int(now)),
    }
    if secret is not None:
        made["webhook-signature"] = signature(secret, message.id, int(now), content)
    return made


def signature(secret: bytes, message_id: str, timestamp: int, content: bytes) -> str:
    """`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`."""
    signed = f"{message_id}.{timestamp}.".encode() + content
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def secret_of(text: str) -> bytes:
    """The key from a secret file: `whsec_` and base64 as the Standard Webhooks have it, else the text itself."""
    text = text.strip()
    if text.startswith("whsec_"):
        try:
            return base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            raise ValueError("whsec_ must be followed by base64") from None
    if not text:
        raise ValueError("is empty")
    return text.encode()


def iso(at: float) -> str:
    """RFC 3339 in UTC, milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(message: Message) -> Mapping[str, Any]:
    return {
        "version": 1,
        "id": message.id,
        "at": iso(message.at),
        "agent": message.agent,
        "source": message.source,
        "status": message.status,
        "test": message.test,
        "alarms": [
            {
                "fingerprint": told.alarm.fingerprint,
                "rule": told.alarm.rule,
                "status": told.status,
                "severity": told.alarm.severity,
                "backend": told.alarm.backend,
                "queue": told.alarm.queue,
                "summary": told.alarm.summary,
                "since": iso(told.alarm.since),
                "ended": None if told.ended is None else iso(told.ended),
                "repeat": told.repeat,
                "value": told.alarm.value,
                "jobs": list(told.alarm.jobs),
                "jobs_omitted": told.alarm.jobs_omitted,
                "evidence": dict(told.alarm.evidence),
            }
            for told in message.alarms
        ],
    }


def _alertmanager(message: Message) -> Sequence[Mapping[str, Any]]:
    alerts = []
    for told in message.alarms:
        alarm = told.alarm
        places = {"backend": alarm.backend, "queue": alarm.queue}
        ends = told.ended if told.ended is not None else message.at + _ALERTMANAGER_LIFE_SECONDS
        alerts.append(
            {
                "labels": {
                    "alertname": alert_name(alarm.rule),
                    "severity": alarm.severity,
                    "source": message.source,
                    **{name: value for name, value in places.items() if value},
                    **({"test": "true"} if message.test else {}),
                },
                "annotations": {"summary": alarm.summary, "jobs": " ".join(str(job["job"]) for job in alarm.jobs)},
                "startsAt": iso(alarm.since),
                "endsAt": iso(ends),
            }
        )
    return alerts


def alert_name(rule: str) -> str:
    """`stuck_jobs` → `UnstuckStuckJobs`: in the family of the names of alerts/rules.yml, so that routes hold for both."""
    return "Unstuck" + "".join(word.capitalize() for word in rule.split("_"))


def _slack(message: Message) -> Mapping[str, Any]:
    firing = sum(told.ended is None for told in message.alarms)
    title = f"{firing} firing" if firing else "resolved"
    if firing and firing < len(message.alarms):
        title += f", {len(message.alarms) - firing} resolved"
    if message.test:
        title = "this is a test"
    attachments = []
    for told in message.alarms[:_MOST_LINES]:
        alarm = told.alarm
        lines = [f"*{alert_name(alarm.rule)}* {told.status}: {_plain(alarm.summary)}"]
        lines += [
            f"• `{_plain(str(job['job']))}` {_plain(str(job.get('detail') or job.get('reason', '')))}"
            for job in alarm.jobs[:5]
        ]
        more = alarm.jobs_omitted + max(0, len(alarm.jobs) - 5)
        if more:
            lines.append(f"… and {more} more")
        text = "\n".join(lines)[:_SLACK_MOST_CHARACTERS]
        color = "good" if told.ended is not None else "danger" if alarm.severity == "critical" else "warning"
        attachments.append(
            {"color": color, "text": text, "fallback": text, "mrkdwn_in": ["text"], "ts": int(alarm.since)}
        )
    if len(message.alarms) > _MOST_LINES:
        attachments.append({"color": "warning", "text": f"… and {len(message.alarms) - _MOST_LINES} more alarms"})
    return {"text": f"unstuck ({_plain(message.source)}): {title}", "attachments": attachments}


def _plain(text: str) -> str:
    """Text that Slack shows as it is: no mentions, links or code from names in Redis."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'").replace("*", "·")


_FORMATS: Final[Mapping[str, Callable[[Message], Any]]] = {
    "json": _json,
    "slack": _slack,
    "alertmanager": _alertmanager,
}
