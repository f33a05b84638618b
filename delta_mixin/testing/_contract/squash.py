"""`delta="squash"`: what is kept for replay goes into base rows, and every root reads as before.

Each test is skipped for savers that do not write the hook `_squash_checkpoint_rows`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase, needs
from delta_mixin.testing._contract.leftovers import LeftoverTests
from delta_mixin.testing._threads import HandMadeThread
from delta_mixin.testing.oracle import Key, Reading

NULL_TASK = "00000000-0000-0000-0000-000000000000"
"""Task id of writes that count as their own checkpoint's."""

Readings = Mapping[Key, Reading]


class SquashTests(ContractBase):
    """A linear thread is left with its head and one base row."""

    subject = "squash"
    look_at = "_squash_checkpoint_rows(): the base row, its seeds, its writes, its children"
    needs_squash = True

    def test_squash_leaves_the_head_and_one_base_row(self, view: SyncView) -> None:
        """Fails if the head reads differently, or rows stay that the base row stands for."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(2, 5))
        before = thread.read()
        _squash(thread)
        after = thread.read()
        _expect_same(thread, before, after, ids[-1:])
        _expect_base_rows(thread, after, ids[-1:], 1)

    def test_squash_keeps_the_order_of_writes(self, view: SyncView) -> None:
        """Fails if writes of more than ten rows sort as texts, or by their old task ids."""
        thread = HandMadeThread(view)
        thread.grow(2, snapshot_at=(1,))
        for number in range(12):
            task_id = f"{99 - number:08x}-0000-4000-8000-000000000000"
            thread.write(thread.grow(1)[0], ("log", f"late {number}"), task_id=task_id)
            thread.put()
        head = thread.put()
        before = thread.read()
        _squash(thread)
        after = thread.read()
        _expect_same(thread, before, after, [head])
        assert _replayed(after, head) == thread.value(head), thread.story()

    @needs("orders_writes_by_task_path")
    def test_squash_keeps_the_order_of_parallel_writes(self, view: SyncView) -> None:
        """Fails if writes of one row are moved in the order of their task ids."""
        thread = HandMadeThread(view)
        at = thread.grow(2, snapshot_at=(0,))[-1]
        for number in (2, 1, 3):
            thread.write(
                at,
                ("log", f"task {number}"),
                task_id=f"{9 - number:08x}-0000-4000-8000-000000000000",
                task_path=f"~__pregel_pull, n{number}",
            )
        ids = [thread.put(), *thread.grow(2)]
        before = thread.read()
        _squash(thread)
        _expect_same(thread, before, thread.read(), ids[-1:])

    def test_squash_starts_each_channel_at_its_own_seed(self, view: SyncView) -> None:
        """Fails if one channel's seed is missing, or writes count that are in a seed already."""
        thread = HandMadeThread(view, delta=("log", "seen", "unused"))
        both = (("log", "x"), ("seen", "y"))
        thread.put()
        for number in range(13):
            snapshot = [c for c, every in (("log", 3), ("seen", 5)) if number % every == every - 1]
            thread.superstep(*both, snapshot=snapshot)
        head = oracle.head(view, thread.thread_id)
        assert head is not None
        before = thread.read()
        _squash(thread)
        after = thread.read()
        _expect_same(thread, before, after, [head])
        _expect_base_rows(thread, after, [head], 1)

    def test_squash_works_without_any_snapshot(self, view: SyncView) -> None:
        """Fails if a base row without a seed gets one, or is not written."""
        thread = HandMadeThread(view)
        ids = thread.grow(6)
        before = thread.read()
        _squash(thread)
        after = thread.read()
        _expect_same(thread, before, after, ids[-1:])
        (base,) = _expect_base_rows(thread, after, ids[-1:], 1)
        assert not after[base].values, f"holds {after[base].values}{thread.story()}"

    @needs("replays_writes_of_plain_seeds")
    def test_squash_keeps_a_plain_seed(self, view: SyncView) -> None:
        """Fails if only snapshots are taken for seeds, or a plain value is stored as one."""
        thread = HandMadeThread(view)
        thread.grow(3)
        for value in (["old"], "old"):
            ids = [thread.put(plain={"log": value}), *thread.grow(3)]
            before = thread.read()
            _squash(thread)
            after = thread.read()
            _expect_same(thread, before, after, ids[-1:])
            _expect_base_rows(thread, after, ids[-1:], 1)

    def test_a_base_row_sorts_below_its_child(self, view: SyncView) -> None:
        """Fails if its id is a new one: readers look no further up than the id they start from."""
        thread = HandMadeThread(view)
        ids = thread.grow(5, snapshot_at=(1,))
        _squash(thread)
        ((_, base),) = _expect_base_rows(thread, thread.read(), ids[-1:], 1)
        assert base < ids[-1], f"{base} does not sort below {ids[-1]}{thread.story()}"
        head = oracle.head(view, thread.thread_id)
        assert head == ids[-1], f"the head is {head}{thread.story()}"

    def test_writes_of_a_base_row_belong_to_no_task(self, view: SyncView) -> None:
        """Fails if they are stored under the null task id, or ids that are no UUIDs."""
        thread = HandMadeThread(view)
        ids = thread.grow(5, snapshot_at=(1,))
        _squash(thread)
        after = thread.read()
        (base,) = _expect_base_rows(thread, after, ids[-1:], 1)
        tasks = [task_id for task_id, _, _ in after[base].writes]
        assert len(tasks) == 3, f"writes of {tasks}{thread.story()}"
        for task_id in tasks:
            assert str(uuid.UUID(task_id)) == task_id != NULL_TASK, f"{task_id}{thread.story()}"

    def test_base_rows_hang_where_the_rows_hung(self, view: SyncView) -> None:
        """Fails if a base row, or the row below it, names another parent."""
        thread = HandMadeThread(view)
        ids = thread.grow(9)
        before = thread.read()
        _squash(thread, pinned=[ids[4]])
        after = thread.read()
        roots = [ids[4], ids[8]]
        _expect_same(thread, before, after, roots)
        upper, lower = _expect_base_rows(thread, after, roots, 2)
        parents = [thread.stored_parent(i) for i in (upper[1], ids[4])]
        assert parents == [None, upper[1]], f"parents {parents}{thread.story()}"
        parents = [thread.stored_parent(i) for i in (lower[1], ids[8])]
        assert parents == [ids[4], lower[1]], f"parents {parents}{thread.story()}"

    def test_a_base_row_says_what_it_is(self, view: SyncView) -> None:
        """Fails if its metadata is changed, or is that of a row it stands for."""
        thread = HandMadeThread(view)
        ids = thread.grow(6, run_id="run", user="somebody", snapshot_at=(1,))
        plans: list[Any] = []
        _squash(thread, on_plan=plans.append)
        after = thread.read()
        (base,) = _expect_base_rows(thread, after, ids[-1:], 1)
        ((planned,),) = (plan.bases for plan in plans)
        read = after[base].metadata.value
        assert read == planned.metadata, f"read {read}, planned {planned.metadata}{thread.story()}"
        assert "run_id" not in read, f"{read}{thread.story()}"
        assert after[base].rest.value["versions_seen"] == {}, thread.story()
        assert after[base].rest.value["channel_versions"] == planned.channel_versions

    def test_squash_keeps_each_branch_of_a_fork(self, view: SyncView) -> None:
        """Fails if rows above a branch are left out for one of its sides."""
        thread = HandMadeThread(view)
        base = thread.grow(5, snapshot_at=(1,))
        main = thread.grow(4)
        fork = thread.grow(4, parent=thread.put(parent=base[3]))
        before = thread.read()
        _squash(thread, pinned=[main[-1]])
        after = thread.read()
        roots = [main[-1], fork[-1]]
        _expect_same(thread, before, after, roots)
        _expect_base_rows(thread, after, roots, 3)

    def test_squash_leaves_a_single_row_as_it_is(self, view: SyncView) -> None:
        """Fails if a row is rewritten that has nothing to be squashed with."""
        thread = HandMadeThread(view)
        ids = thread.grow(5, snapshot_at=(3,))
        before = thread.read()
        _squash(thread)
        after = thread.read()
        thread.expect_rows(after, ids[3:])
        thread.expect_unchanged(before, after, ids[3:])

    def test_squash_reaches_every_namespace(self, view: SyncView) -> None:
        """Fails if only the root namespace is squashed, or rows go to another one."""
        thread = HandMadeThread(view)
        heads = [thread.grow(5, snapshot_at=(1,))[-1]]
        heads.append(thread.grow(6, ns="child", snapshot_at=(2,))[-1])
        roots = [("", heads[0]), ("child", heads[1])]
        before = thread.read()
        _squash(thread)
        after = thread.read()
        _expect_same(thread, before, after, roots)
        assert [ns for ns, _ in _expect_base_rows(thread, after, roots, 2)] == ["", "child"]

    def test_squash_of_a_thread_without_delta_channels_is_a_prune(self, view: SyncView) -> None:
        """Fails if a base row is made of rows that nothing is rebuilt from."""
        thread = HandMadeThread(view, delta=())
        ids = [thread.put() for _ in range(5)]
        _squash(thread)
        thread.expect_rows(thread.read(), ids[-1:])

    def test_squash_twice_equals_once(self, view: SyncView) -> None:
        """Fails if a base row is taken for a checkpoint, or squashed by itself."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(2,))
        options = {"keep_last": 2, "pinned": [ids[5]]}
        _squash(thread, **options)
        once = thread.read()
        (plan,) = view.plan_prune([thread.thread_id], delta="squash", **options)
        assert not plan.changes, f"wants {plan}{thread.story()}"
        _squash(thread, **options)
        twice = thread.read()
        assert once == twice, f"{once.keys() ^ twice.keys()}{thread.story()}"

    def test_a_squashed_thread_goes_on(self, view: SyncView) -> None:
        """Fails if rows that follow a base row are read without it, or squashed without it."""
        thread = HandMadeThread(view)
        thread.grow(5, snapshot_at=(1,))
        for _ in range(3):
            _squash(thread)
            ids = thread.grow(4)
            before = thread.read()
            for row in ids:
                found = _replayed(before, row)
                assert found == thread.value(row), f"{row} reads {found}{thread.story()}"
            _squash(thread)
            after = thread.read()
            _expect_same(thread, before, after, ids[-1:])
            _expect_base_rows(thread, after, ids[-1:], 1)
        ids = thread.grow(3, snapshot_at=(0,))
        _squash(thread)
        _expect_base_rows(thread, thread.read(), ids[-1:], 1)
        assert _replayed(thread.read(), ids[-1]) == thread.value(ids[-1]), thread.story()

    def test_other_cleanups_keep_the_base_rows_they_need(self, view: SyncView) -> None:
        """Fails if a prune, a keep-set or a copy overlooks a base row."""
        thread = HandMadeThread(view)
        thread.grow(5, snapshot_at=(1,))
        _squash(thread)
        ids = thread.grow(2)
        before = thread.read()
        view.prune([thread.thread_id], keep_last=2)
        thread.did("prune(keep_last=2)")
        after = thread.read()
        thread.expect_unchanged(before, after, ids)
        (base,) = _base_rows(after)
        config = view.config(thread.thread_id)
        kept = view.get_delta_channel_keepset(config, ["log"])
        assert {base[1], *ids} <= kept, f"the keep-set is {kept}{thread.story()}"
        view.copy_thread(thread.thread_id, "copy")
        thread.expect_unchanged(after, thread.read(thread_id="copy"))
        rows = thread.grow(2, snapshot_at=(0,))
        view.prune([thread.thread_id])
        thread.did("prune()")
        thread.expect_rows(thread.read(), rows)

    def test_plan_prune_tells_what_a_squash_then_does(self, view: SyncView) -> None:
        """Fails if planning touches the thread, or other base rows are stored than planned."""
        thread = HandMadeThread(view)
        thread.grow(7, snapshot_at=(1,))
        before = thread.read()
        (plan,) = view.plan_prune([thread.thread_id], delta="squash")
        thread.expect_unchanged(before, thread.read())
        done: list[Any] = []
        _squash(thread, on_plan=done.append)
        assert done == [plan], f"planned {plan}\ndid {done}{thread.story()}"
        bases = [(base.checkpoint_ns, base.checkpoint_id) for base in plan.bases]
        thread.expect_rows(thread.read(), [*plan.kept, *bases])

    def test_a_squash_that_is_cut_off_reads_as_before_and_can_be_repeated(
        self, view: SyncView
    ) -> None:
        """Fails if the rows that a base row stands for lose something before they are deleted."""
        thread = HandMadeThread(view)
        ids = thread.grow(8, snapshot_at=(2,))
        before = thread.read()
        with _cut_off(view), pytest.raises(CutOffError):
            view.prune([thread.thread_id], delta="squash")
        thread.did("prune(delta='squash'), cut off before rows were deleted")
        _expect_same(thread, before, thread.read(), ids[-1:])
        _squash(thread)
        after = thread.read()
        _expect_same(thread, before, after, ids[-1:])
        _expect_base_rows(thread, after, ids[-1:], 1)

    def test_squashing_run_deletion_leaves_no_row_of_the_runs(self, view: SyncView) -> None:
        """Fails if rows of the runs stay for replay, or a survivor reads differently."""
        thread = HandMadeThread(view)
        rows: dict[str, list[str]] = {}
        for run, count in (("first", 4), ("one", 1), ("second", 3), ("many", 4), ("last", 3)):
            rows[run] = thread.grow(count, run_id=run, snapshot_at=(1,) if run == "first" else ())
        before = thread.read()
        survivors = [*rows["first"], *rows["second"], *rows["last"]]
        for _ in range(2):
            view.delete_for_runs(["one", "many"], thread_ids=["thread"], delta="squash")
            thread.did("delete_for_runs(['one', 'many'], delta='squash')")
            after = thread.read()
            _expect_same(thread, before, after, survivors)
            _expect_base_rows(thread, after, survivors, 2)
        view.delete_for_runs(["last"], thread_ids=["thread"], delta="squash")
        thread.did("delete_for_runs(['last'], delta='squash')")
        _expect_same(thread, before, thread.read(), [*rows["first"], *rows["second"]])

    def test_a_squashing_copy_reads_as_its_checkpoint(self, view: SyncView) -> None:
        """Fails if the source changes, or the copy holds more than the checkpoint needs."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(1,))
        before = thread.read()
        view.copy_thread("thread", "copy", checkpoint_id=ids[6], delta="squash")
        thread.did("copy_thread(checkpoint_id=, delta='squash')")
        thread.expect_unchanged(before, thread.read())
        copied = thread.read(thread_id="copy")
        _expect_same(thread, before, copied, [ids[6]])
        _expect_base_rows(thread, copied, [ids[6]], 1)

    def test_a_squashing_copy_that_is_cut_off_leaves_no_target(self, view: SyncView) -> None:
        """Fails if an error after the copying leaves a thread that looks whole."""
        thread = HandMadeThread(view)
        ids = thread.grow(6, snapshot_at=(1,))
        before = thread.read()
        with _cut_off(view), pytest.raises(CutOffError):
            view.copy_thread("thread", "copy", checkpoint_id=ids[-1], delta="squash")
        assert not thread.read(thread_id="copy"), thread.story("copy")
        thread.expect_unchanged(before, thread.read())


