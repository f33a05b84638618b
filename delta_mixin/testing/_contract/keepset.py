"""`get_delta_channel_keepset`: the ids that channels of one checkpoint are rebuilt from."""

from __future__ import annotations

import pytest

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing._deadline import within_patience
from delta_mixin.testing._threads import HandMadeThread


class KeepsetTests(ContractBase):
    """The keep-set is exact: one id less loses a value, one more keeps a row for nothing."""

    subject = "keep-set"
    look_at = "the parents that get_tuple() reads, and get_delta_channel_keepset() if overridden"

    def test_keepset_of_no_channels_is_the_checkpoint_alone(self, view: SyncView) -> None:
        """Fails if an empty list of channels is taken for all channels."""
        thread = HandMadeThread(view)
        ids = thread.grow(4)
        _expect_keepset(thread, ids[2], [], ids[2:3])

    def test_keepset_goes_back_to_the_nearest_snapshot(self, view: SyncView) -> None:
        """Fails if the row with the snapshot is left out, or the walk goes past it."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(2, 5))
        _expect_keepset(thread, ids[8], ["log"], ids[5:])
        _expect_keepset(thread, ids[7], ["log"], ids[5:8])
        _expect_keepset(thread, ids[4], ["log"], ids[2:5])

    def test_keepset_without_a_snapshot_is_the_chain_to_the_root(self, view: SyncView) -> None:
        """Fails if a walk without a seed gives up instead of keeping everything."""
        thread = HandMadeThread(view)
        ids = thread.grow(5)
        _expect_keepset(thread, ids[4], ["log"], ids)

    def test_keepset_of_several_channels_is_their_union(self, view: SyncView) -> None:
        """Fails if the first channel's seed ends the walk of the others."""
        thread = HandMadeThread(view, delta=("log", "seen"))
        both = (("log", "x"), ("seen", "y"))
        ids = thread.grow(2)
        ids.append(thread.superstep(*both, snapshot=("seen",)))
        ids += thread.grow(2)
        ids.append(thread.superstep(*both, snapshot=("log",)))
        ids += thread.grow(2)
        _expect_keepset(thread, ids[-1], ["log"], ids[5:])
        _expect_keepset(thread, ids[-1], ["seen"], ids[2:])
        _expect_keepset(thread, ids[-1], ["log", "seen"], ids[2:])

    def test_keepset_of_a_channel_populated_here_is_the_checkpoint(self, view: SyncView) -> None:
        """Fails if the walk starts although the value is stored at the checkpoint."""
        thread = HandMadeThread(view)
        ids = thread.grow(4, snapshot_at=(3,))
        _expect_keepset(thread, ids[3], ["log"], ids[3:])

    def test_keepset_stops_at_a_plain_value(self, view: SyncView) -> None:
        """Fails if only snapshots count as seeds."""
        thread = HandMadeThread(view)
        thread.grow(2)
        ids = [thread.put(plain={"log": ["old"]}), *thread.grow(2)]
        _expect_keepset(thread, ids[-1], ["log"], ids)

    def test_keepset_without_an_id_is_that_of_the_newest(self, view: SyncView) -> None:
        """Fails if a config without checkpoint id is not resolved."""
        thread = HandMadeThread(view)
        ids = thread.grow(5, snapshot_at=(2,))
        _expect_keepset(thread, None, ["log"], ids[2:])

    def test_keepset_of_an_unknown_checkpoint_is_empty(self, view: SyncView) -> None:
        """Fails if an id that is not stored is reported as kept."""
        thread = HandMadeThread(view)
        ids = thread.grow(2)
        _expect_keepset(thread, ids[0][::-1], ["log"], [])
        nobody = view.config("nobody")
        assert view.get_delta_channel_keepset(nobody, ["log"]) == set()

    def test_keepset_walks_for_a_channel_that_was_never_written(self, view: SyncView) -> None:
        """Fails if the channels asked for are filtered: the caller's word counts."""
        thread = HandMadeThread(view)
        ids = thread.grow(3)
        _expect_keepset(thread, ids[-1], ["unheard of"], ids)

    def test_keepset_stays_on_its_branch_and_in_its_namespace(self, view: SyncView) -> None:
        """Fails if ancestors are found by id ranges, or across namespaces."""
        thread = HandMadeThread(view)
        ids = thread.grow(3)
        thread.grow(2)
        fork = thread.grow(2, parent=thread.put(parent=ids[1]))[-1]
        inner = thread.grow(3, ns="child")
        _expect_keepset(thread, inner[-1], ["log"], inner, ns="child")
        needed = {i for _, i in thread.needed(fork)}
        assert ids[2] not in needed
        _expect_keepset(thread, fork, ["log"], sorted(needed))

    def test_keepset_ends_where_the_parents_are_a_loop(self, view: SyncView) -> None:
        """Fails, after some seconds, if the walk does not stop on a repeated id."""
        thread = HandMadeThread(view)
        ids = thread.grow(4)
        thread.put(checkpoint_id=ids[1], parent=ids[3])
        config = view.config(thread.thread_id, "", ids[3])
        kept = within_patience(view, "get_delta_channel_keepset", config, ["log"], side=view.side)
        assert kept == set(ids[1:]), f"kept {kept}, expected {ids[1:]}{thread.story()}"

    def test_keepset_takes_a_list_of_channels_only(self, view: SyncView) -> None:
        """Fails if a bare string is taken for a list of one-letter channels."""
        with pytest.raises(TypeError):
            view.get_delta_channel_keepset(view.config("thread"), "log")


def _expect_keepset(
    thread: HandMadeThread,
    checkpoint_id: str | None,
    channels: list[str],
    expected: list[str],
    ns: str = "",
) -> None:
    config = thread.view.config(thread.thread_id, ns, checkpoint_id)
    kept = thread.view.get_delta_channel_keepset(config, channels)
    assert kept == set(expected), (
        f"keep-set of {checkpoint_id} for {channels}: too little {sorted({*expected} - kept)}, "
        f"too much {sorted(kept - {*expected})}{thread.story()}"
    )
