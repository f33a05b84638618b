"""The laws of cleanup, each a function that writes a drawn thread, cleans it and judges.

A law takes a fresh saver as `open_saver` views it, and drawn data; it raises `AssertionError`
where it does not hold. `CleanupStateMachine` holds them all at once on long sequences; these
say by name which one is broken, on the smallest thread that shows it:

    @given(history=thread_histories(), pruning=prunings())
    def test_every_root_reads_as_before(history, pruning):
        with open_saver(make_saver) as view:
            laws.every_root_of_a_prune_reads_as_before(view, history, pruning)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hypothesis import currently_in_test_context, note

from delta_mixin.testing import _roots as judge
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._pictures import Note
from delta_mixin.testing._twins import Readings, expect_equal, read_all_of
from delta_mixin.testing.histories import ROOT, ThreadHistory
from delta_mixin.testing.oracle import Key
from delta_mixin.testing.strategies import Pruning
from delta_mixin.testing.writing import HistoryBuilder, write_history

THREAD = "thread"


def every_root_of_a_prune_reads_as_before(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """Value or seed and ordered writes, pending writes and metadata of each root stay."""
    before = _written(view, history)
    options = pruning.options(before)
    roots = judge.roots_of_prune(view, THREAD, before, **options)
    view.prune([THREAD], **options)
    _expect_same(before, _read(view, history), roots)


def every_doomed_row_is_needed_by_none(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """A prune keeps all roots and whatever their readers pass."""
    before = _written(view, history)
    options = pruning.options(before)
    needed = _needed_by_prune(view, before, options)
    doomed = {key for plan in view.plan_prune([THREAD], **options) for key in plan.doomed}
    assert not doomed & needed, f"needed, but to be deleted: {sorted(doomed & needed)}"


def every_kept_row_is_needed(view: SyncView, history: ThreadHistory, pruning: Pruning) -> None:
    """A prune keeps nothing but roots and what their readers pass.

    For savers that can tell a stored value from an absent one, and exact histories.
    """
    before = _written(view, history)
    options = pruning.options(before)
    needed = _needed_by_prune(view, before, options)
    kept = {key for plan in view.plan_prune([THREAD], **options) for key in plan.kept}
    assert kept <= needed, f"kept for no reader: {sorted(kept - needed)}"


def a_second_prune_changes_nothing(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """Pruning again finds nothing to do, so rows kept only for replay stay readable as they are."""
    _expect_no_more_to_prune(view, history, pruning.options(_written(view, history)))


def _expect_no_more_to_prune(
    view: SyncView, history: ThreadHistory, options: dict[str, Any]
) -> None:
    view.prune([THREAD], **options)
    after = _read(view, history)
    plans = view.plan_prune([THREAD], **options)
    assert not any(plan.changes for plan in plans), f"the second prune wants {plans}"
    view.prune([THREAD], **options)
    assert _read(view, history) == after, "the second prune changed the thread"


def a_prune_does_what_its_plan_says(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """Planning touches nothing; then exactly the planned rows go and are detached."""
    before = _written(view, history)
    options = pruning.options(before)
    _expect_as_planned(view, history, before, "prune", [THREAD], **options)


def a_run_deletion_does_what_its_plan_says(
    view: SyncView, history: ThreadHistory, runs: Sequence[str]
) -> None:
    """The same for runs."""
    before = _written(view, history)
    _expect_as_planned(view, history, before, "delete_for_runs", runs, thread_ids=[THREAD])


def a_run_deletion_changes_no_survivor(
    view: SyncView, history: ThreadHistory, runs: Sequence[str]
) -> None:
    """Only rows of the runs go, and every other row reads as before."""
    before = _written(view, history)
    survivors = judge.roots_of_run_deletion(before, runs)
    view.delete_for_runs(runs, thread_ids=[THREAD])
    _expect_same(before, _read(view, history), survivors)


def a_run_deletion_retains_only_what_survivors_need(
    view: SyncView, history: ThreadHistory, runs: Sequence[str]
) -> None:
    """A row of the runs stays if and only if a survivor's reader passes it; exact histories."""
    before = _written(view, history)
    survivors = judge.roots_of_run_deletion(before, runs)
    needed = judge.needed_by(view, THREAD, survivors, before)
    view.delete_for_runs(runs, thread_ids=[THREAD])
    kept = set(_read(view, history))
    assert kept == needed, f"missing {sorted(needed - kept)}, needless {sorted(kept - needed)}"


def nothing_outside_the_named_threads_changes(
    view: SyncView,
    history: ThreadHistory,
    thread_ids: Sequence[str],
    clean: Callable[[SyncView, str, Readings], None],
    look: Callable[[], Mapping[str, Any]] | None = None,
) -> None:
    """The same thread stored under several ids is cleaned under one of them.

    Args:
        view: The saver.
        history: What to store under each id.
        thread_ids: Unlike ids, the one to clean first.
        clean: What to do with that one.
        look: What the store holds by thread id; by default what readers see.
    """
    named, *others = thread_ids
    for thread_id in thread_ids:
        write_history(view, history, thread_id)

    def readings() -> Mapping[str, Any]:
        return {t: _read(view, history, t) for t in others}

    look = look or readings
    before = dict(look())
    clean(view, named, _read(view, history, named))
    after = dict(look())
    for thread_id in others:
        assert before.get(thread_id) == after.get(thread_id), (
            f"cleaning {named!r} changed {thread_id!r}"
        )


