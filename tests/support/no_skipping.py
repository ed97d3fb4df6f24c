"""A pytest plugin: where CI is set, a skipped test is a failed one. What is not run there is run nowhere."""

import os
from collections.abc import Generator

import pytest


def _forbidden() -> bool:
    return os.environ.get("CI", "").lower() not in {"", "0", "false"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip, from a marker or from within a test, into a failure. Expected failures stay what they are."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _forbidden():
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into an error."""
    report = yield
    if report.skipped and _forbidden():
        report.outcome = "failed"
        report.longrepr = f"skipped as a whole, which CI does not allow: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    """Return what the skip said: pytest gives file, line and reason."""
    said = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return said.removeprefix("Skipped: ")
