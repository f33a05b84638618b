"""`prune`: what it keeps, what it deletes, and what it leaves alone."""

from __future__ import annotations

from typing import Any

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing._deadline import within_patience
from delta_mixin.testing._threads import HandMadeThread


class PruneTests(ContractBase):
    """The newest checkpoint reads back as before, and nothing else stays."""

    subject = "prune"
    look_at = "_delete_checkpoint_rows(): doomed rows, exactly their writes, detached parents"

    def test_prune_keeps_the_head_and_what_it_is_rebuilt_from(self, view: SyncView) -> None:
        """Fails if rows between the head and its snapshot are deleted, or older ones kept."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(2, 5))
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, ids[-1:])
        thread.expect_rows(after, ids[5:])

    def test_prune_keeps_the_whole_chain_where_there_is_no_snapshot(self, view: SyncView) -> None:
        """Fails if a channel without any snapshot is not known to be a delta channel."""
        thread = HandMadeThread(view)
        thread.grow(6)
        before = thread.read()
        _prune(thread)
        thread.expect_unchanged(before, thread.read())

    def test_prune_leaves_one_row_of_a_thread_without_delta_channels(self, view: SyncView) -> None:
        """Fails if rows are kept that nothing is rebuilt from."""
        thread = HandMadeThread(view, delta=())
        ids = [thread.put() for _ in range(5)]
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_rows(after, ids[-1:])
        thread.expect_unchanged(before, after, ids[-1:])

    def test_prune_keeps_what_each_channel_needs(self, view: SyncView) -> None:
        """Fails if the nearest snapshot of any channel is taken for that of all."""
        thread = HandMadeThread(view, delta=("log", "seen", "unused"))
        both = (("log", "x"), ("seen", "y"))
        thread.put()
        for number in range(12):
            snapshot = [c for c, every in (("log", 3), ("seen", 5)) if number % every == every - 1]
            thread.superstep(*both, snapshot=snapshot)
        head = oracle.head(view, thread.thread_id)
        assert head is not None
        before, needed = thread.read(), thread.needed(head)
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, [head])
        thread.expect_rows(after, needed)

    def test_prune_keeps_what_a_channel_needs_that_left_the_counters(self, view: SyncView) -> None:
        """Fails if only the head's own counters tell which channels are delta channels."""
        thread = HandMadeThread(view)
        ids = thread.grow(4, snapshot_at=(1,))
        ids.append(thread.superstep(("log", "last"), counters_since_delta_snapshot={}))
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, ids[-1:])
        thread.expect_rows(after, ids[1:])

    def test_prune_keeps_values_that_update_state_alone_wrote(self, view: SyncView) -> None:
        """Fails if a thread with neither counters nor snapshots is taken for a plain one."""
        thread = HandMadeThread(view)
        bare: dict[str, Any] = {"source": "update", "counters_since_delta_snapshot": {}}
        thread.put(**bare)
        thread.superstep(("log", "a"), **bare)
        thread.superstep(("log", "b"), **bare)
        before = thread.read()
        _prune(thread)
        thread.expect_unchanged(before, thread.read())

    def test_prune_keeps_a_plain_seed_and_the_writes_at_it(self, view: SyncView) -> None:
        """Fails if the chain is cut below a value from before a migration."""
        thread = HandMadeThread(view)
        thread.grow(3)
        ids = [thread.put(plain={"log": ["old"]}), *thread.grow(3)]
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, ids[-1:])
        thread.expect_rows(after, ids)

    def test_prune_keeps_the_row_with_the_snapshot(self, view: SyncView) -> None:
        """Fails if the chain is cut below its seed: the row with the snapshot is needed as well."""
        thread = HandMadeThread(view)
        ids = thread.grow(6, snapshot_at=(3,))
        _prune(thread)
        reading = thread.read()["", ids[-1]].rebuilt["log"]
        assert reading.ended == "seed", f"read {reading}, expected a seed{thread.story()}"

    def test_prune_keeps_the_writes_of_rows_kept_for_replay(self, view: SyncView) -> None:
        """Fails if only the head's writes are kept, or a shorter list of those on its chain."""
        thread = HandMadeThread(view)
        ids = thread.grow(6, snapshot_at=(3,))
        expected = {i: thread.read()["", i].writes for i in ids[3:]}
        _prune(thread)
        after = thread.read()
        read = {i: after["", i].writes if ("", i) in after else None for i in expected}
        assert read == expected, f"read {read}, expected {expected}{thread.story()}"

    def test_prune_keeps_the_values_of_kept_rows(self, view: SyncView) -> None:
        """Fails if values go that only a row kept for replay refers to."""
        thread = HandMadeThread(view)
        ids = thread.grow(6, snapshot_at=(3,))
        expected = {i: thread.read()["", i].values for i in ids[3:]}
        _prune(thread)
        after = thread.read()
        read = {i: after["", i].values if ("", i) in after else None for i in expected}
        assert read == expected, f"read {read}, expected {expected}{thread.story()}"

    def test_prune_keeps_the_order_of_parallel_writes(self, view: SyncView) -> None:
        """Fails if the writes of a kept row are stored anew without their task paths."""
        thread = HandMadeThread(view)
        thread.grow(2)
        first = thread.put(snapshot=("log",))
        for number in (2, 0, 1):
            thread.write(
                first,
                ("log", f"p{number}"),
                task_id=f"{9 - number:08x}-0000-4000-8000-000000000000",
                task_path=f"~__pregel_pull, n{number}",
            )
        ids = [first, *thread.grow(3)]
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, ids[-1:])
        thread.expect_rows(after, ids)

    def test_prune_keeps_pending_writes_of_the_head(self, view: SyncView) -> None:
        """Fails if writes are deleted by thread instead of by checkpoint."""
        thread = HandMadeThread(view)
        ids = thread.grow(5, snapshot_at=(3,))
        thread.write(ids[-1], ("log", "done"))
        thread.write(ids[-1], ("__interrupt__", ["what now?"]))
        before = thread.read()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, ids[-1:])
        assert len(after["", ids[-1]].writes) == 2, thread.story()

    def test_prune_keeps_writes_stored_ahead_of_their_checkpoint(self, view: SyncView) -> None:
        """Fails if writes whose checkpoint is not stored yet count as left-overs.

        A run saves in the background, so a cleanup can come in between.
        """
        thread = HandMadeThread(view)
        last = thread.grow(5, snapshot_at=(3,))[-1]
        upcoming = "1fffffff-ffff-6000-8000-000000000000"
        thread.write_early(upcoming, ("log", "early"))
        _prune(thread)
        thread.put(parent=last, checkpoint_id=upcoming)
        writes = [value for _, _, value in thread.saved(upcoming).pending_writes or ()]
        assert writes == ["early"], f"read {writes}, expected ['early']{thread.story()}"

    def test_prune_keeps_the_metadata_of_the_head(self, view: SyncView) -> None:
        """Fails if kept rows are written anew with less metadata."""
        thread = HandMadeThread(view)
        ids = thread.grow(3, snapshot_at=(2,), run_id="run", user="someone", tags=["a", "b"])
        before = thread.read()
        _prune(thread)
        thread.expect_unchanged(before, thread.read(), ids[-1:])

    def test_prune_leaves_no_pointer_to_a_deleted_parent(self, view: SyncView) -> None:
        """Fails if the oldest kept row still names a parent that is gone."""
        thread = HandMadeThread(view)
        thread.grow(6, snapshot_at=(3,))
        _prune(thread)
        thread.expect_parents_stored(thread.read())

    def test_prune_keeps_values_that_two_rows_share(self, view: SyncView) -> None:
        """Fails if a deleted row takes along the values that a kept row refers to."""
        thread = HandMadeThread(view)
        thread.grow(4, snapshot_at=(3,))
        head = thread.put(shares_versions=True)
        before = thread.read()
        assert len(before["", head].values) == 2, thread.story()
        _prune(thread)
        after = thread.read()
        thread.expect_unchanged(before, after, [head])
        thread.expect_rows(after, [head])

    def test_prune_takes_the_values_of_deleted_rows(self, view: SyncView) -> None:
        """Fails if values stay behind: a row that names their version would read them."""
        thread = HandMadeThread(view, delta=())
        old = thread.put(plain={"topic": ["old"]})
        thread.put(plain={"topic": ["new"]})
        saved = view.get_tuple(view.config(thread.thread_id, "", old))
        _prune(thread)
        again = {**saved.checkpoint, "channel_values": {}}
        view.put(view.config(thread.thread_id), again, saved.metadata, {})
        left = view.get_tuple(view.config(thread.thread_id, "", old)).checkpoint["channel_values"]
        assert left == {}, f"left behind: {left}{thread.story()}"

    def test_prune_twice_changes_nothing_more(self, view: SyncView) -> None:
        """Fails if what one prune keeps is judged differently by the next."""
        thread = HandMadeThread(view)
        thread.grow(8, snapshot_at=(2, 4))
        _prune(thread)
        once = thread.read()
        _prune(thread)
        thread.expect_unchanged(once, thread.read())

    def test_prune_lets_the_thread_go_on(self, view: SyncView) -> None:
        """Fails if later checkpoints cannot be rebuilt through the rows that stayed."""
        thread = HandMadeThread(view)
        ids = thread.grow(6, snapshot_at=(2,))
        _prune(thread)
        ids += thread.grow(3)
        reading = thread.read()["", ids[-1]].rebuilt["log"]
        assert reading.seed is not None, thread.story()
        value = reading.seed.value.value + [written.value for _, _, written in reading.writes]
        assert value == thread.value(ids[-1]), f"read {value}{thread.story()}"

    def test_prune_leaves_other_threads_alone(self, view: SyncView) -> None:
        """Fails if ids are matched by prefix, by pattern, or without regard to case."""
        others = [HandMadeThread(view, name) for name in self.neighbours]
        threads = [HandMadeThread(view, "u"), HandMadeThread(view, "u_")]
        for each in (*others, *threads):
            each.grow(4, snapshot_at=(2,))
            each.grow(2, ns="child:call", parents={"": "elsewhere"})
        before = [each.read() for each in others]
        view.prune([each.thread_id for each in threads])
        for each, was in zip(others, before, strict=True):
            each.did("prune(['u', 'u_'])")
            each.expect_unchanged(was, each.read())

    def test_prune_of_several_threads_cleans_each(self, view: SyncView) -> None:
        """Fails if one thread's rows are judged by another's, or only the first is cleaned."""
        threads = [HandMadeThread(view, f"thread-{n}") for n in range(3)]
        ids = [each.grow(4 + n, snapshot_at=(2 + n,)) for n, each in enumerate(threads)]
        before = [each.read() for each in threads]
        view.prune([each.thread_id for each in threads])
        for n, each in enumerate(threads):
            each.did("prune all three")
            after = each.read()
            each.expect_rows(after, ids[n][2 + n :])
            each.expect_unchanged(before[n], after, ids[n][-1:])

    def test_prune_takes_an_int_id_as_its_string(self, view: SyncView) -> None:
        """Fails if thread `7` is not found under `"7"`."""
        thread = HandMadeThread(view, "7")
        ids = thread.grow(4, snapshot_at=(2,))
        view.prune([7])
        thread.did("prune([7])")
        thread.expect_rows(thread.read(), ids[2:])

    def test_prune_ends_where_the_parents_are_a_loop(self, view: SyncView) -> None:
        """Fails, after some seconds, if the walk does not stop on a repeated id."""
        thread = HandMadeThread(view)
        ids = thread.grow(5)
        thread.put(checkpoint_id=ids[1], parent=ids[3])
        within_patience(view, "prune", [thread.thread_id], side=view.side)
        thread.did("prune()")
        kept = oracle.keys(view, thread.thread_id)
        assert kept == [("", i) for i in ids[1:]], f"kept {kept}{thread.story()}"

    def test_prune_keeps_the_parent_that_holds_a_heads_sends(self, view: SyncView) -> None:
        """Fails if a head of a format before 4 loses the sends kept at its parent."""
        for v, kept in ((3, 2), (4, 1)):
            thread = HandMadeThread(view, f"format-{v}", delta=())
            ids = [thread.put(v=v) for _ in range(3)]
            thread.write(ids[-1], ("__pregel_tasks", "send"))
            ids.append(thread.put(v=v))
            before = thread.read()
            _prune(thread)
            after = thread.read()
            thread.expect_unchanged(before, after, ids[-1:])
            thread.expect_rows(after, ids[-kept:])


def _prune(thread: HandMadeThread) -> None:
    thread.view.prune([thread.thread_id])
    thread.did("prune()")