def a_copy_equals_its_source(view: SyncView, history: ThreadHistory, copy_id: str) -> None:
    """Ids, parents, metadata, order of writes and histories; the source stays as it is."""
    before = _written(view, history)
    parents = judge.parents_of(view, THREAD, before)
    view.copy_thread(THREAD, copy_id)
    copied = _read(view, history, copy_id)
    assert copied.keys() == before.keys(), "the copy holds other rows"
    _expect_same(before, copied, before)
    assert judge.parents_of(view, copy_id, copied) == parents, "parents differ in the copy"
    assert _read(view, history) == before, "copying changed the source"


def a_copy_of_a_checkpoint_reads_as_that_checkpoint(
    view: SyncView,
    history: ThreadHistory,
    copy_id: str,
    start: int,
    pruning: Pruning | None = None,
) -> None:
    """It holds the checkpoint, what belongs to it, and what their readers pass.

    Args:
        view: The saver.
        history: What to store.
        copy_id: Where to copy to.
        start: Index of the checkpoint.
        pruning: Prune the source first.
    """
    before = _written(view, history)
    if pruning is not None:
        pruning.clean(view, THREAD, before)
        before = _read(view, history)
    starts = [i for ns, i in before if ns == ROOT]
    if not starts:
        return
    checkpoint_id = starts[start % len(starts)]
    parents = judge.parents_of(view, THREAD, before)
    roots = judge.roots_of_copy(before, parents, checkpoint_id)
    needed = judge.needed_by(view, THREAD, roots, before)
    view.copy_thread(THREAD, copy_id, checkpoint_id=checkpoint_id)
    copied = _read(view, history, copy_id)
    assert needed <= copied.keys(), f"the copy lacks {sorted(needed - copied.keys())}"
    _expect_same(before, copied, roots)
    for key, parent in judge.parents_of(view, copy_id, copied).items():
        assert parent is None or (key[0], parent) in copied, f"{key} names a parent left behind"
    assert _read(view, history) == before, "copying changed the source"


def a_copy_and_its_source_live_apart(
    view: SyncView,
    history: ThreadHistory,
    copy_id: str,
    clean: Callable[[SyncView, str, Readings], None],
) -> None:
    """Cleaning one side never touches the other, whichever comes first."""
    before = _written(view, history)
    view.copy_thread(THREAD, copy_id)
    clean(view, THREAD, before)
    assert _read(view, history, copy_id) == before, "cleaning the source changed the copy"
    source = _read(view, history)
    clean(view, copy_id, before)
    assert _read(view, history) == source, "cleaning the copy changed the source"
    assert _read(view, history, copy_id) == source, "the copy was cleaned differently"


def both_sides_clean_alike(
    view: SyncView, history: ThreadHistory, clean: Callable[[SyncView, str, Readings], None]
) -> None:
    """The sync and the async methods leave the same thread behind."""
    builder = HistoryBuilder(history.channels, view.saver.get_next_version)
    calls = [call for step in history.steps for call in builder.calls(step)]
    left = {}
    for seen in (view.seen_from("sync"), view.seen_from("async")):
        for call in calls:
            call.perform(view, seen.side)
        clean(seen, seen.side, _read(view, history, seen.side))
        left[seen.side] = _read(view, history, seen.side)
    assert left["sync"] == left["async"], "the two sides leave different threads"


def _written(view: SyncView, history: ThreadHistory) -> Readings:
    builder = write_history(view, history, THREAD)
    if currently_in_test_context():
        note(Note(view, THREAD, builder.log, "as written"))
    return _read(view, history)


def _read(view: SyncView, history: ThreadHistory, thread_id: str = THREAD) -> Readings:
    return read_all_of(view, thread_id, history.delta_channels)


def _needed_by_prune(view: SyncView, before: Readings, options: dict[str, Any]) -> set[Key]:
    roots = judge.roots_of_prune(view, THREAD, before, **options)
    return judge.needed_by(view, THREAD, roots, before)


def _expect_same(before: Readings, after: Readings, roots: Collection[Key]) -> None:
    for key in sorted(roots):
        expect_equal(before[key], after.get(key), f"checkpoint {key}")


def _expect_as_planned(
    view: SyncView,
    history: ThreadHistory,
    before: Readings,
    operation: str,
    *args: Any,
    **options: Any,
) -> None:
    parents = judge.parents_of(view, THREAD, before)
    planned = getattr(view, f"plan_{operation}")(*args, **options)
    assert _read(view, history) == before, "planning changed the thread"
    executed: list[Any] = []
    getattr(view, operation)(*args, on_plan=executed.append, **options)
    assert planned == executed, f"planned  {planned}\nexecuted {executed}"
    after = _read(view, history)
    left = before.keys() - {key for plan in executed for key in plan.doomed}
    assert after.keys() == left, f"planned to leave {sorted(left)}, left {sorted(after)}"
    detached = {key for plan in executed for key in plan.detached}
    expected = {key: None if key in detached else parents[key] for key in left}
    assert judge.parents_of(view, THREAD, after) == expected, "parents are not as planned"
    dangling = {key for key in left if (key[0], expected[key]) in before.keys() - left}
    assert not dangling, f"these name a parent that was deleted: {sorted(dangling)}"
