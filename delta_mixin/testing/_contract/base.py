"""What every part of the contract shares: the hooks, the capabilities, the `view` of each test."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import pytest

from delta_mixin.testing._bridge import SaverContext, Side, SyncView, open_saver
from delta_mixin.testing._contract import guards

Test = TypeVar("Test", bound=Callable[..., Any])

StoredRow = tuple[Any, ...]
"""`("checkpoint" or "writes", thread, namespace, checkpoint id)`, or
`("blob", thread, namespace, channel, version)`."""

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
    """The hooks to write, the capabilities to tune, the `view` each test is given."""

    subject: ClassVar[str] = "guards"
    """What the tests of a part are about: the line of the summary they count in."""

    look_at: ClassVar[str] = "the class attributes of the suite"
    """Where in a saver to look when a test of a part fails."""

    is_about_reading: ClassVar[bool] = False
    """Whether a part calls the host's own methods only, so that it needs no mixin."""

    needs_squash: ClassVar[bool] = False
    """Whether a part is about `delta="squash"`, so that it needs the hook for it."""

    sides: ClassVar[Sequence[Side]] = ("sync", "async")
    """Sides of the saver to test: leave one out if it has no methods, or no hooks, for it."""

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

    neighbours: ClassVar[Sequence[str]] = ("u_2", "u%", "U", "u ", "uu", "7", "ü", "u:1", "*")
    """Ids that a prefix, a pattern or a careless comparison takes for thread `u` or `u_`; leave
    out those that the saver refuses to store."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Tests that a known fault of the saver fails, each with its reason; one that passes after
    all fails the run. A name is that of a test, or `test_name[async]` for one side of it."""

    def make_saver(self) -> SaverContext:
        """A sync or async context manager that yields a fresh saver without any rows."""
        raise NotImplementedError(
            f"{type(self).__name__} does not override make_saver(): return a sync or async "
            "context manager that yields a fresh saver"
        )

    def stored_rows(self, saver: Any) -> Iterable[StoredRow] | Awaitable[Iterable[StoredRow]]:
        """Everything the saver's store holds, past its public methods.

        Optional: with it the suite also proves that no writes and no blobs stay behind that
        nothing can reach. It may be a coroutine. One tuple for each thing stored, in any order,
        repeats allowed: `("checkpoint", thread_id, namespace, checkpoint_id)`, the same with
        `"writes"`, and in stores that keep values apart by version
        `("blob", thread_id, namespace, channel, version)`.
        """
        raise NotImplementedError

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
        part = guards.part_of(type(self), request.function.__name__)
        if part.subject == "leftovers" and type(self).stored_rows is ContractBase.stored_rows:
            pytest.skip(f"{type(self).__name__} does not write the hook stored_rows")
        names = (request.node.name, request.function.__name__)
        if reason := next(filter(None, map(self.expected_failures.get, names)), None):
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
        with open_saver(self.make_saver, request.param) as view:
            if part.is_about_reading and view.side not in view.base_sides:
                pytest.skip(f"{type(view.saver).__name__} has no {view.side} side of its own")
            if part.needs_squash and not view.squashes:
                saver = type(view.saver).__name__
                pytest.skip(f"{saver} does not write the hook _squash_checkpoint_rows")
            yield view

    @classmethod
    def contract_tests(cls) -> dict[str, Callable[..., Any]]:
        """Every test that the shipped suite brings, by name."""
        return guards.shipped_tests(cls)

    @classmethod
    def broken_promises(cls) -> list[str]:
        """One line for whatever a subclass has changed that makes its tests prove less."""
        return [*guards.replacements(cls, ContractBase), *guards.unusable_excuses(cls)]

    def test_no_test_of_the_contract_is_deleted_or_replaced(self) -> None:
        """A test that cannot pass yet is named, with the reason, in `expected_failures`."""
        found = guards.replacements(type(self), ContractBase)
        assert not found, "\n".join(found)

    def test_expected_failures_name_tests_and_reasons(self) -> None:
        """A name that no test has excuses nothing; a failure without a reason is a failure."""
        found = guards.unusable_excuses(type(self))
        assert not found, "\n".join(found)

    def test_something_of_the_contract_is_left_to_test(self) -> None:
        """`sides` names at least one side, and no other words."""
        name = f"{type(self).__name__}.sides"
        assert self.sides, f"{name} is empty, so no test would run"
        unknown = set(self.sides) - {"sync", "async"}
        assert not unknown, f"{name} names {sorted(unknown)}: it may name 'sync' and 'async'"


def stored(suite: ContractBase, view: SyncView) -> set[StoredRow]:
    """What the suite's `stored_rows` finds, thread ids as strings."""
    rows = suite.stored_rows(view.saver)
    if inspect.isawaitable(rows):
        rows = view.run(_result(rows))
    return {(kind, str(thread_id), *rest) for kind, thread_id, *rest in rows}


async def _result(rows: Awaitable[Iterable[StoredRow]]) -> Iterable[StoredRow]:
    return await rows
