"""Reading: what `get_tuple` and `list` give back of what `put` and `put_writes` stored."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase, needs
from delta_mixin.testing._threads import HandMadeThread
from delta_mixin.testing.oracle import Stored

VALUES: dict[str, Any] = {
    "text": "ü\n",
    "number": -1,
    "truth": True,
    "nothing yet": [],
    "bytes": b"\x00\xff",
    "nested": {"a": [1, {"b": None}]},
    "snapshot": _DeltaSnapshot(["x", "y"]),
}


class ReadingTests(ContractBase):
    """Everything else stands on this; a saver without any mixin can pass it."""

    subject = "reading"
    look_at = "put(), put_writes(), get_tuple() and list() of the saver itself"
    is_about_reading = True

    @needs("orders_writes_by_task_path")
    def test_writes_of_parallel_tasks_are_read_by_task_path(self, view: SyncView) -> None:
        """Fails if writes are sorted by task id: sort by `(task_path, task_id, idx)`.

        Look at put_writes(), which must store `task_path`, and at the order in get_tuple().
        """
        thread = HandMadeThread(view)
        first = thread.put()
        for number in (3, 0, 2, 1):
            thread.write(
                first,
                ("log", f"{number}a"),
                ("log", f"{number}b"),
                task_id=f"{9 - number:08x}-0000-4000-8000-000000000000",
                task_path=f"~__pregel_pull, n{number}",
            )
        _expect_writes(thread, first, [f"{number}{part}" for number in range(4) for part in "ab"])

    def test_writes_of_one_task_are_read_in_their_order(self, view: SyncView) -> None:
        """Fails if a write's index is sorted as text, where `10` comes before `2`.

        Look at the order of pending writes in get_tuple().
        """
        thread = HandMadeThread(view)
        first = thread.put()
        thread.write(first, *(("log", number) for number in range(12)))
        _expect_writes(thread, first, list(range(12)))

    def test_writes_stored_before_their_checkpoint_are_read(self, view: SyncView) -> None:
        """Fails if `put` clears the writes stored under its id: runs save in the background.

        Look at put(), and at put_writes() where no checkpoint is stored yet.
        """
        thread = HandMadeThread(view)
        first = thread.put()
        upcoming = "1fffffff-ffff-6000-8000-000000000000"
        thread.write_early(upcoming, ("log", "early"))
        thread.put(parent=first, checkpoint_id=upcoming)
        _expect_writes(thread, upcoming, ["early"])

    def test_writes_that_are_put_again_are_read_once(self, view: SyncView) -> None:
        """Fails if a task's writes are added up: a task that is retried puts them again.

        Look at the key that put_writes() stores under: it must hold task id and index.
        """
        thread = HandMadeThread(view)
        first = thread.put()
        for _ in range(2):
            task = "00000001-0000-4000-8000-000000000000"
            thread.write(first, ("log", "a"), ("log", "b"), task_id=task, task_path="~pull, n")
        _expect_writes(thread, first, ["a", "b"])

    def test_values_come_back_as_the_type_they_were(self, view: SyncView) -> None:
        """Fails if values pass through plain JSON: a snapshot then comes back as a list.

        Look at put() and get_tuple(): use the saver's `serde`.
        """
        thread = HandMadeThread(view, delta=())
        first = thread.put(plain=VALUES)
        saved = thread.saved(first)
        read = {c: v for c, v in saved.checkpoint["channel_values"].items() if c in VALUES}
        assert Stored(read) == Stored(VALUES), f"read {read}, expected {VALUES}{thread.story()}"

    def test_writes_come_back_as_the_type_they_were(self, view: SyncView) -> None:
        """Fails if writes are stored in another way than values.

        Look at put_writes() and get_tuple(): use the saver's `serde`.
        """
        thread = HandMadeThread(view)
        first = thread.put()
        thread.write(first, *(("log", value) for value in VALUES.values()))
        _expect_writes(thread, first, list(VALUES.values()))

    def test_metadata_comes_back_whole(self, view: SyncView) -> None:
        """Fails if only known keys are stored, or counters come back as text.

        Look at what put() stores of its `metadata`.
        """
        thread = HandMadeThread(view)
        thread.put()
        given: dict[str, Any] = {"user": "someone", "tags": ["a", "b"], "nested": {"depth": 1}}
        newest = thread.superstep(("log", "a"), run_id="run", **given)
        expected = {
            **given,
            "source": "loop",
            "step": 0,
            "parents": {},
            "run_id": "run",
            "counters_since_delta_snapshot": {"log": [1, 2]},
        }
        metadata = thread.saved(newest).metadata
        read = {name: metadata.get(name) for name in expected}
        assert read == expected, f"read {read}, expected {expected}{thread.story()}"

    def test_metadata_of_the_config_is_kept(self, view: SyncView) -> None:
        """Fails if `run_id` is lost, which runs pass in `config["metadata"]`.

        Look at put(): store `get_checkpoint_metadata(config, metadata)`, or no checkpoint can be
        found by its run.
        """
        thread = HandMadeThread(view)
        first = thread.put(config_metadata={"run_id": "run"})
        read = thread.saved(first).metadata.get("run_id")
        assert read == "run", f"read run_id {read!r}, expected 'run'{thread.story()}"

    def test_parents_come_back(self, view: SyncView) -> None:
        """Fails if a parent is guessed from the order of ids instead of stored.

        Look at `parent_config` in get_tuple().
        """
        thread = HandMadeThread(view)
        ids = thread.grow(3)
        fork = thread.put(parent=ids[0])
        expected = {ids[0]: None, ids[1]: ids[0], ids[2]: ids[1], fork: ids[0]}
        read = {i: thread.stored_parent(i) for i in expected}
        assert read == expected, f"read {read}, expected {expected}{thread.story()}"

    def test_the_newest_is_read_without_an_id(self, view: SyncView) -> None:
        """Fails if the head is that of another namespace, or the first instead of the last.

        Look at get_tuple() for a config without `checkpoint_id`.
        """
        thread = HandMadeThread(view)
        expected = {"": thread.grow(3)[-1], "child": thread.grow(2, ns="child")[-1]}
        read = {ns: oracle.head(view, thread.thread_id, ns) for ns in expected}
        assert read == expected, f"read {read}, expected {expected}{thread.story()}"

    def test_list_and_get_tuple_show_the_same(self, view: SyncView) -> None:
        """Fails if the two differ in values, metadata, parents or writes of a checkpoint.

        Look at list() beside get_tuple().
        """
        thread = HandMadeThread(view)
        ids = thread.grow(4, snapshot_at=(2,))
        thread.write(ids[-1], ("log", "pending"))
        listed = {s.checkpoint["id"]: s for s in view.list(view.config(thread.thread_id))}
        assert list(listed) == ids[::-1], f"list() is not newest first{thread.story()}"
        for checkpoint_id in ids:
            saved, other = thread.saved(checkpoint_id), listed[checkpoint_id]
            for name in ("checkpoint", "metadata", "parent_config"):
                expected, read = Stored(getattr(saved, name)), Stored(getattr(other, name))
                assert expected == read, f"{name} of {checkpoint_id}{thread.story()}"
            if other.pending_writes is not None:  # some savers leave them out of listings
                assert saved.pending_writes == other.pending_writes, thread.story()

    def test_what_is_not_stored_is_not_read(self, view: SyncView) -> None:
        """Fails if an unknown id is taken for the newest, or an unknown thread is an error.

        Look at get_tuple() and list() for ids that are not stored.
        """
        thread = HandMadeThread(view)
        ids = thread.grow(2)
        own = thread.thread_id
        configs = [
            view.config("nobody"),
            view.config(own, "child"),
            view.config(own, "", ids[0][::-1]),
            view.config(own, "child", ids[0]),
        ]
        for config in configs:
            read = view.get_tuple(config)
            assert read is None, f"get_tuple of {config} read {read}{thread.story()}"
        assert view.list(view.config("nobody")) == [], thread.story()

    def test_threads_are_read_apart(self, view: SyncView) -> None:
        """Fails if ids are matched by prefix, by pattern, or without regard to case.

        Look at how list(), get_tuple() and delete_thread() match the thread.
        """
        threads = [HandMadeThread(view, name) for name in ("u", *self.neighbours)]
        ids = [[*each.grow(2), *each.grow(1, ns="child")] for each in threads]
        before = [each.read() for each in threads]
        for each, own, read in zip(threads, ids, before, strict=True):
            each.expect_rows(read, [*own[:2], ("child", own[2])])
        view.delete_thread("u")
        threads[0].did("delete_thread('u')")
        threads[0].expect_rows(threads[0].read(), [])
        for each, read in zip(threads[1:], before[1:], strict=True):
            each.did("delete_thread('u')")
            each.expect_unchanged(read, each.read())


def _expect_writes(thread: HandMadeThread, checkpoint_id: str, expected: list[Any]) -> None:
    writes = thread.saved(checkpoint_id).pending_writes or ()
    read = [value for _, channel, value in writes if channel == "log"]
    assert Stored(read) == Stored(expected), (
        f"writes at {checkpoint_id}: read {read}, expected {expected}{thread.story()}"
    )
