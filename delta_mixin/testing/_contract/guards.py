"""Guards: a suite that is cut down must not look like one that passes.

The suite runs them as tests of its own. The pytest plugin asks them once more at the end, since
what takes tests out of a suite can take the guards out as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHIPPED = __name__.rpartition(".")[0]
FIXED = ("view", "pytest_generate_tests", "contract_tests", "broken_promises")
"""What else a subclass must leave alone, or tests look at another saver, or at none."""


def shipped_tests(suite: type) -> dict[str, Callable[..., Any]]:
    """Every test that the shipped bases of a suite bring, by name."""
    return {
        name: test
        for base in reversed(suite.__mro__)
        if base.__module__.startswith(SHIPPED)
        for name, test in vars(base).items()
        if name.startswith("test_")
    }


def part_of(suite: type, name: str) -> Any:
    """The shipped base that brings a test."""
    return next(b for b in suite.__mro__ if b.__module__.startswith(SHIPPED) and name in vars(b))


def replacements(suite: type, base: type) -> list[str]:
    """One line for each test or fixture of the contract that a subclass took out or replaced."""
    found = []
    for name, test in shipped_tests(suite).items():
        used = inspect.getattr_static(suite, name, None)
        if used is not test and not _excused(used):
            found.append(
                f"{suite.__name__}.{name} replaces a test of the contract: remove it; if the "
                "saver cannot pass it yet, say so with the reason in expected_failures"
            )
    found += [
        f"{suite.__name__}.{name} replaces what the contract's tests stand on: remove it, and "
        "give the saver its state in make_saver()"
        for name in FIXED
        if inspect.getattr_static(suite, name) is not inspect.getattr_static(base, name)
    ]
    return found


def unusable_excuses(suite: Any) -> list[str]:
    """One line for each of the `expected_failures` that has no test or no reason."""
    found = []
    tests = shipped_tests(suite)
    for name, reason in suite.expected_failures.items():
        entry = f"{suite.__name__}.expected_failures[{name!r}]"
        if name.partition("[")[0] not in tests:
            found.append(f"{entry} is no test's name")
        if not str(reason).strip():
            found.append(f"{entry} gives no reason")
    return found


def blanket_marks(suite: str, marks: Iterable[pytest.Mark]) -> list[str]:
    """One line for each mark that would let a test of a suite fail, or not run, unseen."""
    found = []
    for mark in marks:
        if mark.name == "skip":
            found.append(
                f"tests of {suite} are marked skip: remove the mark; name what the saver cannot "
                "do in a capability, or in expected_failures"
            )
        elif mark.name == "xfail" and not (mark.kwargs.get("strict") and mark.kwargs.get("reason")):
            found.append(
                f"tests of {suite} are marked xfail without strict=True and a reason: name them "
                "in expected_failures instead"
            )
    return found


def _excused(test: Any) -> bool:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "xfail"]
    return any(m.kwargs.get("reason") and m.kwargs.get("strict") for m in marks)
