"""What every part of the contract shares: the hook, capabilities, and the guards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import pytest

from delta_mixin.testing._bridge import SaverContext, Side, SyncView, open_saver

Test = TypeVar("Test", bound=Callable[..., Any])

CAPABILITIES = (
    "orders_writes_by_task_path",
    "replays_writes_of_plain_seeds",
    "follows_parents_not_ids",
    "ends_looped_histories",
    "lists_all_threads",
)


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Mark a test that only savers with these capabilities must pass."""
    assert set(capabilities) <= set(CAPABILITIES), capabilities

    def mark(test: Test) -> Test:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


class ContractBase:
    """The hook to write, the capabilities to tune, the `view` each test is given."""

    sides: ClassVar[Sequence[Side]] = ("sync", "async")
    """Sides of the cleanup methods to test: leave one out if the saver has no hooks for it."""

    orders_writes_by_task_path: ClassVar[bool] = True
    """Whether writes of one checkpoint are read in the order of their tasks' paths."""

    replays_writes_of_plain_seeds: ClassVar[bool] = True
    """Whether writes at a checkpoint that holds a plain value count on top of that value."""

    follows_parents_not_ids: ClassVar[bool] = True
    """Whether histories are right where a parent's id sorts above its child's."""

    ends_looped_histories: ClassVar[bool] = True
    """Whether `get_delta_channel_history` returns where re-put ids made the parents a loop."""

    lists_all_threads: ClassVar[bool] = True
    """Whether `delete_for_runs` without `thread_ids` finds the threads of a run."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Tests that a known fault of the saver fails, each with its reason; one that passes after
    all fails the run. A name is that of a test, or `test_name[async]` for one side of it."""

    def make_saver(self) -> SaverContext:
        """A sync or async context manager that yields a fresh saver without any rows."""
        raise NotImplementedError(
            f"{type(self).__name__} does not override make_saver(): return a sync or async "
            "context manager that yields a fresh saver"
        )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test once for each side that the class names."""
        if "view" in metafunc.fixturenames:
            metafunc.parametrize("view", self.sides, indirect=True)

    @pytest.fixture
    def view(self, request: pytest.FixtureRequest) -> Iterator[SyncView]:
        """A fresh saver, seen from the side that is tested."""
        for capability in getattr(request.function, "needs", ()):
            if not getattr(self, capability):
                pytest.skip(f"{type(self).__name__}.{capability} is False")
        names = (request.node.name, request.function.__name__)
        if reason := next(filter(None, map(self.expected_failures.get, names)), None):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
        with open_saver(self.make_saver, request.param) as view:
            yield view

    @classmethod
    def contract_tests(cls) -> dict[str, Callable[..., Any]]:
        """Every test that the shipped suite brings, by name."""
        return {
            name: test
            for base in reversed(cls.__mro__)
            if base.__module__.startswith(__package__ or "")
            for name, test in vars(base).items()
            if name.startswith("test_")
        }

    def test_no_test_of_the_contract_is_deleted_or_replaced(self) -> None:
        """A test that cannot pass yet is overridden with `@pytest.mark.xfail(reason=...)`."""
        for name, test in self.contract_tests().items():
            used = inspect.getattr_static(type(self), name, None)
            marks = getattr(used, "pytestmark", [])
            excused = any(m.name == "xfail" and m.kwargs.get("reason") for m in marks)
            assert used is test or excused, (
                f"{type(self).__name__}.{name} replaces a test of the contract: remove it, or "
                "mark it @pytest.mark.xfail(reason=..., strict=True) and call the original"
            )

    def test_expected_failures_name_tests_and_reasons(self) -> None:
        """A name that no test has excuses nothing; a failure without a reason is a failure."""
        for name, reason in self.expected_failures.items():
            entry = f"{type(self).__name__}.expected_failures[{name!r}]"
            assert name.partition("[")[0] in self.contract_tests(), f"{entry} is no test's name"
            assert reason.strip(), f"{entry} gives no reason"

    def test_something_of_the_contract_is_left_to_test(self) -> None:
        """`sides` names at least one side, and no other words."""
        name = f"{type(self).__name__}.sides"
        assert self.sides, f"{name} is empty, so no test would run"
        unknown = set(self.sides) - {"sync", "async"}
        assert not unknown, f"{name} names {sorted(unknown)}: it may name 'sync' and 'async'"
