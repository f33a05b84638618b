"""Sync and async: a change made through one side is seen through the other."""

from __future__ import annotations

import pytest

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing._threads import HandMadeThread


class ParityTests(ContractBase):
    """Both sides of a saver are one saver."""

    def other_side(self, view: SyncView) -> SyncView:
        """The saver seen from the other side; ends the test where only one is tested."""
        if len(self.sides) < 2:
            pytest.skip(f"{type(self).__name__}.sides names one side only")
        return view.seen_from("async" if view.side == "sync" else "sync")

    def test_prune_through_one_side_shows_on_the_other(self, view: SyncView) -> None:
        """Fails if the sides prune differently, or one of them caches rows."""
        other, (thread, twin) = self.other_side(view), _twins(view)
        thread.read(other)
        view.prune([thread.thread_id])
        other.prune([twin.thread_id])
        _expect_equal(thread, twin, other)

    def test_copies_through_both_sides_are_equal(self, view: SyncView) -> None:
        """Fails if the sides copy differently."""
        other, (thread, _) = self.other_side(view), _twins(view)
        view.copy_thread(thread.thread_id, "copy")
        other.copy_thread(thread.thread_id, "other-copy")
        thread.did("copy_thread through both sides")
        expected = thread.read()
        for copy in ("copy", "other-copy"):
            thread.expect_unchanged(expected, thread.read(other, copy))
            thread.expect_unchanged(expected, thread.read(view, copy))

    def test_run_deletion_through_one_side_shows_on_the_other(self, view: SyncView) -> None:
        """Fails if the sides delete differently, or one of them caches rows."""
        other, (thread, twin) = self.other_side(view), _twins(view)
        thread.read(other)
        view.delete_for_runs(["run-1"], thread_ids=[thread.thread_id])
        other.delete_for_runs(["run-1"], thread_ids=[twin.thread_id])
        _expect_equal(thread, twin, other)

    def test_plans_and_keepsets_of_both_sides_are_equal(self, view: SyncView) -> None:
        """Fails if the sides judge the same rows differently."""
        other, (thread, _) = self.other_side(view), _twins(view)
        ids = [thread.thread_id]
        assert view.plan_prune(ids) == other.plan_prune(ids), thread.story()
        runs = ["run-1"]
        planned = [v.plan_delete_for_runs(runs, thread_ids=ids) for v in (view, other)]
        assert planned[0] == planned[1], thread.story()
        config = view.config(thread.thread_id)
        kept = [v.get_delta_channel_keepset(config, ["log"]) for v in (view, other)]
        assert kept[0] == kept[1], thread.story()
        assert len(kept[0]) > 1, thread.story()


def _twins(view: SyncView) -> tuple[HandMadeThread, HandMadeThread]:
    thread = HandMadeThread(view)
    thread.grow(4, snapshot_at=(2,), run_id="run-0")
    thread.grow(4, snapshot_at=(1,), run_id="run-1")
    thread.grow(3, ns="child", snapshot_at=(1,), run_id="run-1")
    thread.grow(2, run_id="run-2")
    return thread, thread.repeated("twin")


def _expect_equal(thread: HandMadeThread, twin: HandMadeThread, other: SyncView) -> None:
    thread.did("cleaned through the first side")
    twin.did("cleaned through the other side")
    expected = thread.read()
    thread.expect_unchanged(expected, thread.read(other))
    thread.expect_unchanged(expected, thread.read(thread_id="twin"))
