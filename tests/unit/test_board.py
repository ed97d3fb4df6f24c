"""The board remembers what happened and knows when that is too old to be shown as the present."""

import threading

import pytest

from support.boards import full_board, server, snapshot, verdict
from unstuck.clock import ManualClock
from unstuck.model import Action, Event, GateState, Lease, Mode, Reason, Reclaimed, Standing, Totals
from unstuck_exporters import history, labels
from unstuck_exporters.board import Board, Paced, Role
from unstuck_exporters.ledger import MOST_VERDICTS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return Board(clock=clock)


def only(board: Board):
    (ledger,) = board.view().queues
    return ledger


def test_a_configured_queue_starts_with_zeros_for_every_reason_and_action(board):
    board.configured("rq", "default", mode=Mode.RECLAIM)
    counts = only(board).counts
    assert counts.detected == {(reason,): 0 for reason in labels.REASONS}
    assert counts.reclaims == {(a, r): 0 for a in labels.ACTIONS for r in labels.REASONS}


def test_a_stuck_job_is_newly_detected_once_however_often_it_is_judged(board):
    for _ in range(3):
        board.judged("unstuck", "mail", [verdict("j1")])
    board.judged("unstuck", "mail", [verdict("j1"), verdict("j2")])
    assert only(board).counts.detected[("worker_dead",)] == 2
    assert only(board).judgement.stuck[("worker_dead",)] == 2


def test_a_job_that_was_cleared_and_is_stuck_again_is_news_again(board):
    for verdicts in ([verdict("j1")], [], [verdict("j1")]):
        board.judged("unstuck", "mail", verdicts)
    assert only(board).counts.detected[("worker_dead",)] == 2


def test_a_closed_gate_makes_nothing_stuck_and_what_was_stuck_before_is_no_news_afterwards(board):
    board.judged("unstuck", "mail", [verdict("j1")])
    board.judged("unstuck", "mail", [verdict("j1", standing=Standing.INCONCLUSIVE)])
    assert only(board).judgement.stuck_jobs == 0
    board.judged("unstuck", "mail", [verdict("j1")])
    assert only(board).counts.detected[("worker_dead",)] == 1


def test_it_says_since_when_the_longest_stuck_job_is_stuck(board, clock):
    board.judged("unstuck", "mail", [verdict("j1", unchanged=45.0), verdict("j2", unchanged=31.0)])
    assert only(board).judgement.since == clock.wall() - 15.0
    board.judged("unstuck", "mail", [])
    assert only(board).judgement.since is None


def test_ten_thousand_verdicts_are_counted_and_a_bounded_number_is_kept_the_worst_first(board):
    many = [verdict(f"j{i}", standing=Standing.SUSPECT) for i in range(9_000)]
    many += [verdict(f"s{i}", unchanged=float(i)) for i in range(1_000)]
    board.judged("unstuck", "mail", many)
    judgement = only(board).judgement
    assert (judgement.stuck_jobs, judgement.suspects, len(judgement.verdicts)) == (1_000, 9_000, MOST_VERDICTS)
    assert judgement.verdicts[0].lease.job == "s999"


def test_the_leases_of_a_look_are_not_kept(board):
    import dataclasses

    board.looked("unstuck", [dataclasses.replace(snapshot(), leases=(Lease("j1"),) * 100)])
    assert only(board).look.snapshot.leases == ()


@pytest.mark.parametrize(
    ("outcome", "where", "key"),
    [
        (Reclaimed("j", Action.REQUEUED), "reclaims", ("requeued", "worker_dead")),
        (Reclaimed("j", Action.DEAD_LETTERED), "reclaims", ("dead_lettered", "worker_dead")),
        (Reclaimed("j", Action.LOST_RACE, cause="heartbeat"), "skipped", ("lost_race",)),
        (Reclaimed("j", Action.SKIPPED, cause="paused"), "skipped", ("paused",)),
        (Reclaimed("j", Action.SKIPPED, cause="Redis said: no such key 42"), "skipped", ("other",)),
    ],
)
def test_each_outcome_of_a_reclaim_has_its_counter(board, outcome, where, key):
    board.reclaimed("unstuck", "mail", Reason.WORKER_DEAD, outcome, delay=1.0)
    assert getattr(only(board).counts, where)[key] == 1
    assert only(board).counts.poison == (outcome.action is Action.DEAD_LETTERED)


