"""`unstuck dashboards`: what somebody with an installed package gets the dashboards from."""

import json

from dashboards.reading import FOLDER, UIDS
from support.cli import run_cli


def test_without_a_name_it_lists_every_dashboard_with_its_uid_and_its_question():
    ran = run_cli("dashboards")
    assert ran.code == 0
    lines = ran.stdout.splitlines()
    assert [line.split()[1] for line in lines] == list(UIDS)
    assert all(line.endswith("?") for line in lines)


def test_a_name_or_a_uid_prints_that_dashboard_and_nothing_else():
    assert run_cli("dashboards", "queue").json()["uid"] == "unstuck-queue"
    assert run_cli("dashboards", "unstuck-queue").json()["uid"] == "unstuck-queue"


def test_a_name_that_is_almost_right_is_told_which_it_was_meant_to_be():
    ran = run_cli("dashboards", "overveiw")
    assert ran.code == 2
    assert ran.stderr == "unstuck: there is no dashboard overveiw, did you mean `overview`?\n"


def test_a_name_that_is_like_no_other_is_told_which_there_are():
    ran = run_cli("dashboards", "zzz")
    assert ran.code == 2
    assert "overview, queue, reclaims, agent, pacing" in ran.stderr


def test_all_are_written_into_a_folder_that_need_not_exist_and_again_over_the_old_ones(tmp_path):
    folder = tmp_path / "not" / "yet"
    for _ in range(2):
        ran = run_cli("dashboards", "--out", folder)
        assert ran.code == 0
        assert ran.stdout.split() == [str(folder / f"{uid}.json") for uid in UIDS]
    for uid in UIDS:
        shipped = FOLDER / f"{uid.removeprefix('unstuck-')}.json"
        assert json.loads((folder / f"{uid}.json").read_text()) == json.loads(shipped.read_text())


def test_one_alone_can_be_written(tmp_path):
    assert run_cli("dashboards", "agent", "--out", tmp_path).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["unstuck-agent.json"]


def test_a_folder_that_cannot_be_written_is_one_sentence_and_exit_status_2(tmp_path):
    (tmp_path / "file").touch()
    ran = run_cli("dashboards", "--out", tmp_path / "file" / "under")
    assert ran.code == 2
    assert "cannot be written" in ran.stderr
    assert ran.stderr.count("\n") == 1
