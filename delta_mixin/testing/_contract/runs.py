"""`delete_for_runs`: rows of the runs go, unless a checkpoint of another run needs them."""

from __future__ import annotations

from typing import Any

import pytest

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase, needs
from delta_mixin.testing._threads import HandMadeThread


class RunTests(ContractBase):
    """No checkpoint that nobody asked to delete changes its value."""

    subject = "run deletion"
    look_at = "_delete_checkpoint_rows(), and _list_run_threads() where threads are not found"

    def test_run_deletion_keeps_what_other_runs_are_rebuilt_from(self, view: SyncView) -> None:
        """Fails if rows of the run go that a later checkpoint's chain passes."""
        thread = HandMadeThread(view)
        first = thread.grow(4, run_id="first", snapshot_at=(1,))
        doomed = thread.grow(4, run_id="doomed", snapshot_at=(2,))
        last = thread.grow(3, run_id="last")
        before = thread.read()
        _delete(thread, ["doomed"])
        after = thread.read()
        thread.expect_unchanged(before, after, [*first, *last])
        thread.expect_rows(after, [*first, *doomed[2:], *last])

    def test_run_deletion_takes_rows_that_nothing_needs(self, view: SyncView) -> None:
        """Fails if the run's rows stay although later checkpoints start from a snapshot."""
        thread = HandMadeThread(view)
        thread.grow(3, run_id="doomed")
        last = thread.grow(3, run_id="last", snapshot_at=(0,))
        before = thread.read()
        _delete(thread, ["doomed"])
        after = thread.read()
        thread.expect_rows(after, last)
        thread.expect_unchanged(before, after, last)
        thread.expect_parents_stored(after)

    def test_run_deletion_takes_rows_of_the_runs_only(self, view: SyncView) -> None:
        """Fails if rows without a run id, or of a run with a longer id, go as well."""
        thread = HandMadeThread(view, delta=())
        rows = {run: [thread.put(run_id=run) for _ in range(2)] for run in ("r", "r1", "R", None)}
        _delete(thread, ["r", "no such run"])
        kept = [i for run, ids in rows.items() if run != "r" for i in ids]
        thread.expect_rows(thread.read(), kept)

    def test_run_deletion_of_the_newest_run_leaves_the_newest_survivor(
        self, view: SyncView
    ) -> None:
        """Fails if a saver's head pointer still names a row that is gone."""
        thread = HandMadeThread(view)
        survivors = thread.grow(3, run_id="first")
        thread.grow(3, run_id="doomed")
        before = thread.read()
        _delete(thread, ["doomed"])
        after = thread.read()
        thread.expect_rows(after, survivors)
        head = oracle.head(view, thread.thread_id)
        assert head == survivors[-1], f"head is {head}{thread.story()}"
        thread.expect_unchanged(before, after, survivors)

    def test_run_deletion_leaves_the_greatest_id_as_the_head(self, view: SyncView) -> None:
        """Fails if `plan.heads` is passed over where heads go by the order of puts."""
        thread = HandMadeThread(view, delta=())
        ids = [f"1f000000-0000-600{number}-8000-000000000000" for number in range(4)]
        for checkpoint_id in (ids[0], ids[2], ids[1]):
            thread.put(checkpoint_id=checkpoint_id, run_id="first")
        thread.put(checkpoint_id=ids[3], run_id="doomed")
        _delete(thread, ["doomed"])
        head = oracle.head(view, thread.thread_id)
        assert head == ids[2], f"head is {head}{thread.story()}"

    def test_run_deletion_reaches_every_namespace(self, view: SyncView) -> None:
        """Fails if only the root namespace is looked at."""
        thread = HandMadeThread(view)
        rows: dict[str, list[str]] = {}
        for ns in ("", "child", "child:call"):
            thread.grow(2, ns=ns, run_id="doomed")
            rows[ns] = thread.grow(2, ns=ns, run_id="last", snapshot_at=(0,))
        before = thread.read()
        _delete(thread, ["doomed"])
        after = thread.read()
        kept = [(ns, i) for ns, ids in rows.items() for i in ids]
        thread.expect_rows(after, kept)
        thread.expect_unchanged(before, after, kept)

    @needs("lists_all_threads")
    def test_run_deletion_finds_the_threads_of_a_run(self, view: SyncView) -> None:
        """Fails if only one thread of the run is found, or threads of other runs are touched."""
        threads = [HandMadeThread(view, name) for name in ("a", "b", "neighbour")]
        for each in threads:
            run = "other" if each.thread_id == "neighbour" else "doomed"
            each.grow(2, run_id=run)
            each.grow(2, run_id="last", snapshot_at=(0,))
        before = threads[2].read()
        view.delete_for_runs(["doomed"])
        for each in threads:
            each.did("delete_for_runs(['doomed'])")
        assert [len(each.read()) for each in threads[:2]] == [2, 2], threads[0].story()
        threads[2].expect_unchanged(before, threads[2].read())

    @needs("lists_all_threads")
    def test_run_deletion_finds_a_run_wherever_it_is_in_a_thread(self, view: SyncView) -> None:
        """Fails if threads are found by their first or newest row, or by the root namespace."""
        amid, inside = (HandMadeThread(view, name) for name in ("amid", "inside"))
        amid.grow(2, run_id="first")
        amid.grow(2, run_id="doomed")
        amid.grow(2, run_id="last", snapshot_at=(0,))
        inside.grow(2, run_id="first", snapshot_at=(0,))
        inside.grow(2, run_id="doomed", ns="child")
        view.delete_for_runs(["doomed"])
        for each, left in ((amid, 4), (inside, 2)):
            each.did("delete_for_runs(['doomed'])")
            assert len(each.read()) == left, each.story()

    def test_run_deletion_can_be_narrowed_to_threads(self, view: SyncView) -> None:
        """Fails if `thread_ids` is passed over: a copy carries its source's run ids."""
        thread = HandMadeThread(view)
        thread.grow(2, run_id="doomed")
        last = thread.grow(2, run_id="last", snapshot_at=(0,))
        view.copy_thread("thread", "copy")
        copied = thread.read(thread_id="copy")
        view.delete_for_runs(["doomed"], thread_ids=["thread"])
        thread.did("copy_thread, delete_for_runs(['doomed'], thread_ids=['thread'])")
        thread.expect_rows(thread.read(), last)
        thread.expect_unchanged(copied, thread.read(thread_id="copy"))

    def test_run_deletion_takes_the_writes_of_deleted_rows(self, view: SyncView) -> None:
        """Fails if writes stay behind: a row put again under the id would read them."""
        thread = HandMadeThread(view)
        doomed = thread.grow(2, run_id="doomed")
        thread.grow(2, run_id="last", snapshot_at=(0,))
        _delete(thread, ["doomed"])
        thread.put(parent=None, checkpoint_id=doomed[1])
        reading = oracle.read(view, thread.thread_id, "", doomed[1], ())
        assert reading is not None
        assert reading.writes == (), f"left behind: {reading.writes}{thread.story()}"

    def test_run_deletion_keeps_pending_writes_of_survivors(self, view: SyncView) -> None:
        """Fails if writes are deleted by run or thread instead of by checkpoint."""
        thread = HandMadeThread(view)
        thread.grow(2, run_id="doomed")
        last = thread.grow(2, run_id="last", snapshot_at=(0,))
        thread.write(last[-1], ("log", "done"), ("__interrupt__", "what now?"))
        before = thread.read()
        _delete(thread, ["doomed"])
        after = thread.read()
        thread.expect_unchanged(before, after, last)
        assert len(after["", last[-1]].writes) == 2, thread.story()

    def test_run_deletion_keeps_each_branch_of_a_fork(self, view: SyncView) -> None:
        """Fails if only the newest checkpoint of the thread is protected."""
        thread = HandMadeThread(view)
        base = thread.grow(3, run_id="doomed", snapshot_at=(1,))
        main = thread.grow(2, run_id="main")
        fork = thread.grow(2, parent=thread.put(parent=base[1], run_id="fork"), run_id="fork")
        before = thread.read()
        survivors = [key for key, reading in before.items() if _run(reading) != "doomed"]
        assert len(survivors) == len(main) + len(fork) + 1
        _delete(thread, ["doomed"])
        after = thread.read()
        thread.expect_unchanged(before, after, survivors)
        thread.expect_rows(after, [*survivors, *base[1:]])

    def test_run_deletion_keeps_values_that_two_rows_share(self, view: SyncView) -> None:
        """Fails if a deleted row takes along the values that a survivor refers to."""
        thread = HandMadeThread(view)
        thread.grow(3, run_id="doomed", snapshot_at=(2,))
        last = thread.put(shares_versions=True, run_id="last")
        before = thread.read()
        _delete(thread, ["doomed"])
        after = thread.read()
        thread.expect_unchanged(before, after, [last])
        thread.expect_rows(after, [last])

    def test_run_deletion_of_all_runs_leaves_nothing(self, view: SyncView) -> None:
        """Fails if the newest row is protected: only rows of other runs are."""
        thread = HandMadeThread(view)
        thread.grow(3, run_id="a")
        thread.grow(3, run_id="b", ns="child")
        _delete(thread, ["a", "b"])
        thread.expect_rows(thread.read(), [])

    def test_run_deletion_twice_changes_nothing_more(self, view: SyncView) -> None:
        """Fails if rows that were needed are judged differently the second time."""
        thread = HandMadeThread(view)
        thread.grow(3, run_id="doomed", snapshot_at=(1,))
        thread.grow(2, run_id="last")
        _delete(thread, ["doomed"])
        once = thread.read()
        _delete(thread, ["doomed"])
        thread.expect_unchanged(once, thread.read())

    def test_plan_delete_for_runs_tells_what_then_happens(self, view: SyncView) -> None:
        """Fails if planning touches the thread, or the deletion does anything else."""
        thread = HandMadeThread(view)
        thread.grow(4, run_id="doomed", snapshot_at=(2,))
        thread.grow(2, run_id="last")
        before = thread.read()
        (plan,) = view.plan_delete_for_runs(["doomed"], thread_ids=["thread"])
        thread.expect_unchanged(before, thread.read())
        done: list[Any] = []
        _delete(thread, ["doomed"], on_plan=done.append)
        assert done == [plan], f"planned {plan}\ndid {done}{thread.story()}"
        thread.expect_rows(thread.read(), plan.kept)

    def test_run_deletion_of_nothing_or_nobody_does_nothing(self, view: SyncView) -> None:
        """Fails if an empty list means all runs, or an unknown one is an error."""
        thread = HandMadeThread(view)
        thread.grow(3, run_id="run")
        before = thread.read()
        view.delete_for_runs([])
        view.delete_for_runs([], thread_ids=["thread"])
        view.delete_for_runs(["run"], thread_ids=[])
        view.delete_for_runs(["run"], thread_ids=["nobody"])
        _delete(thread, ["no such run"])
        with pytest.raises(TypeError):
            view.delete_for_runs("run")
        thread.expect_unchanged(before, thread.read())


def _delete(thread: HandMadeThread, run_ids: list[str], **options: Any) -> None:
    thread.view.delete_for_runs(run_ids, thread_ids=[thread.thread_id], **options)
    thread.did(f"delete_for_runs({run_ids!r})")


def _run(reading: oracle.Reading) -> Any:
    return reading.metadata.value.get("run_id")
