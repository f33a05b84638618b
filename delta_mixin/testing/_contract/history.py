"""Delta history: what `get_delta_channel_history` must return for a rebuilt channel."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase, needs
from delta_mixin.testing._deadline import within_patience
from delta_mixin.testing._threads import HandMadeThread
from delta_mixin.testing.oracle import Stored


class HistoryTests(ContractBase):
    """Cleanup can only keep what a reader reads, so the reader is tested first."""

    subject = "history"
    look_at = "get_delta_channel_history(), or get_tuple() where it is the host's own"
    is_about_reading = True

    @needs("orders_writes_by_task_path")
    def test_history_orders_parallel_writes_by_task_path(self, view: SyncView) -> None:
        """Fails if writes are sorted by task id: sort by `(task_path, task_id, idx)`."""
        thread = HandMadeThread(view)
        first = thread.put()
        for number in (3, 0, 7, 5, 1, 6, 2, 4):
            thread.write(
                first,
                ("log", f"{number}a"),
                ("log", f"{number}b"),
                task_id=f"{9 - number:08x}-0000-4000-8000-000000000000",
                task_path=f"~__pregel_pull, n{number}",
            )
        newest = thread.put()
        read = [value for _, _, value in _history(thread, newest)["writes"]]
        expected = [f"{number}{part}" for number in range(8) for part in "ab"]
        assert read == expected, f"read {read}{thread.story()}"

    def test_history_keeps_the_order_of_one_tasks_writes(self, view: SyncView) -> None:
        """Fails if a write's index is sorted as text, where `10` comes before `2`."""
        thread = HandMadeThread(view)
        first = thread.put()
        thread.write(first, *(("log", number) for number in range(12)))
        newest = thread.put()
        _expect_history(thread, newest, seed=None, writes=list(range(12)))

    def test_each_branch_of_a_fork_reads_its_own_values(self, view: SyncView) -> None:
        """Fails if values are stored by channel and version, and versions repeat on branches."""
        thread = HandMadeThread(view, delta=())
        base = thread.put(plain={"topic": ["old"]})
        branches = {t: thread.put(parent=base, plain={"topic": [t]}) for t in ("left", "right")}
        values = {topic: thread.read()["", i].values["topic"] for topic, i in branches.items()}
        expected = {topic: Stored([topic]) for topic in branches}
        assert values == expected, f"read {values}{thread.story()}"

    def test_history_is_oldest_first(self, view: SyncView) -> None:
        """Fails if writes are returned in the order the parents are walked."""
        thread = HandMadeThread(view)
        newest = thread.grow(6)[-1]
        _expect_history(thread, newest, seed=None, writes=thread.value(newest))

    def test_history_starts_at_the_nearest_snapshot(self, view: SyncView) -> None:
        """Fails if the walk goes on past a snapshot, or leaves out the writes stored at it."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(2, 5))
        seed = thread.value(ids[5])
        expected = thread.value(ids[-1])[len(seed) :]
        assert len(expected) == 3
        _expect_history(thread, ids[-1], seed=_DeltaSnapshot(seed), writes=expected)

    def test_history_leaves_out_the_writes_of_the_checkpoint_itself(self, view: SyncView) -> None:
        """Fails if the walk starts at the checkpoint: its own writes are the next step's."""
        thread = HandMadeThread(view)
        newest = thread.grow(3)[-1]
        thread.write(newest, ("log", "pending"))
        _expect_history(thread, newest, seed=None, writes=thread.value(newest))

    def test_history_follows_the_branch_of_a_fork(self, view: SyncView) -> None:
        """Fails if ancestors are found by id ranges instead of by parents."""
        thread = HandMadeThread(view)
        ids = thread.grow(4, snapshot_at=(1,))
        main = thread.grow(2)[-1]
        fork = thread.grow(2, parent=thread.put(parent=ids[1]))[-1]
        seed = thread.value(ids[1])
        for tip in (main, fork):
            rest = thread.value(tip)[len(seed) :]
            _expect_history(thread, tip, seed=_DeltaSnapshot(seed), writes=rest)

    def test_history_takes_a_plain_value_as_the_seed(self, view: SyncView) -> None:
        """Fails if only snapshots stop the walk: values from before a migration do as well."""
        thread = HandMadeThread(view)
        thread.grow(3)
        thread.put(plain={"log": ["old"]})
        newest = thread.grow(2)[-1]
        _expect_history(thread, newest, seed=["old"], writes=None)

    @needs("replays_writes_of_plain_seeds")
    def test_history_replays_the_writes_at_a_plain_seed(self, view: SyncView) -> None:
        """Fails if a plain value is taken to contain the writes stored beside it."""
        thread = HandMadeThread(view)
        thread.put(plain={"log": ["old"]})
        newest = thread.superstep(("log", "new"))
        _expect_history(thread, newest, seed=["old"], writes=["new"])

    def test_history_keeps_falsy_and_boolean_seeds(self, view: SyncView) -> None:
        """Fails if a seed is tested for truth, or a stored `True` taken for a marker."""
        for number, value in enumerate((True, False, 0, "", [])):
            thread = HandMadeThread(view, f"seed-{number}")
            thread.put(plain={"log": "older"})
            thread.put(plain={"log": value})
            newest = thread.superstep(("log", "new"))
            _expect_history(thread, newest, seed=value, writes=None)

    def test_history_ends_each_channel_at_its_own_seed(self, view: SyncView) -> None:
        """Fails if one channel's snapshot ends the walk of another."""
        thread = HandMadeThread(view, delta=("log", "seen"))
        thread.grow(2)
        thread.superstep(("log", "x"), ("seen", "y"), snapshot=("seen",))
        thread.grow(2)
        thread.superstep(("log", "x"), ("seen", "y"), snapshot=("log",))
        newest = thread.grow(2)[-1]
        reading = oracle.read(view, thread.thread_id, "", newest, thread.delta)
        assert reading is not None
        log, seen = reading.rebuilt["log"], reading.rebuilt["seen"]
        assert (log.ended, seen.ended) == ("seed", "seed"), f"{reading}{thread.story()}"
        for channel, rebuilt in (("log", log), ("seen", seen)):
            assert rebuilt.seed is not None
            value = rebuilt.seed.value.value + [w.value for _, _, w in rebuilt.writes]
            assert value == thread.value(newest, channel), f"{channel}: {rebuilt}{thread.story()}"

    def test_history_reaches_further_than_a_thousand_rows(self, view: SyncView) -> None:
        """Fails if ancestors are read in pages and only the first page is used."""
        thread = HandMadeThread(view)
        target = thread.grow(3)[-1]
        for _ in range(1_100):
            thread.put()
        thread.steps[6:] = ["put 1,100 more checkpoints"]
        _expect_history(thread, target, seed=None, writes=thread.value(target))

    @needs("follows_parents_not_ids")
    def test_history_follows_a_parent_with_a_greater_id(self, view: SyncView) -> None:
        """Fails if ids are taken to grow: two processes' clocks can differ."""
        thread = HandMadeThread(view)
        first = thread.put(checkpoint_id="1f000000-0000-6003-8000-000000000000")
        thread.write(first, ("log", "a"))
        second = thread.put(checkpoint_id="1f000000-0000-6001-8000-000000000000")
        thread.write(second, ("log", "b"))
        target = thread.put(checkpoint_id="1f000000-0000-6002-8000-000000000000")
        _expect_history(thread, target, seed=None, writes=["a", "b"])

    @needs("ends_looped_histories")
    def test_history_ends_where_the_parents_are_a_loop(self, view: SyncView) -> None:
        """Fails, after some seconds, if a walk does not stop on a repeated id."""
        thread = HandMadeThread(view)
        ids = thread.grow(4)
        thread.put(checkpoint_id=ids[1], parent=ids[3])
        config = view.config(thread.thread_id, "", ids[3])
        history = within_patience(
            view, "get_delta_channel_history", config=config, channels=["log"]
        )
        assert history is not None, f"the walk does not end{thread.story()}"
        writes = [value for _, _, value in history["log"]["writes"]]
        assert len(writes) == len(set(writes)), f"replayed twice: {writes}{thread.story()}"


def _history(thread: HandMadeThread, checkpoint_id: str, channel: str = "log") -> Any:
    config = thread.view.config(thread.thread_id, "", checkpoint_id)
    return thread.view.get_delta_channel_history(config=config, channels=[channel])[channel]


def _expect_history(
    thread: HandMadeThread, checkpoint_id: str, *, seed: Any, writes: list[Any] | None
) -> None:
    history = _history(thread, checkpoint_id)
    read_seed = history.get("seed")
    assert Stored(read_seed) == Stored(seed), (
        f"seed at {checkpoint_id}: expected {seed!r}, read {read_seed!r}{thread.story()}"
    )
    read = [value for _, _, value in history["writes"]]
    assert writes is None or read == writes, (
        f"writes at {checkpoint_id}: expected {writes!r}, read {read!r}{thread.story()}"
    )