def test_a_view_does_not_change_when_more_happens(clock):
    board = full_board(clock)
    view = board.view()
    before = repr(view)
    board.reclaimed("unstuck", "mail", Reason.WORKER_DEAD, Reclaimed("j", Action.REQUEUED), delay=1.0)
    board.redis_answered("look", 1.0)
    board.passed("sweep", 1.0, ok=False)
    board.judged("unstuck", "mail", [])
    assert repr(view) == before


def test_a_look_is_fresh_for_three_sweep_intervals_and_at_least_fifteen_seconds(board, clock):
    board.configured("unstuck", "slow", sweep_interval=10.0)
    board.looked("unstuck", [snapshot("mail"), snapshot("slow")])
    fresh = lambda: {q.queue for q in board.view().queues if q.fresh(board.view().now)}  # noqa: E731
    clock.advance(15.0)
    assert fresh() == {"mail", "slow"}
    clock.advance(0.1)
    assert fresh() == {"slow"}
    clock.advance(15.0)
    assert fresh() == set()


def test_a_look_that_could_not_read_a_queue_lets_the_one_before_grow_old(board, clock):
    import dataclasses

    board.looked("unstuck", [snapshot()])
    clock.advance(10)
    board.looked("unstuck", [dataclasses.replace(snapshot(), error="wrong type of unstuck:{mail}:pending")])
    assert only(board).trouble == "wrong type of unstuck:{mail}:pending"
    clock.advance(6)
    assert not only(board).fresh(clock.monotonic())
    board.looked("unstuck", [snapshot()])
    assert (only(board).trouble, only(board).fresh(clock.monotonic())) == ("", True)


def test_too_many_queues_are_counted_and_configured_ones_have_precedence(clock):
    board = Board(queue_limit=3, clock=clock)
    board.looked("unstuck", [snapshot(f"q{i}") for i in range(5)])
    assert (len(board.view().queues), board.view().queues_dropped) == (3, 2)
    board.configured("rq", "important")
    assert ("rq", "important") in {(q.backend, q.queue) for q in board.view().queues}
    assert len(board.view().queues) == 3


def test_a_discovered_queue_that_is_gone_leaves_the_board_and_a_configured_one_stays(board, clock):
    board.configured("unstuck", "kept")
    board.looked("unstuck", [snapshot("passing"), snapshot("kept")])
    clock.advance(601)
    board.looked("unstuck", [])
    assert [q.queue for q in board.view().queues] == ["kept"]


def test_each_cause_that_newly_closes_the_gate_is_counted_once(board):
    for reasons in (("loading",), ("loading", "young"), (), ("loading",)):
        board.gated(GateState(open=not reasons, reasons=reasons))
    closings = board.view().agent.gate_closings
    assert (closings[("loading",)], closings[("young",)], closings[("oom",)]) == (2, 1, 0)


def test_leading_is_a_transition_only_when_it_begins_or_ends(board):
    for _ in range(3):
        board.leads(5)
    board.follows("deposed")
    board.follows()
    transitions = board.view().agent.transitions
    assert transitions == {("acquired",): 1, ("lost",): 0, ("released",): 0, ("deposed",): 1}
    assert board.view().agent.role is Role.FOLLOWER


def test_redis_is_up_only_while_it_answers(board, clock):
    assert not board.view().redis_up
    board.redis_answered("look", 0.001)
    assert board.view().redis_up
    board.redis_failed("look", "timeout", 1.0, "no answer in time")
    assert not board.view().redis_up
    board.redis_answered("look", 0.001)
    clock.advance(16)
    assert not board.view().redis_up, "an agent that hangs must not say that Redis is up"


