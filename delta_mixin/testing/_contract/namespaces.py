"""Namespaces: subgraph calls go with their root checkpoint, stateful subgraphs outlive calls."""

from __future__ import annotations

from typing import Any

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing._threads import HandMadeThread

CALL = "child:6f1d"
"""A namespace as one call of subgraph `child` gets it: node name, then task id."""


class NamespaceTests(ContractBase):
    """Each namespace is a history of its own."""

    subject = "prune"
    look_at = "_list_namespaces(), and dropped_namespaces in _delete_checkpoint_rows()"

    def test_prune_keeps_the_newest_of_each_namespace(self, view: SyncView) -> None:
        """Fails if only the root namespace keeps its newest, or chains cross namespaces."""
        thread = HandMadeThread(view)
        root = thread.grow(6, snapshot_at=(3,))
        child = thread.grow(5, ns="child", snapshot_at=(1, 3))
        before = thread.read()
        _prune(thread)
        after = thread.read()
        heads = [root[-1], ("child", child[-1])]
        thread.expect_unchanged(before, after, heads)
        thread.expect_rows(after, [*root[3:], *(("child", i) for i in child[3:])])

    def test_prune_takes_ended_subgraph_calls_with_their_root(self, view: SyncView) -> None:
        """Fails if a call's rows or writes stay after the checkpoint it started from is gone."""
        thread = HandMadeThread(view)
        root = thread.grow(2)
        call = thread.grow(3, ns=CALL, parents={"": root[-1]})
        thread.write(call[-1], ("log", "left over"), ns=CALL)
        root += thread.grow(3, snapshot_at=(1,))
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_rows(after, root[3:])
        thread.expect_unchanged(before, after, root[-1:])
        thread.put(ns=CALL, parent=None, checkpoint_id=call[-1])
        again = oracle.read(view, thread.thread_id, CALL, call[-1], ())
        assert again is not None
        assert again.writes == (), f"left behind: {again.writes}{thread.story()}"

    def test_prune_keeps_subgraph_calls_of_a_kept_root(self, view: SyncView) -> None:
        """Fails if a call goes whose root checkpoint stays: an interrupted call must go on."""
        thread = HandMadeThread(view)
        root = thread.grow(3, snapshot_at=(1,))
        call = thread.grow(4, ns=CALL, parents={"": root[-1]}, snapshot_at=(2,))
        thread.write(call[-1], ("__interrupt__", "what now?"), ns=CALL)
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_rows(after, [*root[1:], *((CALL, i) for i in call[2:])])
        thread.expect_unchanged(before, after, [root[-1], (CALL, call[-1])])

    def test_prune_keeps_subgraph_calls_of_a_root_kept_for_replay(self, view: SyncView) -> None:
        """Fails if only calls of the newest checkpoint stay: any kept root keeps its calls."""
        thread = HandMadeThread(view)
        root = thread.grow(2)
        call = thread.grow(2, ns=CALL, parents={"": root[-1]})
        root += thread.grow(2)
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_rows(after, [*root, *((CALL, i) for i in call)])
        thread.expect_unchanged(before, after, [root[-1], (CALL, call[-1])])

    def test_prune_keeps_calls_whose_root_is_not_saved_yet(self, view: SyncView) -> None:
        """Fails if a missing root is taken for a deleted one: runs save in the background."""
        thread = HandMadeThread(view)
        root = thread.grow(3, snapshot_at=(2,))
        upcoming = "1fffffff-ffff-6000-8000-000000000000"
        call = thread.grow(2, ns=CALL, parents={"": upcoming})
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_rows(after, [root[-1], *((CALL, i) for i in call)])
        thread.expect_unchanged(before, after, [(CALL, call[-1])])

    def test_prune_goes_by_the_newest_row_of_a_call(self, view: SyncView) -> None:
        """Fails if a call that was resumed from a later root goes with its first one."""
        thread = HandMadeThread(view)
        root = thread.grow(2)
        call = thread.grow(1, ns=CALL, parents={"": root[0]})
        root += thread.grow(3, snapshot_at=(1,))
        call += thread.grow(2, ns=CALL, parents={"": root[-1]})
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, [root[-1], (CALL, call[-1])])

    def test_a_stateful_subgraph_outlives_the_calls_of_it(self, view: SyncView) -> None:
        """Fails if a `checkpointer=True` subgraph (no task id) goes with an old root."""
        thread = HandMadeThread(view)
        root = thread.grow(2)
        state = thread.grow(4, ns="child", parents={"": root[0]}, snapshot_at=(1,))
        root += thread.grow(3, snapshot_at=(1,))
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_rows(after, [*root[3:], *(("child", i) for i in state[1:])])
        thread.expect_unchanged(before, after, [root[-1], ("child", state[-1])])

    def test_prune_keeps_each_branch_that_is_asked_for(self, view: SyncView) -> None:
        """Fails if a fork reads writes of the branch it left, or loses those at its base."""
        thread = HandMadeThread(view)
        base = thread.grow(4, snapshot_at=(1,))
        main = thread.grow(3)
        thread.superstep(("log", "forked"), parent=base[2])
        fork = thread.grow(2)
        before = thread.read()
        needed = thread.needed(main[-1], fork[-1])
        _prune(thread, pinned=[main[-1]])
        after = thread.read()
        thread.expect_unchanged(before, after, [main[-1], fork[-1]])
        thread.expect_rows(after, needed)

    def test_prune_of_a_fork_drops_the_branch_that_was_left(self, view: SyncView) -> None:
        """Fails if ancestors are found by id ranges: the left branch lies between them."""
        thread = HandMadeThread(view)
        base = thread.grow(3, snapshot_at=(0,))
        thread.grow(3)
        fork = [thread.superstep(("log", "forked"), parent=base[1]), *thread.grow(2)]
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, fork[-1:])
        thread.expect_rows(after, [*base[:2], *fork])


def _prune(thread: HandMadeThread, **options: Any) -> None:
    thread.view.prune([thread.thread_id], **options)
    thread.did(f"prune({options or ''})")
