"""A receiver of alerts that prints them, one line each: ``receiver.py HOST PORT``. For trying things out, no more."""

import contextlib
import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGEST_BODY = 1_000_000


class Receiver(BaseHTTPRequestHandler):
    """Takes POSTs of Alertmanager's webhooks; answers GET, so that its health can be asked."""

    timeout = 10

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            return self._answer(411)
        if not 0 <= length <= LARGEST_BODY:
            return self._answer(413)
        try:
            document = json.loads(self.rfile.read(length))
            lines = [told(self.path, alert) for alert in document["alerts"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._answer(400)
        for line in lines:
            print(line, flush=True)
        return self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Requests are no news."""


def told(path: str, alert: dict[str, Any]) -> str:
    """`/chat firing JobsRescued mail: Jobs of …`; no sign of an alert can begin a line of its own."""
    labels, notes = alert["labels"], alert.get("annotations", {})
    words = [path, alert["status"], labels["alertname"], labels.get("queue", "-")]
    return f"{' '.join(map(clean, words))}: {clean(notes.get('summary', ''))}"


def clean(text: object) -> str:
    """Printable signs only."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(text))


def main(host: str, port: int) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer((host, port), Receiver)
    print(f"receiver: listening at {host}:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
