"""Sync and async: a change made through one side is seen through the other."""

from __future__ import annotations

import pytest

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing._threads import HandMadeThread


class PruneParityTests(ContractBase):
    """Both sides of a saver are one saver."""

    subject = "prune"
    look_at = "_delete_checkpoint_rows() beside its twin _adelete_checkpoint_rows(), and caches"

    def test_prune_through_one_side_shows_on_the_other(self, view: SyncView) -> None:
        """Fails if the sides prune differently, or one of them caches rows."""
        other, (thread, twin) = _other_side(self, view), _twins(view)
        thread.read(other)
        view.prune([thread.thread_id])
        other.prune([twin.thread_id])
        _expect_equal(thread, twin, other)

    def test_prune_plans_of_both_sides_are_equal(self, view: SyncView) -> None:
        """Fails if the sides judge the same rows differently.

        Look at _list_checkpoint_rows() beside its twin.
        """
        other, (thread, _) = _other_side(self, view), _twins(view)
        planned, expected = (v.plan_prune([thread.thread_id]) for v in (view, other))
        assert planned == expected, f"planned {planned}\nand {expected}{thread.story()}"


class KeepsetParityTests(ContractBase):
    """Both sides of a saver are one saver."""

    subject = "keep-set"
    look_at = "get_tuple() beside its twin aget_tuple()"

    def test_keepsets_of_both_sides_are_equal(self, view: SyncView) -> None:
        """Fails if the sides follow other parents."""
        other, (thread, _) = _other_side(self, view), _twins(view)
        config = view.config(thread.thread_id)
        kept, expected = (v.get_delta_channel_keepset(config, ["log"]) for v in (view, other))
        assert kept == expected, f"kept {kept}, expected {expected}{thread.story()}"
        assert len(kept) > 1, f"kept {kept}{thread.story()}"


class CopyParityTests(ContractBase):
    """Both sides of a saver are one saver."""

    subject = "copy"
    look_at = "_copy_checkpoint_rows() beside its twin _acopy_checkpoint_rows(), and caches"

    def test_copies_through_both_sides_are_equal(self, view: SyncView) -> None:
        """Fails if the sides copy differently."""
        other, (thread, _) = _other_side(self, view), _twins(view)
        view.copy_thread(thread.thread_id, "copy")
        other.copy_thread(thread.thread_id, "other-copy")
        thread.did("copy_thread through both sides")
        expected = thread.read()
        for copy in ("copy", "other-copy"):
            thread.expect_unchanged(expected, thread.read(other, copy))
            thread.expect_unchanged(expected, thread.read(view, copy))


class RunParityTests(ContractBase):
    """Both sides of a saver are one saver."""

    subject = "run deletion"
    look_at = "_delete_checkpoint_rows() beside its twin _adelete_checkpoint_rows(), and caches"

    def test_run_deletion_through_one_side_shows_on_the_other(self, view: SyncView) -> None:
        """Fails if the sides delete differently, or one of them caches rows."""
        other, (thread, twin) = _other_side(self, view), _twins(view)
        thread.read(other)
        view.delete_for_runs(["run-1"], thread_ids=[thread.thread_id])
        other.delete_for_runs(["run-1"], thread_ids=[twin.thread_id])
        _expect_equal(thread, twin, other)

    def test_run_deletion_plans_of_both_sides_are_equal(self, view: SyncView) -> None:
        """Fails if the sides judge the same rows differently.

        Look at _list_checkpoint_rows() beside its twin.
        """
        other, (thread, _) = _other_side(self, view), _twins(view)
        ids = [thread.thread_id]
        planned, expected = (
            v.plan_delete_for_runs(["run-1"], thread_ids=ids) for v in (view, other)
        )
        assert planned == expected, f"planned {planned}\nand {expected}{thread.story()}"


def _other_side(suite: ContractBase, view: SyncView) -> SyncView:
    if len(suite.sides) < 2:
        pytest.skip(f"{type(suite).__name__}.sides names one side only")
    return view.seen_from("async" if view.side == "sync" else "sync")


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
