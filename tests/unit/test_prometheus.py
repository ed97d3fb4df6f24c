"""A scrape says what is, in the words of the catalogue, in a form that the official parsers and promtool accept."""

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from support.boards import full_board, snapshot, verdict
from support.programs import program
from unstuck.clock import ManualClock
from unstuck.model import Action, Capability, QueueSnapshot, Reason, Reclaimed
from unstuck_exporters import labels
from unstuck_exporters.board import Board, Paced
from unstuck_exporters.catalogue import markdown
from unstuck_exporters.exposition import OPENMETRICS, PLAIN, Family, stored_counts
from unstuck_exporters.prometheus import FAMILIES, Exporter, content_type
from unstuck_exporters.tally import JOB_BUCKETS, Histogram

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return full_board(clock)


def text(board: Board, *, openmetrics: bool = False) -> str:
    return b"".join(Exporter(board).render(openmetrics=openmetrics)).decode()


def samples(board: Board) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (s.name, frozenset(s.labels.items())): s.value for family in parse_text(text(board)) for s in family.samples
    }


def value(board: Board, name: str, **own: str) -> float | None:
    """The value of the one sample with these labels among its own; None if there is none."""
    found = [v for (n, ls), v in samples(board).items() if n == name and own.items() <= dict(ls).items()]
    assert len(found) <= 1, found
    return found[0] if found else None


def names(board: Board) -> set[str]:
    return {line.split()[2] for line in text(board).splitlines() if line.startswith("# TYPE")}


def test_every_family_of_the_catalogue_has_its_type_help_and_labels(board):
    by_name = {f.name: f for f in FAMILIES}
    assert len(by_name) == len(FAMILIES)
    seen = {}
    for family in parse_text(text(board)):
        name = family.name + "_total" if family.type == "counter" else family.name
        seen[name] = (family.type, family.documentation, {frozenset(s.labels) - {"le"} for s in family.samples})
    assert seen == {f.name: (f.kind, f.help, {frozenset(f.labels)}) for f in FAMILIES}


def test_the_page_of_metrics_is_the_one_that_the_exporter_describes():
    assert (ROOT / "docs/metrics.md").read_text() == markdown(), (
        "docs/metrics.md is behind: python -m unstuck_exporters.catalogue > docs/metrics.md"
    )


def test_every_metric_is_documented():
    page = (ROOT / "docs/metrics.md").read_text()
    assert [f.name for f in FAMILIES if f"| `{f.name}` |" not in page] == []


def test_promtool_finds_nothing_to_complain_about(board):
    promtool = program("promtool", package="prometheus")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text(board), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_are_read_by_the_official_parsers_and_say_the_same(board, openmetrics):
    parse = parse_openmetrics if openmetrics else parse_text
    told = {
        (s.name, frozenset(s.labels.items())): s.value
        for f in parse(text(board, openmetrics=openmetrics))
        for s in f.samples
    }
    assert told == samples(board)


def test_no_label_can_name_a_job_a_worker_or_a_host(board):
    used = {label for f in FAMILIES for label in f.labels} | {"le"}
    assert used <= labels.ALLOWED_NAMES
    assert used.isdisjoint({"job", "instance", "job_id", "id", "worker", "host", "token", "error", "type", "service"})
    assert "j1" not in re.sub(r"# \{.*", "", text(board))
    assert "host:1" not in text(board, openmetrics=True)


def test_job_ids_are_exemplars_of_reclaim_delays_in_openmetrics_only(board):
    exemplars = [s.exemplar for f in parse_openmetrics(text(board, openmetrics=True)) for s in f.samples if s.exemplar]
    (exemplar,) = exemplars
    assert (exemplar.labels, exemplar.value) == ({"job_id": "j1"}, 2.2)
    assert "# {" not in text(board)


def test_an_exemplar_that_openmetrics_would_refuse_for_its_length_is_left_out(board):
    board.reclaimed("unstuck", "mail", Reason.WORKER_DEAD, Reclaimed("x" * 128, Action.REQUEUED), delay=50.0)
    list(parse_openmetrics(text(board, openmetrics=True)))
    assert "xxx" not in text(board, openmetrics=True)


def test_there_are_no_created_series(board):
    assert "_created" not in text(board, openmetrics=True)


