"""The command line: errors are one line and an exit status, commands are loaded when used."""

import json
import os
import pkgutil
import shlex
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from redis.exceptions import ConnectionError as RedisConnectionError

import unstuck.commands
from support.cli import run_cli
from support.processes import child_env
from unstuck.cli import COMMANDS, main
from unstuck.commands.options import settings_options
from unstuck.errors import LeaseLost, RedisUnavailable


@pytest.fixture
def run_raising(monkeypatch):
    """Run the group with a command that raises; give the result."""

    def run_raising(error):
        @click.command()
        def command():
            raise error

        monkeypatch.setattr(type(main), "list_commands", lambda self, ctx: ["check"])
        monkeypatch.setattr(type(main), "get_command", lambda self, ctx, name: command)
        return CliRunner().invoke(main, ["check"])

    return run_raising


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (LeaseLost("the job has another attempt"), 1, "unstuck: the job has another attempt\n"),
        (RedisUnavailable("Redis is\naway", kind="connection"), 3, "unstuck: Redis is away\n"),
        (RedisConnectionError("Error 111 connecting to h:1. Connection refused."), 3, "unstuck: Redis refused the"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line_on_standard_error_and_an_exit_status(run_raising, error, code, line):
    result = run_raising(error)
    assert result.exit_code == code
    assert line in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert result.stdout == ""


def test_a_fault_in_the_program_keeps_its_traceback(run_raising):
    assert isinstance(run_raising(ZeroDivisionError("x")).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["chekc"], "there is no command 'chekc', did you mean `check`?"),
        (["check", "--redsi", "x"], "--redis"),
        (["check", "superfluous"], "unexpected extra argument"),
        (["check", "--config"], "--config"),
    ],
)
def test_wrong_usage_ends_with_2_and_the_nearest_right_spelling(args, words):
    ran = run_cli(*args)
    assert ran.code == 2
    assert words in ran.stderr
    assert ran.stderr.startswith("unstuck: ")
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == ""


def test_the_version_is_printed():
    ran = run_cli("--version")
    assert (ran.code, ran.stdout) == (0, f"unstuck {unstuck.__version__}\n")


def test_every_command_file_is_in_the_list_and_has_an_example_in_its_help():
    names = {module.name for module in pkgutil.iter_modules(unstuck.commands.__path__)} - {"options"}
    context = click.Context(main)
    for name in names:
        command = main.get_command(context, name.replace("_", "-"))
        if command is None:  # a helper of another command, not one by itself
            assert name not in COMMANDS
            continue
        assert "Example" in (command.help or ""), name


def test_help_lists_the_commands_without_importing_them():
    ran = run_cli("--help")
    assert ran.code == 0
    assert COMMANDS["check"] in ran.stdout
    assert COMMANDS["schema"] in ran.stdout


def test_the_list_of_commands_says_what_each_command_says_of_itself():
    context = click.Context(main)
    said = {name: main.get_command(context, name).get_short_help_str(1000) for name in COMMANDS}
    assert said == COMMANDS
    assert "waiting" in said["cancel"], "it buries waiting jobs as well"


def test_the_schema_is_one_json_document():
    ran = run_cli("schema")
    assert ran.code == 0
    assert ran.json()["properties"]["brake"]["properties"]["budget"]["default"] == 500


def test_flags_of_settings_reach_the_command_and_beat_the_environment(monkeypatch):
    @click.command()
    @settings_options("sweep_interval", "brake.budget")
    def command(settings):
        click.echo(f"{settings.sweep_interval} {settings.brake.budget} {settings.redis}")

    monkeypatch.setenv("UNSTUCK_SWEEP_INTERVAL", "4s")
    monkeypatch.setenv("UNSTUCK_BRAKE_BUDGET", "4")
    monkeypatch.setenv("UNSTUCK_XYZZY", "4")
    result = CliRunner().invoke(command, ["--sweep-interval", "3s", "--redis", "redis://h:1"])
    assert result.stdout == "3s 4 redis://h:1/0\n"
    assert "UNSTUCK_XYZZY is not a setting and is ignored" in result.stderr


def test_a_flag_for_a_setting_that_does_not_exist_is_a_fault_of_the_program():
    with pytest.raises(KeyError):
        settings_options("sweep")


def test_check_lists_every_fault_of_a_file_and_ends_with_2(tmp_path):
    (tmp_path / "u.yaml").write_text("stuck_after: 5\nmodee: observe\n")
    ran = run_cli("check", "--config", tmp_path / "u.yaml")
    assert (ran.code, ran.stdout) == (2, "")
    assert "u.yaml:1:1: stuck_after: a duration needs a unit" in ran.stderr
    assert "u.yaml:2:1: modee: is not a setting; did you mean `mode`?" in ran.stderr
    as_json = run_cli("check", "--json", "--config", tmp_path / "u.yaml")
    assert as_json.code == 2
    assert [entry["status"] for entry in as_json.json()["checks"]] == ["error", "error"]
    assert as_json.stderr == ""
    json.dumps(as_json.json())


def run_with_output(words, redirection, **env):
    """Run a command as a shell does, with its standard output sent elsewhere; buffered, as for people."""
    command = f"exec {shlex.quote(sys.executable)} -m unstuck {words} {redirection}"
    env = {**child_env(), "PYTHONUNBUFFERED": "", **env}
    ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False, env=env, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr.decode()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["schema", "--version", "check --json --config /nowhere", "dashboards --help"])
def test_an_output_that_cannot_be_written_is_one_sentence(words, unbuffered):
    code, _, said = run_with_output(words, "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert (code, said) == (
        2,
        "unstuck: the output could not be written (No space left on device); make room or send it elsewhere\n",
    )
    code, _, said = run_with_output(words, ">&-", PYTHONUNBUFFERED=unbuffered)
    assert (code, said) == (2, "unstuck: standard output is closed; send it to a file or to /dev/null\n")


def test_a_closed_standard_error_changes_no_exit_status():
    code, out, _ = run_with_output("check --redis redis://127.0.0.1:1", "2>&-")
    assert code == 3
    assert "configuration" in out.decode()


def test_a_reader_that_has_seen_enough_is_no_fault():
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "unstuck", "schema"],
            check=False,
            stdout=write,
            stderr=subprocess.PIPE,
            env={**child_env(), "PYTHONUNBUFFERED": ""},
            timeout=60,
        )
    finally:
        os.close(write)
    assert (ran.returncode, ran.stderr) == (1, b"")


def test_a_sign_that_the_outputs_encoding_lacks_becomes_a_question_mark():
    code, out, said = run_with_output("dead --help", "", PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert (code, said) == (0, "")
    assert out
    code, out, said = run_with_output("check --redis redis://127.0.0.1:1", "", PYTHONIOENCODING="latin-1")
    assert code == 3
    assert out.startswith(b"? configuration ")
    assert "Traceback" not in said