class SquashLeftoverTests(LeftoverTests):
    """A squash leaves nothing behind but what its base rows hold."""

    look_at = "_squash_checkpoint_rows() and dead_blobs: what a base row refers to stays"
    needs_squash = True

    def test_squash_leaves_no_orphaned_writes_or_blobs(self, view: SyncView) -> None:
        """Fails if writes of squashed rows stay behind, or blobs of theirs."""
        thread = HandMadeThread(view)
        thread.grow(4, snapshot_at=(1,), run_id="first")
        thread.grow(5, ns="child", snapshot_at=(2,), run_id="first")
        thread.grow(4, run_id="last")
        for clean in (_squash, _delete_first_run):
            clean(thread)
            self._expect_no_orphans(thread)
        thread.grow(3, snapshot_at=(1,))
        _squash(thread)
        self._expect_no_orphans(thread)


class CutOffError(Exception):
    """Stands for a crash."""


@contextmanager
def _cut_off(view: SyncView) -> Iterator[None]:
    """Let the saver fail where it is about to delete rows, once."""
    with pytest.MonkeyPatch.context() as patch:

        def fail(plans: Any) -> Any:
            # What the saver does to take its work back may delete rows as well.
            patch.undo()
            raise CutOffError

        for hook in ("_delete_checkpoint_rows", "_adelete_checkpoint_rows"):
            patch.setattr(view.saver, hook, fail)
        yield