def test_a_duty_is_overdue_when_no_pass_ends_within_its_deadline_however_bad_the_passes_are(board, clock):
    board.expects("sweep", 10.0)
    clock.advance(9)
    board.passed("sweep", 0.1, ok=False, detail="Redis is away")
    clock.advance(9)
    assert board.view().overdue == ()
    board.missed("sweep")
    clock.advance(2)
    (late,) = board.view().overdue
    assert (late.name, late.overdue(clock.monotonic()), late.missed) == ("sweep", 1.0, 1)
    board.retired("sweep")
    assert board.view().overdue == ()


def test_it_is_ready_once_a_sweep_is_complete_or_a_leader_is_seen(clock):
    sweeper, follower = Board(clock=clock), Board(clock=clock)
    for board in (sweeper, follower):
        assert "Redis" in board.view().not_ready()
        board.redis_answered("look", 0.001)
        assert "first sweep" in board.view().not_ready()
    sweeper.swept()
    follower.follows(leader_seen=False)
    assert "no leader" in follower.view().not_ready()
    follower.follows(leader_seen=True)
    assert (sweeper.view().not_ready(), follower.view().not_ready()) == ("", "")


def test_the_last_five_hundred_events_are_kept(board):
    board.happened(Event(str(i), 0.0) for i in range(600))
    events = board.view().events
    assert (len(events), events[0].kind, events[-1].kind) == (500, "100", "599")


def test_half_an_hour_of_history_is_kept_with_the_rate_of_finished_jobs(board, clock):
    import dataclasses

    for i in range(200):
        totals = Totals(completed=30 * i)
        board.looked("unstuck", [dataclasses.replace(snapshot(), waiting=i, totals=totals, oldest_waiting=None)])
        clock.advance(history.STEP)
    points = board.history("unstuck", "mail")
    assert len(points) == history.POINTS
    assert (points[-1].waiting, points[-1].throughput, points[-1].oldest_waiting) == (199, 2.0, None)
    assert board.history("unstuck", "unknown") == ()


def test_a_published_interval_has_the_time_of_its_publication(board, clock):
    board.paced("unstuck", "mail", Paced(0.2, 0.2, 0, 0, 0))
    assert only(board).paced.at == clock.wall()


@pytest.mark.parametrize("text", ["WRONGTYPE Operation against a key", "a b", "", "x" * 65])
def test_a_sentence_never_becomes_a_label(board, text):
    board.redis_failed(text, text)
    board.skipped("unstuck", "mail", text)
    board.reclaim_failed("unstuck", "mail", text)
    board.notified(text, 0.1, ok=True)
    board.published(text, 1)
    agent = board.view().agent
    assert {key for key, count in agent.redis_errors.items() if count} == {("other", "other")}
    assert set(agent.notifications) == set(agent.publications) == {("other",)}
    assert only(board).counts.skipped[("other",)] == only(board).counts.failures[("other",)] == 1


def test_counters_with_open_labels_are_bounded(board):
    for i in range(1_000):
        board.redis_failed(f"operation{i}", "timeout", 0.1)
    agent = board.view().agent
    assert len(agent.redis_errors) <= 129
    assert len(agent.commands) <= 65
    assert sum(agent.redis_errors.values()) == 1_000


def test_eight_threads_lose_no_count(board):
    def work() -> None:
        for _ in range(300):
            board.skipped("unstuck", "mail", "brake")
            board.redis_answered("look", 0.001)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert only(board).counts.skipped[("brake",)] == 2_400
    assert sum(board.view().agent.commands["look"].counts) == 2_400


def test_what_redis_told_of_itself_grows_old(board, clock):
    board.saw_server(server(clock))
    assert board.view().server_fresh
    clock.advance(15.1)
    assert not board.view().server_fresh