def test_it_writes_what_the_snapshot_says(board, clock):
    q = {"backend": "unstuck", "queue": "mail"}
    now = clock.wall()
    expected = {
        "waiting": 3, "scheduled": 2, "running": 4, "dead": 5, "failed": 0, "quarantined": 1,
    }  # fmt: skip
    assert {s: value(board, "unstuck_queue_jobs", state=s, **q) for s in labels.JOB_STATES} == expected
    assert value(board, "unstuck_queue_oldest_job_timestamp_seconds", **q) == now - 12.5
    assert value(board, "unstuck_queue_latency_seconds", **q) == 12.5
    assert value(board, "unstuck_queue_workers", state="lost", **q) == 1
    assert value(board, "unstuck_lock_soonest_expiry_timestamp_seconds", **q) == now + 5
    assert value(board, "unstuck_stuck_jobs", reason="worker_dead", **q) == 1
    assert value(board, "unstuck_stuck_oldest_timestamp_seconds", **q) == now - 10
    assert value(board, "unstuck_reclaims_total", action="requeued", reason="worker_dead", **q) == 1
    assert value(board, "unstuck_reclaims_total", action="requeued", reason="never_started", **q) == 0
    assert value(board, "unstuck_jobs_finished_total", **q) == 12, "10 done and 2 of 4 failures not retried"
    assert value(board, "unstuck_jobs_failed_total", **q) == 2
    assert value(board, "unstuck_queue_findings", kind="no_worker", **q) == 3
    assert value(board, "unstuck_reclaim_dry_run") == 0


def test_stored_buckets_become_a_cumulative_histogram_in_seconds(board):
    bucket = {le: value(board, "unstuck_job_queue_wait_seconds_bucket", le=le) for le in ("0.05", "0.5", "1.0", "+Inf")}
    assert bucket == {"0.05": 1, "0.5": 1, "1.0": 3, "+Inf": 4}
    assert value(board, "unstuck_job_queue_wait_seconds_count") == 4
    assert value(board, "unstuck_job_queue_wait_seconds_sum") == 4.0


def test_a_stored_bound_that_is_not_ours_loses_no_observation():
    assert stored_counts((1.0, 5.0), {"1000": 1, "2000": 2, "9000": 3, "inf": 4}) == [1, 2, 7]


def test_heartbeat_ages_have_a_last_bucket_of_all_that_beat(board):
    ages = {le: value(board, "unstuck_heartbeat_age_seconds_bucket", le=le) for le in ("1.0", "60.0", "900.0", "+Inf")}
    assert ages == {"1.0": 0, "60.0": 3, "900.0": 3, "+Inf": 3}


def test_an_empty_queue_is_zeros_and_its_ages_are_absent(clock):
    board = Board(clock=clock)
    board.leads(1)
    board.looked("rq", [QueueSnapshot("rq", "default", Capability.RECLAIM, server_ms=1)])
    assert {value(board, "unstuck_queue_jobs", state=s) for s in labels.JOB_STATES} == {0}
    assert value(board, "unstuck_queue_latency_seconds") == 0
    assert value(board, "unstuck_stuck_jobs", reason="worker_dead") == 0
    absent = {"oldest_job_timestamp", "oldest_running_timestamp"}
    assert not [n for n in names(board) if any(part in n for part in absent)]


def test_what_a_system_does_not_tell_is_absent_and_never_zero(clock):
    board = Board(clock=clock)
    board.leads(1)
    board.looked("rq", [QueueSnapshot("rq", "default", Capability.RECLAIM, waiting=1)])
    untold = {"unstuck_jobs_finished_total", "unstuck_job_duration_seconds", "unstuck_locks_held",
              "unstuck_heartbeat_age_seconds", "unstuck_queue_latency_seconds", "unstuck_poll_interval_seconds",
              "unstuck_cache_invalidations_total", "unstuck_queue_prefetched_jobs"}  # fmt: skip
    assert names(board).isdisjoint(untold)


def test_old_data_is_absent_while_the_agent_its_counters_and_redis_up_stay(board, clock):
    clock.advance(15.1)
    left = names(board)
    assert value(board, "unstuck_redis_up") == 0
    assert {"unstuck_build_info", "unstuck_collector_success", "unstuck_leader"} <= left
    assert value(board, "unstuck_reclaims_total", action="requeued", reason="worker_dead") == 1
    gone = {"unstuck_queue_jobs", "unstuck_stuck_jobs", "unstuck_queue_latency_seconds", "unstuck_poll_score_ratio",
            "unstuck_redis_memory_used_bytes", "unstuck_clock_offset_seconds", "unstuck_jobs_finished_total"}  # fmt: skip
    assert left.isdisjoint(gone)