def _squash(thread: HandMadeThread, **options: Any) -> None:
    thread.view.prune([thread.thread_id], delta="squash", **options)
    thread.did("prune(delta='squash')")


def _delete_first_run(thread: HandMadeThread) -> None:
    thread.view.delete_for_runs(["first"], thread_ids=[thread.thread_id], delta="squash")
    thread.did("delete_for_runs(['first'], delta='squash')")


def _base_rows(readings: Readings) -> list[Key]:
    return sorted(key for key, reading in readings.items() if reading.is_base_row)


def _replayed(readings: Readings, checkpoint_id: str) -> list[Any]:
    """The value of `log` at a checkpoint, with a reducer that appends."""
    reading = readings["", checkpoint_id]
    if "log" in reading.values:
        return list(reading.values["log"].value.value)
    rebuilt = reading.rebuilt["log"]
    seed = [] if rebuilt.seed is None else rebuilt.seed.value.value
    return [*seed, *(value.value for _, _, value in rebuilt.writes)]


def _expect_same(
    thread: HandMadeThread, before: Readings, after: Readings, roots: Iterable[Any]
) -> None:
    """These rows read as before, but for the task ids of what they are rebuilt from."""
    keys = [("", root) if isinstance(root, str) else root for root in roots]
    thread.expect_unchanged(
        {key: before[key].by_value() for key in keys},
        {key: after[key].by_value() for key in keys if key in after},
        keys,
    )


def _expect_base_rows(
    thread: HandMadeThread, after: Readings, roots: Iterable[Any], count: int
) -> list[Key]:
    """The thread holds these rows and as many base rows; returns their keys."""
    bases = _base_rows(after)
    assert len(bases) == count, f"base rows: {bases}, not {count}{thread.story()}"
    thread.expect_rows(after, [*roots, *bases])
    return bases
