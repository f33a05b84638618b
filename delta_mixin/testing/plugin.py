"""The pytest plugin: markers, help beside failures, and a summary per subject of the contract.

It loads in every run of pytest where the package is installed, so it imports neither the suites
nor what they stand on, and a run without a suite of ours is as if the plugin were not there.

1. Tests of a suite carry the marker `saver_contract(subject=...)`.
2. A failure ends with what usually makes the test fail, where to look, and the threads that the
   test wrote, unless its message tells of them already.
3. A run fails in which the suites' own guards were taken out, or every test was skipped. With
   pytest-xdist only the guards that are tests can do that.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import delta_mixin.testing  # noqa: F401 - its import registers assertion rewriting

MARKER = "saver_contract(subject): a test of a SaverContract suite of delta_mixin"
PASSED, FAILED, SKIPPED, EXPECTED = "passed", "failed", "skipped", "failed as expected"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the object that keeps the count."""
    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(_Summary(config), "delta_mixin summary")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of suites by their subject."""
    if part := _part_of(item):
        item.add_marker(pytest.mark.saver_contract(subject=part.subject))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put help and stories below failures, and on each report what it counts as."""
    report = yield
    if part := _part_of(item):
        suite: Any = getattr(item, "cls")  # noqa: B009 - only functions have it
        # Built-in types alone, which travel from pytest-xdist's workers.
        report.saver_contract = [suite.__name__, part.subject, _name(item)]  # type: ignore[attr-defined]
        add = getattr(report.longrepr, "addsection", None)
        if report.failed and call.excinfo and add is not None:
            told = str(call.excinfo.value)
            for thread in getattr(_view(item), "threads", ()):
                if (story := thread.story()) not in told:
                    add("what the test wrote", story.strip("\n"))
            add("help", help_for(part, _name(item)))
    return report


def help_for(part: Any, name: str) -> str:
    """What usually makes a test fail, and where to look: from its docstring or its part.

    Args:
        part: The class that brings the test.
        name: The test's name.
    """
    first, _, rest = (inspect.getdoc(getattr(part, name)) or "").partition("\n\n")
    look_at = rest if rest.startswith("Look at ") else f"Look at {part.look_at}."
    return f"{name}\n{first}\n{look_at}"


class _Summary:
    """Counts the suites' tests, and judges the run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.counts: dict[str, dict[str, Counter[str]]] = {}
        self.reasons: dict[str, Counter[str]] = {}
        self.guards_failed: set[str] = set()
        self.problems: dict[str, list[str]] = {}
        self.whole: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        names: dict[Any, set[str]] = {}
        marks: dict[Any, dict[str, None]] = {}
        for item in items:
            if _part_of(item):
                from delta_mixin.testing._contract import guards

                suite: Any = getattr(item, "cls")  # noqa: B009
                names.setdefault(suite, set()).add(_name(item))
                found = guards.blanket_marks(suite.__name__, item.iter_markers())
                marks.setdefault(suite, {}).update(dict.fromkeys(found))
        for suite, run in names.items():
            self.problems[suite.__name__] = [*marks[suite], *suite.broken_promises()]
            if run >= suite.contract_tests().keys():
                self.whole.add(suite.__name__)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = getattr(report, "saver_contract", None)
        if told is None or (report.when != "call" and report.passed):
            return
        suite, subject, _ = told
        outcome, reason = _outcome(report)
        counts = self.counts.setdefault(suite, {}).setdefault(subject, Counter())
        counts[outcome] += 1
        if reason:
            self.reasons.setdefault(suite, Counter())[f"{outcome}: {reason}"] += 1
        if subject == "guards" and outcome == FAILED:
            self.guards_failed.add(suite)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and any(self._verdict()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.counts:
            return
        write = terminalreporter.write_line
        terminalreporter.section("saver contract")
        for suite, subjects in self.counts.items():
            write(suite)
            for subject, counts in subjects.items():
                told = ", ".join(
                    f"{counts[o]} {o}" for o in (PASSED, FAILED, EXPECTED, SKIPPED) if counts[o]
                )
                write(f"  {subject:<13} {told}", red=bool(counts[FAILED]))
            for reason, count in self.reasons.get(suite, Counter()).items():
                write(f"  {count} {reason}")
        for line in self._verdict():
            write(line, red=True)

    def _verdict(self) -> Iterator[str]:
        """Why the run fails although none of its tests did."""
        for suite, problems in self.problems.items():
            if suite not in self.guards_failed:
                yield from problems
        ran = [
            suite
            for suite, subjects in self.counts.items()
            if any(c[o] for s, c in subjects.items() if s != "guards" for o in c if o != SKIPPED)
        ]
        if self.counts and not ran and self.whole & self.counts.keys():
            yield f"every test of {', '.join(self.counts)} was skipped: nothing is proven"


def _part_of(item: pytest.Item) -> Any:
    """The part of the contract that brings a test, or `None` for any other test."""
    suite: Any = getattr(item, "cls", None)
    if not hasattr(suite, "contract_tests") or not hasattr(suite, "look_at"):
        return None
    from delta_mixin.testing._contract import guards

    name = _name(item)
    return guards.part_of(suite, name) if name in guards.shipped_tests(suite) else None


def _name(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", None) or item.name)


def _view(item: pytest.Item) -> Any:
    return getattr(item, "funcargs", {}).get("view")


def _outcome(report: pytest.TestReport) -> tuple[str, str]:
    if hasattr(report, "wasxfail"):
        return (EXPECTED if report.skipped else PASSED), report.wasxfail
    if report.skipped and isinstance(report.longrepr, tuple):
        return SKIPPED, report.longrepr[2].removeprefix("Skipped: ")
    return (FAILED if report.failed else PASSED), ""
