"""A state machine that writes, branches, cleans and copies threads, and reads all of it back.

Every thread has a *twin* under another id, written with the same calls and never cleaned. What
a cleanup has to keep readable must go on reading as in the twin, whatever is done next; threads
that a cleanup did not name must not change at all. The oracle does the reading and says which
checkpoints are needed.

The machine is synchronous; async savers are driven through their async methods on a loop of
their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from delta_mixin.testing import _roots as judge
from delta_mixin.testing import strategies as draw
from delta_mixin.testing._bridge import SaverContext, open_saver
from delta_mixin.testing._pictures import Note
from delta_mixin.testing._twins import Pair, Readings, TwinThreads, expect_equal
from delta_mixin.testing.histories import CALL, INNER_CALL, MEMORY, ROOT, Channel, Step
from delta_mixin.testing.oracle import SETTLED_HOST, Key, head


def cleanup_settings(**changes: Any) -> settings:
    """Settings of `CleanupStateMachine`, on top of the profile that is loaded now.

    Args:
        changes: Settings to change besides, such as `max_examples`.
    """
    return settings(
        **{
            # A rule reads whole threads of the backend under test, as fast as that one is.
            "deadline": None,
            "stateful_step_count": 25,
            "suppress_health_check": [
                # For the same reason as there is no deadline.
                HealthCheck.too_slow,
            ],
            **changes,
        }
    )


_indices = st.integers(0, 7)


class CleanupStateMachine(RuleBasedStateMachine):
    """Writes, forks, runs, prunes, run deletions and copies in any order, for any saver.

    Subclass it, say how to make a saver, and hand its test case to pytest:

        class MySaverMachine(CleanupStateMachine):
            def make_saver(self):
                return MySaver.from_conn_string(":memory:")

        TestMySaver = MySaverMachine.TestCase

    The settings are `cleanup_settings()`. To change them, assign to `TestMySaver.settings`.
    """

    OLD_RELEASES: ClassVar[bool] = True
    """Whether to write threads as langgraph before 1.2.9 did, too."""

    SKEWED_CLOCKS: ClassVar[bool] = True
    """Whether to write checkpoints whose ids sort below their parents', too. Readers of some
    savers go by ids and cannot read these."""

    RUNS_IN_ALL_THREADS: ClassVar[bool] = True
    """Whether `delete_for_runs` without `thread_ids` works: see `_list_run_threads`."""

    EXACT: ClassVar[bool] = True
    """Whether nothing more than needed is kept. Switch it off for a saver that cannot tell a
    stored value from an absent one."""

    SQUASHES: ClassVar[bool | None] = None
    """Whether to clean with `delta="squash"` now and then. `None`: if the saver writes the hook."""

    MOST_THREADS: ClassVar[int] = 4
    """Threads in play at most; each has a twin."""

    def make_saver(self) -> SaverContext:
        """A sync or async context manager that yields a fresh saver."""
        raise NotImplementedError(
            f"{type(self).__name__} must write make_saver(): return a context manager that "
            "yields a fresh saver"
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Now, not when this module is imported: a profile may be loaded in between.
        cls.TestCase.settings = cleanup_settings()

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.view = self._stack.enter_context(open_saver(self.make_saver))

    def teardown(self) -> None:
        """Close the saver."""
        self._stack.close()

    # -- writing -----------------------------------------------------------------------------

    @initialize(
        graph=st.sampled_from(draw.RELEASES).flatmap(
            lambda releases: st.tuples(
                draw.channels(exact=True, old_releases=True in releases), st.just(releases)
            )
        ),
        thread_id=draw.thread_ids(),
    )
    def begin(self, graph: tuple[tuple[Channel, ...], tuple[bool, ...]], thread_id: str) -> None:
        """Choose the channels of the graph and the releases that write its threads."""
        channels, releases = graph
        self.releases = releases if self.OLD_RELEASES else (False,)
        self.threads = TwinThreads(self.view, channels)
        self.threads.add(thread_id)

    @precondition(lambda self: len(self.threads.pairs) < 2)
    @rule(thread_id=draw.thread_ids())
    def start_thread(self, thread_id: str) -> None:
        """Another thread, its id often a neighbour's."""
        if not self.threads.is_used(thread_id):
            self.threads.add(thread_id)

    @rule(
        index=_indices,
        supersteps=st.integers(1, 8),
        channels=st.sampled_from((("items",), ("log",), ("items", "log"))),
        run=st.sampled_from(draw.RUNS),
    )
    def run_on(self, index: int, supersteps: int, channels: tuple[str, ...], run: str) -> None:
        """One run goes on from where the last one ended, which makes threads long."""
        self.write(index, [Step((channels,), run=run)] * supersteps)

    @rule(
        index=_indices,
        steps=st.lists(
            draw.steps(("items", "log", "note"), (ROOT, MEMORY, CALL, INNER_CALL)),
            min_size=1,
            max_size=5,
        ),
    )
    def write(self, index: int, steps: Sequence[Step]) -> None:
        """Runs go on, branch off, leave writes pending, call subgraphs."""
        pair = self.threads.at(index)
        for step in steps:
            step = replace(
                step,
                old=self.releases[step.old % len(self.releases)],
                skewed=step.skewed and self.SKEWED_CLOCKS,
            )
            reserved = pair.reserved.pop(step.ns, None) if step.commit else None
            self.threads.perform(pair, pair.builder.calls(step, reserved))

    @rule(index=_indices, ns=st.sampled_from((ROOT, MEMORY)))
    def write_ahead(self, index: int, ns: str) -> None:
        """A run in the background stores writes of a checkpoint before the checkpoint."""
        pair = self.threads.at(index)
        if ns not in pair.reserved:
            pair.reserved[ns], calls = pair.builder.reserve(ns, ["items"])
            self.threads.perform(pair, calls)

    # -- cleaning ----------------------------------------------------------------------------

    @rule(
        indices=st.lists(_indices, min_size=1, max_size=2),
        pruning=draw.prunings(squash=st.booleans()),
    )
    def prune(self, indices: list[int], pruning: draw.Pruning) -> None:
        """Prune one or two threads."""
        before = self.threads.read_all()
        named = self.threads.at_all(indices)
        ids = [pair.thread_id for pair in named]
        options = replace(pruning, squash=False).options(before[ids[0]])
        options |= self._squash(pruning.squash)
        roots = {t: judge.roots_of_prune(self.view, t, before[t], **options) for t in ids}
        self._clean(named, roots, "prune", ids, **options)

    @rule(
        runs=draw.run_selections(),
        indices=st.none() | st.lists(_indices, max_size=2),
        squash=st.booleans(),
    )
    def delete_runs(self, runs: list[str], indices: list[int] | None, squash: bool) -> None:
        """Delete runs, in some threads or in all of them."""
        before = self.threads.read_all()
        everywhere = indices is None and self.RUNS_IN_ALL_THREADS
        named = self.threads.pairs if indices is None else self.threads.at_all(indices)
        ids = [pair.thread_id for pair in named]
        roots = {t: judge.roots_of_run_deletion(before[t], runs) for t in ids}
        options = {} if everywhere else {"thread_ids": ids}
        self._clean(named, roots, "delete_for_runs", runs, **options, **self._squash(squash))
        if self._squash(squash):
            for pair in named:
                left = judge.rows_of_runs(self.threads.read_all()[pair.thread_id], runs)
                assert not left, f"thread {pair.thread_id!r} still holds {sorted(left)} of {runs}"

    @precondition(lambda self: not self._has_room())
    @rule(index=_indices)
    def delete_thread(self, index: int) -> None:
        """Remove a whole thread."""
        before = self.threads.read_all()
        pair = self.threads.at(index)
        self.view.prune([pair.thread_id], strategy="delete")
        after = self.threads.read_again()
        assert not after[pair.thread_id], f"thread {pair.thread_id!r} is not empty"
        self.threads.remove(pair)
        self._expect_unchanged(before, after, except_for=[pair.thread_id])

    # -- copying -----------------------------------------------------------------------------

    @precondition(lambda self: self._has_room())
    @rule(
        index=_indices,
        copy_id=draw.thread_ids(),
        start=st.none() | st.integers(0, 9),
        squash=st.booleans(),
    )
    def copy(self, index: int, copy_id: str, start: int | None, squash: bool) -> None:
        """Copy a thread, whole or as of one of its checkpoints, and go on in both."""
        before = self.threads.read_all()
        source = self.threads.at(index)
        readings = before[source.thread_id]
        starts = [i for ns, i in source.builder.rows if ns == ROOT]
        if self.threads.is_used(copy_id) or not readings or (start is not None and not starts):
            return
        roots = set(readings)
        options = self._squash(squash)
        if start is not None:
            options["checkpoint_id"] = starts[start % len(starts)]
            parents = judge.parents_of(self.view, source.thread_id, readings)
            roots = judge.roots_of_copy(readings, parents, options["checkpoint_id"])
        needed = judge.needed_by(self.view, source.thread_id, roots, readings)
        self.view.copy_thread(source.thread_id, copy_id, **options)
        copy = self.threads.add_copy(source, copy_id, needed, roots)
        after = self.threads.read_again()
        new = {key for key in after[copy_id].keys() - needed if after[copy_id][key].is_base_row}
        if new:
            assert squash, f"the copy {copy_id!r} was squashed, unasked"
            copy.stored = roots | new | (needed & after[copy_id].keys())
            copy.squashed = True
        for key in sorted(roots):
            where = f"the copy {copy_id!r} at {key}"
            expect_equal(readings[key], after[copy_id].get(key), where, squashed=bool(new))
        self._expect_unchanged(before, after)

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def every_readable_checkpoint_reads_as_in_the_uncleaned_twin(self) -> None:
        """Also when it was written after a cleanup."""
        for pair, readings in self.threads.read():
            twin = self.threads.read_twin(pair)
            for key in pair.builder.rows:
                where = f"thread {pair.thread_id!r} at {key}"
                expect_equal(twin[key], readings.get(key), where, squashed=pair.squashed)

    @invariant()
    def exactly_the_checkpoints_that_plans_left_are_stored(self) -> None:
        """None is lost, and none comes back."""
        for pair, readings in self.threads.read():
            lost, too_many = pair.stored - readings.keys(), readings.keys() - pair.stored
            where = f"thread {pair.thread_id!r}"
            assert not lost, f"{where} has lost {sorted(lost)}"
            assert not too_many, f"{where} has {sorted(too_many)}, which were to go"

    @invariant()
    def each_namespace_with_checkpoints_has_a_head(self) -> None:
        """`get_tuple` without an id returns one of the stored checkpoints."""
        for pair, readings in self.threads.read():
            for ns in {ns for ns, _ in readings}:
                found = (ns, head(self.view, pair.thread_id, ns))
                assert found in readings, f"thread {pair.thread_id!r} has the head {found}"

    # -- helpers -----------------------------------------------------------------------------

    def _squash(self, squash: bool) -> dict[str, Any]:
        """The option of a cleanup that squashes, where the saver can."""
        can = self.SQUASHES
        if can is None:
            # Readers of older hosts miss parents where clocks are skewed; a base row they find.
            can = self.view.squashes and (SETTLED_HOST or not self.SKEWED_CLOCKS)
        return {"delta": "squash"} if squash and can else {}

    def _has_room(self) -> bool:
        return len(self.threads.pairs) < self.MOST_THREADS

    def _clean(
        self,
        named: Collection[Pair],
        roots: dict[str, set[Key]],
        operation: str,
        *args: Any,
        **options: Any,
    ) -> None:
        """Plan, clean, and hold the outcome against the oracle."""
        for pair in named:
            note(Note(self.view, pair.thread_id, pair.log, f"before {operation}"))
        before = self.threads.read_all()
        needed = {t: judge.needed_by(self.view, t, keys, before[t]) for t, keys in roots.items()}
        allowed = needed
        if operation == "delete_for_runs":
            # Base rows name no run, so they stay, with or without readers.
            bases = {t: judge.base_rows(before[t]) for t in roots}
            allowed = {
                t: judge.needed_by(self.view, t, keys | bases[t], before[t])
                for t, keys in roots.items()
            }
        planned = getattr(self.view, f"plan_{operation}")(*args, **options)
        executed: list[Any] = []
        getattr(self.view, operation)(*args, on_plan=executed.append, **options)
        after = self.threads.read_again()
        assert planned == executed, f"planned {planned}\nexecuted {executed}"
        plans = {plan.thread_id: plan for plan in executed}
        for pair in named:
            thread_id = pair.thread_id
            where = f"{operation} of thread {thread_id!r}"
            plan = plans.get(thread_id)
            new = {(b.checkpoint_ns, b.checkpoint_id) for b in plan.bases} if plan else set()
            for key in sorted(roots[thread_id]):
                found = after[thread_id].get(key)
                at = f"{where}: {key}"
                expect_equal(before[thread_id][key], found, at, squashed=bool(new))
            if plan:
                squashed = {(b.checkpoint_ns, i) for b in plan.bases for i in b.replaces}
                missing = needed[thread_id] - plan.kept.keys() - squashed
                needless = plan.kept.keys() - allowed[thread_id]
                if operation == "prune" and "delta" in options:
                    # A call whose root checkpoint is alone between two roots stays with it.
                    needless = {key for key in needless if ":" not in key[0]}
                assert not missing, f"{where} does not keep {sorted(missing)}"
                assert not (self.EXACT and needless), f"{where} keeps {sorted(needless)} for nobody"
                assert new <= after[thread_id].keys() - before[thread_id].keys(), f"{where}: {new}"
                pair.stored -= set(plan.doomed)
                pair.stored |= new
                pair.squashed |= bool(new)
                for ns in plan.dropped_namespaces:
                    pair.reserved.pop(ns, None)
            pair.keep_readable(roots[thread_id])
            gone = before[thread_id].keys() - after[thread_id].keys()
            for key, parent in judge.parents_of(self.view, thread_id, after[thread_id]).items():
                assert (key[0], parent) not in gone, f"{where}: {key} names a deleted parent"
        self._expect_unchanged(before, after, except_for=[pair.thread_id for pair in named])

    @staticmethod
    def _expect_unchanged(
        before: dict[str, Readings], after: dict[str, Readings], except_for: Iterable[str] = ()
    ) -> None:
        for thread_id in before.keys() - set(except_for):
            assert before[thread_id] == after[thread_id], f"thread {thread_id!r} changed, unnamed"
