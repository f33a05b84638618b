"""The laws of `delta="squash"`, as `laws` holds those of other cleanups.

Where writes have moved to base rows, readings are compared without task ids: a squash stores these
writes under other ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from delta_mixin.testing import _roots as judge
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._twins import Readings, expect_equal
from delta_mixin.testing.histories import ROOT, ThreadHistory
from delta_mixin.testing.laws import THREAD, _expect_no_more_to_prune, _read, _written
from delta_mixin.testing.oracle import Key
from delta_mixin.testing.strategies import Pruning


def every_root_of_a_squash_reads_as_before(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """And a prune, a squash or a run deletion afterwards finds them so as well."""
    before = _written(view, history)
    options = _options(pruning, before)
    roots = judge.roots_of_prune(view, THREAD, before, **options)
    view.prune([THREAD], **options)
    after = _read(view, history)
    _expect_same(before, after, roots)
    heads = judge.roots_of_prune(view, THREAD, after)
    view.prune([THREAD])
    _expect_same(before, _read(view, history), heads & roots)


def a_squash_leaves_no_two_rows_that_one_could_stand_for(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """Of two rows that are there for replay alone, the upper one has another child as well."""
    before = _written(view, history)
    options = _options(pruning, before)
    roots = judge.roots_of_prune(view, THREAD, before, **options)
    view.prune([THREAD], **options)
    parents = judge.parents_of(view, THREAD, _read(view, history))
    for key, parent in parents.items():
        if key[0] not in {ns for ns, _ in roots}:
            continue  # a call whose root checkpoint is alone between two roots stays as it is
        above = (key[0], parent)
        children = [k for k, p in parents.items() if (k[0], p) == above]
        assert key in roots or above in roots or above not in parents or len(children) > 1, (
            f"{above} and {key} are two rows"
        )


def a_second_squash_changes_nothing(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """Base rows are roots of none, and stand for themselves."""
    _expect_no_more_to_prune(view, history, _options(pruning, _written(view, history)))


def a_squash_does_what_its_plan_says(
    view: SyncView, history: ThreadHistory, pruning: Pruning
) -> None:
    """Planning touches nothing; then exactly the planned rows go and come."""
    before = _written(view, history)
    options = _options(pruning, before)
    parents = judge.parents_of(view, THREAD, before)
    planned = view.plan_prune([THREAD], **options)
    assert _read(view, history) == before, "planning changed the thread"
    executed: list[Any] = []
    view.prune([THREAD], on_plan=executed.append, **options)
    assert planned == executed, f"planned  {planned}\nexecuted {executed}"
    after = _read(view, history)
    bases = [base for plan in executed for base in plan.bases]
    new = {(base.checkpoint_ns, base.checkpoint_id): base for base in bases}
    left = before.keys() - {key for plan in executed for key in plan.doomed}
    assert after.keys() == left | new.keys(), f"planned {sorted(left)}, left {sorted(after)}"
    expected = {key: parents[key] for key in left}
    expected.update({key: None for plan in executed for key in plan.detached})
    for key, base in new.items():
        expected[key] = base.parent_id
        expected.update({(key[0], child): key[1] for child in base.children})
    for key in new:
        below = [k[1] for k, parent in expected.items() if (k[0], parent) == key]
        assert below, f"nothing hangs below {key}"
        assert key[1] < min(below), f"{key} sorts above one of {below}"
    assert judge.parents_of(view, THREAD, after) == expected, "parents are not as planned"


def a_squashing_run_deletion_leaves_other_runs_alone(
    view: SyncView, history: ThreadHistory, runs: Sequence[str], pruning: Pruning | None = None
) -> None:
    """No row of the runs stays, and every other checkpoint reads as before.

    Args:
        view: The saver.
        history: What to store.
        runs: The runs to delete.
        pruning: Squash the thread first.
    """
    before = _written(view, history)
    if pruning is not None:
        options = _options(pruning, before)
        roots = judge.roots_of_prune(view, THREAD, before, **options)
        view.prune([THREAD], **options)
        before = _read(view, history)
        survivors = roots & judge.roots_of_run_deletion(before, runs)
    else:
        survivors = judge.roots_of_run_deletion(before, runs)
    view.delete_for_runs(runs, thread_ids=[THREAD], delta="squash")
    after = _read(view, history)
    _expect_same(before, after, survivors)
    left = judge.rows_of_runs(after, runs)
    assert not left, f"{sorted(left)} of {runs} are left"


def a_squashing_copy_reads_as_its_checkpoint(
    view: SyncView, history: ThreadHistory, copy_id: str, start: int
) -> None:
    """It holds what a copy would, contracted; its source stays as it is."""
    before = _written(view, history)
    starts = [i for ns, i in before if ns == ROOT]
    if not starts:
        return
    checkpoint_id = starts[start % len(starts)]
    parents = judge.parents_of(view, THREAD, before)
    roots = judge.roots_of_copy(before, parents, checkpoint_id)
    view.copy_thread(THREAD, copy_id, checkpoint_id=checkpoint_id, delta="squash")
    copied = _read(view, history, copy_id)
    _expect_same(before, copied, roots)
    for key, parent in judge.parents_of(view, copy_id, copied).items():
        assert parent is None or (key[0], parent) in copied, f"{key} names a parent left behind"
    assert _read(view, history) == before, "copying changed the source"


def _options(pruning: Pruning, before: Readings) -> dict[str, Any]:
    return replace(pruning, squash=True).options(before)


def _expect_same(before: Readings, after: Readings, roots: Collection[Key]) -> None:
    for key in sorted(roots):
        expect_equal(before[key], after.get(key), f"checkpoint {key}", squashed=True)