def test_a_follower_exports_no_queue_families(board):
    board.follows("lost")
    assert 'queue="mail"' not in text(board)
    assert value(board, "unstuck_leader") == 0
    board.alone()
    assert 'queue="mail"' in text(board)


def test_a_queue_that_could_not_be_read_says_so(board):
    assert value(board, "unstuck_queue_readable") == 1
    board.looked("unstuck", [dataclasses.replace(snapshot(), error="WRONGTYPE")])
    assert value(board, "unstuck_queue_readable") == 0


def test_the_number_of_series_does_not_depend_on_jobs(board):
    before = len(samples(board))
    board.judged("unstuck", "mail", [verdict(f"j{i}") for i in range(5_000)])
    for i in range(500):
        board.reclaimed("unstuck", "mail", Reason.WORKER_DEAD, Reclaimed(f"j{i}", Action.REQUEUED), delay=1.0)
    assert len(samples(board)) == before


@pytest.mark.parametrize("queue", ['a"b', "a\\b", "a\nb", "a{b}", "100%d", "ümlaut", "\ud800", "%(x)s"])
@pytest.mark.parametrize("openmetrics", [False, True])
def test_any_queue_name_is_written_so_that_it_can_be_read_back(clock, queue, openmetrics):
    board = Board(clock=clock)
    board.leads(1)
    board.looked("rq", [QueueSnapshot("rq", queue, Capability.RECLAIM, waiting=7)])
    board.paced("rq", queue, Paced(0.2, 0.2, 0, 0, 0))
    parse = parse_openmetrics if openmetrics else parse_text
    families = {f.name: f for f in parse(text(board, openmetrics=openmetrics))}
    read = {s.labels["queue"] for s in families["unstuck_queue_jobs"].samples}
    assert read == {queue.encode("utf-8", "replace").decode()}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 1e300])
def test_numbers_that_are_none_are_written_as_the_formats_want_them(board, number):
    board.paced("unstuck", "mail", Paced(number, 0.2, 0, 0, 0))
    told = value(board, "unstuck_poll_interval_seconds")
    assert told == pytest.approx(number, nan_ok=True)


def test_a_broken_family_is_left_out_and_counted_and_the_others_stand(board, caplog):
    def broken(_scene: object) -> list[str]:
        raise KeyError("no")

    exporter = Exporter(board, (Family("unstuck_bad", "gauge", "Bad", (), broken), *FAMILIES))
    b"".join(exporter.render())
    body = b"".join(exporter.render()).decode()
    assert "unstuck_bad" not in body
    assert "unstuck_exporter_family_failures_total 1" in body
    assert "unstuck_queue_jobs{" in body
    assert "metric family left out" in caplog.text


def test_a_second_scrape_shows_what_has_changed_and_keeps_what_has_not(board):
    exporter = Exporter(board)
    first = b"".join(exporter.render())
    assert b"".join(exporter.render()) == first
    board.skipped("unstuck", "mail", "budget", 3)
    board.looked("unstuck", [dataclasses.replace(snapshot(), waiting=99)])
    again = b"".join(exporter.render())
    assert again == b"".join(Exporter(board).render())
    assert again != first


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain;version=0.0.4", PLAIN),
        ("application/openmetrics-text", OPENMETRICS),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain",
            OPENMETRICS,
        ),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;version=pear", PLAIN),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", PLAIN),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept, chosen):
    assert content_type(accept) == chosen


def test_a_histogram_refuses_what_is_no_duration():
    histogram = Histogram(JOB_BUCKETS)
    for seconds in (float("nan"), float("inf"), -1.0, 0.05, 4000.0):
        histogram.observe(seconds)
    assert (sum(histogram.counts), histogram.counts[0], histogram.counts[-1]) == (3, 2, 1)


def test_a_setting_that_carries_its_unit_is_exported_as_a_plain_number() -> None:
    from unstuck.config import Seconds
    from unstuck_exporters.exposition import number

    assert number(Seconds(0.2)) == "0.2"
