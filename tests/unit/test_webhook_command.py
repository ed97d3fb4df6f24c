"""`unstuck webhook test`: one message to each receiver, and what they answered."""

import json

import pytest

from support.hooks import receiving
from support.ports import free_port
from unstuck.cli import main


@pytest.fixture
def unstuck(capsys, tmp_path):
    def unstuck(config: str, *args: str) -> tuple[int, str, str]:
        (tmp_path / "unstuck.yaml").write_text(config)
        with pytest.raises(SystemExit) as ended:
            main(["webhook", "test", "--config", str(tmp_path / "unstuck.yaml"), *args])
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return unstuck


def test_each_receiver_gets_one_message_that_says_that_it_is_a_test(unstuck):
    with receiving() as one, receiving() as other:
        config = f"webhooks:\n  - {{url: '{one.url}'}}\n  - {{url: '{other.url}', format: alertmanager, name: am}}\n"
        assert unstuck(config) == (0, "json-1: delivered (status 200)\nam: delivered (status 200)\n", "")
        assert [post.json()["test"] for post in one.posts] == [True]
        assert [post.path for post in other.posts] == ["/api/v2/alerts"]


def test_one_that_does_not_take_it_makes_the_status_1_and_is_named(unstuck):
    with receiving(404) as there:
        config = f"webhooks:\n  - {{url: '{there.url}/s3cret'}}\n  - {{url: 'http://127.0.0.1:{free_port()}'}}\n"
        code, out, err = unstuck(config, "--json")
        assert (code, err) == (1, "")
        assert json.loads(out)["receivers"] == [
            {"receiver": "json-1", "delivered": False, "detail": "status 404"},
            {"receiver": "json-2", "delivered": False, "detail": "no connection"},
        ]


def test_a_single_one_can_be_chosen(unstuck):
    with receiving() as hooks:
        config = f"webhooks:\n  - {{url: 'http://127.0.0.1:{free_port()}'}}\n  - {{url: '{hooks.url}', name: chat}}\n"
        assert unstuck(config, "--receiver", "chat")[0] == 0
        code, _, err = unstuck(config, "--receiver", "chatt")
        assert (code, err) == (2, "unstuck: there is no receiver 'chatt'; known: json-1, chat\n")


def test_without_a_receiver_it_says_what_to_write(unstuck):
    code, out, err = unstuck("mode: observe\n")
    assert (code, out) == (2, "")
    assert "add one below `webhooks:`" in err
