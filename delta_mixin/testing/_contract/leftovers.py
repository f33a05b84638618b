"""What stays in the store that nothing can reach: seen through the hook `stored_rows` alone."""

from __future__ import annotations

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase, StoredRow, stored
from delta_mixin.testing._threads import HandMadeThread

CALL = "child:6f1d"


class LeftoverTests(ContractBase):
    """Needs the hook `stored_rows`; each test is skipped where it is not written."""

    subject = "leftovers"
    look_at = "_delete_checkpoint_rows(): writes of doomed rows, dead_blobs, dropped_namespaces"

    def _expect_no_orphans(self, thread: HandMadeThread) -> None:
        """All that is stored belongs to a checkpoint that can be read."""
        rows = stored(self, thread.view)
        readings = thread.read()
        reachable: set[StoredRow] = set()
        for (ns, checkpoint_id), reading in readings.items():
            thread_id = str(thread.thread_id)
            reachable |= {(k, thread_id, ns, checkpoint_id) for k in ("checkpoint", "writes")}
            versions = reading.rest.value["channel_versions"]
            reachable |= {("blob", thread_id, ns, *pair) for pair in versions.items()}
        left = sorted(rows - reachable, key=repr)
        assert not left, f"nothing can reach these: {left}{thread.story()}"
        shown = {row[2:] for row in rows if row[0] == "checkpoint"}
        assert shown == readings.keys(), (
            f"stored_rows() shows checkpoints {sorted(shown)}, list() {sorted(readings)}"
            f"{thread.story()}"
        )


class PruneLeftoverTests(LeftoverTests):
    """A prune leaves nothing behind."""

    def test_prune_leaves_no_orphaned_writes_or_blobs(self, view: SyncView) -> None:
        """Fails if writes or blobs of deleted rows stay behind."""
        thread = _thread(view)
        view.prune([thread.thread_id])
        thread.did("prune()")
        self._expect_no_orphans(thread)

    def test_prune_leaves_nothing_of_ended_calls(self, view: SyncView) -> None:
        """Fails if writes stay that a subgraph call left without a checkpoint of its own."""
        thread = _thread(view)
        thread.write_early("1fffffff-ffff-6000-8000-000000000000", ("log", "early"), ns=CALL)
        view.prune([thread.thread_id])
        thread.did("prune()")
        self._expect_no_orphans(thread)

    def test_strategy_delete_leaves_nothing_stored(self, view: SyncView) -> None:
        """Fails if anything is left of a thread that is gone."""
        thread = _thread(view)
        view.prune([thread.thread_id], strategy="delete")
        thread.did("prune(strategy='delete')")
        left = stored(self, view)
        assert not left, f"still stored: {left}{thread.story()}"


class RunLeftoverTests(LeftoverTests):
    """Run deletion leaves nothing behind."""

    def test_run_deletion_leaves_no_orphaned_writes_or_blobs(self, view: SyncView) -> None:
        """Fails if writes or blobs of deleted rows stay behind."""
        thread = _thread(view)
        view.delete_for_runs(["first"], thread_ids=[thread.thread_id])
        thread.did("delete_for_runs(['first'])")
        self._expect_no_orphans(thread)
        view.delete_for_runs(["last"], thread_ids=[thread.thread_id])
        thread.did("delete_for_runs(['last'])")
        self._expect_no_orphans(thread)


class CopyLeftoverTests(LeftoverTests):
    """A copy stores what its source does, under its own thread."""

    look_at = "_copy_checkpoint_rows(): what it stores, and under which thread"

    def test_a_copy_stores_what_its_source_does(self, view: SyncView) -> None:
        """Fails if blobs are left out, or are stored under the source's id."""
        thread = _thread(view)
        before = stored(self, view)
        view.copy_thread(thread.thread_id, "copy")
        thread.did("copy_thread('thread', 'copy')")
        rows = stored(self, view)
        expected = before | {(kind, "copy", *rest) for kind, _, *rest in before}
        lost, extra = sorted(expected - rows, key=repr), sorted(rows - expected, key=repr)
        assert not lost, f"not copied: {lost}{thread.story()}"
        assert not extra, f"stored besides: {extra}{thread.story()}"

    def test_a_copy_that_is_refused_stores_nothing(self, view: SyncView) -> None:
        """Fails if the target is written to before it is known whether it may be."""
        thread = _thread(view)
        before = stored(self, view)
        for source in ("nobody", thread.thread_id):
            try:
                view.copy_thread(source, "copy", checkpoint_id="unheard-of")
            except LookupError:
                continue
            raise AssertionError(f"copy_thread({source!r}) was not refused{thread.story()}")
        assert stored(self, view) == before, thread.story()


def _thread(view: SyncView) -> HandMadeThread:
    """A thread in which much can be left behind."""
    thread = HandMadeThread(view)
    root = thread.grow(3, run_id="first", snapshot_at=(1,))
    thread.grow(2, ns=CALL, run_id="first", parents={"": root[0]})
    thread.grow(2, ns="child", run_id="first", parents={"": root[0]})
    thread.grow(3, run_id="last", snapshot_at=(1,))
    thread.grow(2, ns="child", run_id="last", snapshot_at=(0,))
    thread.put(run_id="last", shares_versions=True)
    return thread
