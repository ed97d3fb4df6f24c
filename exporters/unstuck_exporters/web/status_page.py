"""The status page: one self-contained page without a script, made from the board.

Everything that comes from Redis is escaped, and the content security policy allows this page's own style and nothing
else, so that a queue name or job id can never become markup.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from unstuck_exporters.view import View

MOST_ROWS: Final = 200
"""Rows of each table; what is left out is said."""

_STYLE: Final = """
:root{color-scheme:light dark;font:15px/1.5 system-ui,sans-serif}
body{max-width:72rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin-bottom:0}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884;vertical-align:top;overflow-wrap:anywhere}
th{font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.bad{color:#c0282d;font-weight:600}.good{color:#1a7f37}.dim{opacity:.7}
@media(prefers-color-scheme:dark){.bad{color:#ff7b72}.good{color:#56d364}}
"""
POLICY: Final = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
)
"""The content security policy that fits this page and nothing else."""


def status_page(view: View) -> str:
    """The page for people."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_title(view)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>unstuck</h1>{_state(view)}{_queues(view)}{_stuck(view)}{_events(view)}"
        '<p class="dim">See also <a href="/metrics">metrics</a>, <a href="/api/v1/status">status as JSON</a>, '
        '<a href="/healthz">health</a>, <a href="/readyz">readiness</a>.</p></body></html>\n'
    )


def _title(view: View) -> str:
    stuck = sum(q.judgement.stuck_jobs for q in view.queues if q.fresh(view.now))
    if not view.redis_up:
        return "unstuck: Redis is away"
    return f"unstuck: {stuck} stuck" if stuck else "unstuck: all is moving"


def _state(view: View) -> str:
    agent, gate = view.agent, view.agent.gate
    lines = [_mark(view.redis_up, "Redis answers", f"Redis is away: {agent.redis_trouble or 'no answer yet'}")]
    if gate is not None:
        wait = f", opens in {age(gate.opens_in)} if nothing else happens" if gate.opens_in > 0 else ""
        lines.append(_mark(gate.open, "The gate is open", f"The gate is closed: {', '.join(gate.reasons)}{wait}"))
    roles = {
        "leader": f"This agent leads (epoch {agent.epoch})",
        "follower": f"This agent follows {agent.leader or 'another one'}, which shows the queues",
        "alone": "This agent may not write, so it observes alone",
        "starting": "This agent has not yet asked for the lease",
    }
    lines.append(escape(roles[agent.role.value]))
    if reason := view.not_ready():
        lines.append(f'<span class="bad">Not ready: {escape(reason)}</span>')
    lines += [
        f'<span class="bad">Duty {escape(d.name)} is {age(d.overdue(view.now))} late</span>' for d in view.overdue
    ]
    if view.queues_dropped:
        lines.append(f'<span class="bad">{view.queues_dropped} queues are too many to show</span>')
    return "<p>" + ".<br>".join(lines) + ".</p>"


def _queues(view: View) -> str:
    if not view.exports_queues:
        return ""
    rows = []
    for q in view.queues:
        name = (q.backend, q.queue)
        if q.look is None or not q.fresh(view.now):
            rows.append((*name, "", "", "", "", "", "", "", q.trouble or "no fresh data"))
            continue
        s = q.look.snapshot
        notes = [
            q.trouble,
            "paused" if s.paused else "",
            "braked" if q.brake.engaged else "",
            "" if q.reclaims_allowed else "observed only",
        ]
        rows.append(
            (
                *name,
                str(s.waiting),
                age(s.oldest_waiting),
                str(s.scheduled),
                str(s.running),
                str(s.live_workers),
                str(q.judgement.stuck_jobs),
                str(s.dead),
                ", ".join(filter(None, notes)),
            )
        )
    heads = ("backend", "queue", "waiting", "oldest", "scheduled", "running", "workers", "stuck", "dead", "")
    return _table("Queues", heads, rows, numbers=range(2, 9), none="No queue has been found yet.")


def _stuck(view: View) -> str:
    if not view.exports_queues:
        return ""
    rows = [
        (
            v.backend,
            v.queue,
            v.lease.job,
            v.lease.worker,
            v.standing.value,
            v.reason.value if v.reason else "",
            age(v.unchanged),
            v.detail,
        )
        for q in view.queues
        if q.fresh(view.now)
        for v in q.judgement.verdicts
    ]
    heads = ("backend", "queue", "job", "worker", "verdict", "reason", "no sign of life", "")
    return _table("Stuck and suspect jobs", heads, rows, numbers=(6,), none="None.")


def _events(view: View) -> str:
    rows = [
        (age(view.wall - e.at) + " ago", e.kind, e.backend, e.queue, e.job, e.worker, e.detail or e.reason)
        for e in reversed(view.events[-50:])
    ]
    heads = ("", "event", "backend", "queue", "job", "worker", "")
    return _table("Latest events", heads, rows, none="Nothing has happened yet.")


def _table(
    title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, numbers: Iterable[int] = (), none: str
) -> str:
    if not rows:
        return f"<h2>{title}</h2><p>{none}</p>"
    right = set(numbers)

    def cells(tag: str, row: tuple[str, ...]) -> str:
        return "".join(f"<{tag}{' class=n' if i in right else ''}>{escape(cell)}</{tag}>" for i, cell in enumerate(row))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows[:MOST_ROWS])
    more = f'<p class="dim">and {len(rows) - MOST_ROWS} more</p>' if len(rows) > MOST_ROWS else ""
    return f"<h2>{title}</h2><table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>{more}"


def _mark(good: bool, yes: str, no: str) -> str:
    return f'<span class="{"good" if good else "bad"}">{escape(yes if good else no)}</span>'


def age(seconds: float | None) -> str:
    """A duration for people: 0.4 s, 12 s, 3 min, 2.5 h, 4 d; empty for none."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"
