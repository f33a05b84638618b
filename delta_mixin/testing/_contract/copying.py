"""`copy_thread`: a copy that reads like its source, and shares nothing with it."""

from __future__ import annotations

import pytest

from delta_mixin.errors import (
    CheckpointNotFoundError,
    SeveredHistoryError,
    TargetThreadExistsError,
    ThreadNotFoundError,
)
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase, needs
from delta_mixin.testing._threads import HandMadeThread
from delta_mixin.testing.oracle import Stored


class CopyTests(ContractBase):
    """Ids, order, metadata, values, writes and histories are the source's."""

    subject = "copy"
    look_at = "_copy_checkpoint_rows(): ids, parents, metadata, blobs, writes with their task paths"

    def test_a_copy_reads_like_its_source(self, view: SyncView) -> None:
        """Fails if rows, metadata, writes or namespaces are left out or changed."""
        thread = HandMadeThread(view, delta=("log", "seen"))
        thread.grow(5, snapshot_at=(2,), run_id="run-1", user="someone")
        thread.grow(3, run_id="run-2")
        thread.grow(3, ns="child", snapshot_at=(1,))
        thread.grow(2, ns="child:call", parents={"": "elsewhere"})
        last = thread.put()
        thread.write(last, ("log", "pending"), ("seen", "pending"))
        thread.write(last, ("__interrupt__", ["what now?"]))
        before = thread.read()
        _copy(thread, "copy")
        thread.expect_unchanged(before, thread.read())
        thread.expect_unchanged(before, thread.read(thread_id="copy"))
        listed = [s.checkpoint["id"] for s in view.list(view.config("copy"))]
        assert listed == [s.checkpoint["id"] for s in view.list(view.config("thread"))]

    def test_a_copy_keeps_the_metadata(self, view: SyncView) -> None:
        """Fails if only known keys are copied, counters are left out, or anything is added."""
        thread = HandMadeThread(view)
        ids = thread.grow(3, snapshot_at=(0,), run_id="run", user="someone", tags=["a", "b"])
        _copy(thread, "copy")
        expected = {i: Stored(thread.saved(i).metadata) for i in ids}
        copied = (oracle.read(view, "copy", "", i, ()) for i in ids)
        read = {i: reading and reading.metadata for i, reading in zip(ids, copied, strict=True)}
        assert read == expected, f"read {read}, expected {expected}{thread.story('copy')}"

    def test_a_copy_names_its_own_thread(self, view: SyncView) -> None:
        """Fails if the source's thread id is copied along inside the rows.

        Look at the configs that get_tuple() and list() return for a copy.
        """
        thread = HandMadeThread(view)
        ids = thread.grow(3)
        _copy(thread, "copy")
        read = [view.get_tuple(view.config("copy", "", i)) for i in ids]
        read += view.list(view.config("copy"))
        assert len(read) == 6, f"read {read}{thread.story('copy')}"
        configs = [c for saved in read for c in (saved.config, saved.parent_config) if c]
        named = {str(config["configurable"]["thread_id"]) for config in configs}
        assert named == {"copy"}, f"read {named}, expected 'copy'{thread.story('copy')}"

    def test_a_copy_keeps_the_parents(self, view: SyncView) -> None:
        """Fails if rows are chained by age instead of by the parents they had."""
        thread = HandMadeThread(view)
        ids = thread.grow(3)
        thread.grow(2, parent=thread.put(parent=ids[0]))
        _copy(thread, "copy")
        expected, read = _parents(view, "thread"), _parents(view, "copy")
        assert read == expected, f"read {read}, expected {expected}{thread.story('copy')}"

    @needs("orders_writes_by_task_path")
    def test_a_copy_keeps_the_order_of_parallel_writes(self, view: SyncView) -> None:
        """Fails if task paths are lost: writes then sort by task id."""
        thread = HandMadeThread(view)
        first = thread.put()
        for number in (2, 0, 3, 1):
            thread.write(
                first,
                ("log", f"{number}a"),
                ("log", f"{number}b"),
                task_id=f"{9 - number:08x}-0000-4000-8000-000000000000",
                task_path=f"~__pregel_pull, n{number}",
            )
        newest = thread.put()
        _copy(thread, "copy")
        for thread_id in ("thread", "copy"):
            reading = oracle.read(view, thread_id, "", newest, ("log",))
            assert reading is not None, thread.story(thread_id)
            read = [written.value for _, _, written in reading.rebuilt["log"].writes]
            expected = [f"{number}{part}" for number in range(4) for part in "ab"]
            assert read == expected, f"read {read}{thread.story(thread_id)}"

    def test_cleaning_the_source_leaves_the_copy_alone(self, view: SyncView) -> None:
        """Fails if copy and source share rows, writes or blobs."""
        thread = _copied(view)
        copy = thread.read(thread_id="copy")
        if view.offers("prune"):
            view.prune(["thread"])
            thread.did("prune(['thread'])")
            thread.expect_unchanged(copy, thread.read(thread_id="copy"))
        view.delete_thread("thread")
        thread.did("delete_thread('thread')")
        thread.expect_unchanged(copy, thread.read(thread_id="copy"))

    def test_cleaning_the_copy_leaves_the_source_alone(self, view: SyncView) -> None:
        """Fails if copy and source share rows, writes or blobs."""
        thread = _copied(view)
        source = thread.read()
        if view.offers("prune"):
            view.prune(["copy"])
            thread.did("prune(['copy'])")
            thread.expect_unchanged(source, thread.read())
        view.delete_thread("copy")
        thread.did("delete_thread('copy')")
        thread.expect_unchanged(source, thread.read())

    def test_a_copy_goes_on_by_itself(self, view: SyncView) -> None:
        """Fails if a checkpoint added to the copy cannot be rebuilt, or shows in the source."""
        thread = _copied(view)
        source = thread.read()
        head = oracle.head(view, "copy")
        copy = HandMadeThread(view, "copy")
        copy.steps = thread.steps
        assert head is not None, thread.story("copy")
        copy.adopt(thread, head)
        value = [*copy.value(head), "more"]
        newest = copy.superstep(("log", "more"), parent=head)
        rebuilt = copy.read()["", newest].rebuilt["log"]
        seed = rebuilt.seed.value.value if rebuilt.seed else []
        read = seed + [written.value for _, _, written in rebuilt.writes]
        assert read == value, f"read {read}, expected {value}{copy.story()}"
        thread.expect_unchanged(source, thread.read())

    def test_a_copy_to_a_thread_with_rows_is_refused(self, view: SyncView) -> None:
        """Fails if two threads' rows are mixed."""
        thread, other = HandMadeThread(view), HandMadeThread(view, "other")
        thread.grow(2)
        other.grow(1, ns="child")
        before = other.read()
        with pytest.raises(TargetThreadExistsError):
            _copy(thread, "other")
        other.expect_unchanged(before, other.read())

    def test_a_copy_of_nobody_is_refused(self, view: SyncView) -> None:
        """Fails if an unknown source makes an empty copy."""
        with pytest.raises(ThreadNotFoundError):
            view.copy_thread("nobody", "copy")
        assert oracle.keys(view, "copy") == []

    def test_a_copy_onto_itself_is_refused(self, view: SyncView) -> None:
        """Fails if `7` and `"7"` are taken for different threads."""
        HandMadeThread(view, "7").grow(2)
        for target in ("7", 7):
            with pytest.raises(ValueError, match="same thread"):
                view.copy_thread("7", target)

    def test_a_copy_of_one_checkpoint_holds_what_it_needs(self, view: SyncView) -> None:
        """Fails if later rows or other branches come along, or a row it needs does not."""
        thread = HandMadeThread(view)
        ids = thread.grow(8, snapshot_at=(2,))
        thread.grow(2, parent=thread.put(parent=ids[3]))
        thread.write(ids[5], ("log", "pending"))
        before = thread.read()
        _copy(thread, "copy", checkpoint_id=ids[5])
        after = thread.read(thread_id="copy")
        thread.expect_rows(after, ids[2:6])
        thread.expect_unchanged(before, after, [ids[5]])
        thread.expect_unchanged(before, thread.read())
        assert oracle.head(view, "copy") == ids[5], thread.story("copy")

    def test_a_copy_of_one_checkpoint_takes_its_subgraphs_along(self, view: SyncView) -> None:
        """Fails if other checkpoints' calls come along, or the subgraphs' state of then is not."""
        thread = HandMadeThread(view)
        ids = thread.grow(4, snapshot_at=(0,))
        state = [thread.grow(1, ns="sub", parents={"": i})[0] for i in ids]
        calls = [thread.grow(2, ns=f"sub:{n}", parents={"": i}) for n, i in enumerate(ids)]
        before = thread.read()
        _copy(thread, "copy", checkpoint_id=ids[2])
        after = thread.read(thread_id="copy")
        expected = [*ids[:3], *(("sub", i) for i in state[:3]), *(("sub:2", i) for i in calls[2])]
        thread.expect_rows(after, expected)
        thread.expect_unchanged(before, after, [ids[2], ("sub", state[2]), ("sub:2", calls[2][-1])])

    def test_a_copy_of_an_unknown_checkpoint_is_refused(self, view: SyncView) -> None:
        """Fails if an id of another namespace or thread is taken, or a torso is left."""
        thread = HandMadeThread(view)
        thread.grow(2)
        inner = thread.grow(2, ns="child")[0]
        for unknown in (inner, "unheard-of"):
            with pytest.raises(CheckpointNotFoundError):
                _copy(thread, "copy", checkpoint_id=unknown)
        assert oracle.keys(view, "copy") == [], thread.story("copy")

    def test_a_copy_of_a_severed_checkpoint_is_refused(self, view: SyncView) -> None:
        """Fails if a copy is made that reads back short."""
        thread = HandMadeThread(view)
        thread.put(parent=thread.missing("1f000000-0000-6000-8000-000000000000"))
        head = thread.grow(2)[-1]
        with pytest.raises(SeveredHistoryError):
            _copy(thread, "copy", checkpoint_id=head)
        assert oracle.keys(view, "copy") == [], thread.story("copy")


def _copy(thread: HandMadeThread, target: str, checkpoint_id: str | None = None) -> None:
    options = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    thread.view.copy_thread(thread.thread_id, target, **options)
    thread.did(f"copy_thread({thread.thread_id!r}, {target!r}, {options})")


def _copied(view: SyncView) -> HandMadeThread:
    thread = HandMadeThread(view)
    thread.grow(5, snapshot_at=(2,))
    thread.grow(3, ns="child", snapshot_at=(1,))
    _copy(thread, "copy")
    return thread


def _parents(view: SyncView, thread_id: str) -> dict[str, str | None]:
    return {
        saved.checkpoint["id"]: (saved.parent_config or {"configurable": {}})["configurable"].get(
            "checkpoint_id"
        )
        for saved in view.list(view.config(thread_id))
    }
