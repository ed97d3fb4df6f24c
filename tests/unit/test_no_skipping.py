"""A skip that nobody notices is a hole in the tests."""

CASES = {
    "within": "import pytest\ndef test_it(): pytest.skip('no server')",
    "marker": "import pytest\n@pytest.mark.skip(reason='no server')\ndef test_it(): pass",
    "condition": "import pytest\n@pytest.mark.skipif(True, reason='no server')\ndef test_it(): pass",
    "fixture": "import pytest\n@pytest.fixture\ndef it(): pytest.skip('no server')\ndef test_it(it): pass",
    "module": "import pytest\npytest.skip('no server', allow_module_level=True)",
}
EXPECTED_FAILURE = "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_it(): assert False"


def run(processes, folder, ci: str | None):
    for how, text in CASES.items():
        (folder / f"test_{how}.py").write_text(text)
    (folder / "test_expected.py").write_text(EXPECTED_FAILURE)
    options = ("-p", "support.no_skipping", "-p", "no:valkey", "-p", "no:cacheprovider", "-rA")
    more = ("--continue-on-collection-errors", "--import-mode=importlib")
    # Other plugins take most of the time to start, and are not asked.
    env = {"CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return processes.python("-m", "pytest", *options, *more, env=env, cwd=folder)


def test_every_kind_of_skip_is_a_failure_in_ci_and_an_expected_failure_is_none(processes, tmp_path):
    process = run(processes, tmp_path, "true")
    assert process.wait() == 1
    for how in CASES:
        assert f"test_{how}.py" in process.stdout.partition("short test summary")[2]
    assert "1 failed, 1 xfailed, 4 errors" in process.stdout
    assert "which CI does not allow: no server" in process.stdout


def test_a_skip_is_a_skip_elsewhere(processes, tmp_path):
    process = run(processes, tmp_path, None)
    assert process.wait() == 0
    assert "5 skipped, 1 xfailed" in process.stdout
