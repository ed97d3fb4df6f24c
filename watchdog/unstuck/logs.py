"""Structured logs: one line per thing that happened, for a person at a terminal or as JSON. Payloads never appear.

`say(logger, level, "requeued", backend="rq", queue="mail", job=…)`: the event is the message, the fields are the record's
`fields`. Values are shortened; control characters are escaped, so that no name from Redis can forge a line.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

MOST_CHARACTERS: Final = 500


class TextFormat(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO requeued queue=mail job=42`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        words = [_stamp(record), record.levelname, record.getMessage()]
        words += [f"{name}={_shown(value)}" for name, value in fields.items() if value not in ("", None)]
        if record.exc_info:
            words.append(f"error={_shown(_exception(record))}")
        return " ".join(words)


class JsonFormat(logging.Formatter):
    """One JSON object per line: time, level, event, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _stamp(record), "level": record.levelname.lower(), "event": record.getMessage()}
        line |= {name: _plain(value) for name, value in getattr(record, "fields", {}).items() if value is not None}
        if record.exc_info:
            line["error"] = _exception(record)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(form: str = "text", level: str = "info") -> None:
    """Send the log of `unstuck` to standard error in this form; called by commands, never at import."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if form == "json" else TextFormat())
    for name in ("unstuck", "unstuck_exporters"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # the schedule tells of its own trouble


def say(logger: logging.Logger, level: int, event: str, /, **fields: Any) -> None:
    """Log one event with its fields."""
    logger.log(level, event, extra={"fields": fields})


def _stamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exception(record: logging.LogRecord) -> str:
    kind, value, _ = record.exc_info or (None, None, None)
    return f"{kind.__name__}: {value}" if kind else ""


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, bool, dict, list)) else str(value)[:MOST_CHARACTERS]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    plain = str(value)[:MOST_CHARACTERS]
    quoted = json.dumps(plain, ensure_ascii=False)
    return quoted if any(sign in plain for sign in ' "=\\') or quoted[1:-1] != plain or not plain else plain
