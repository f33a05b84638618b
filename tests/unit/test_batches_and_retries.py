from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from delta_mixin import CleanupFailedError, SeveredHistoryError
from delta_mixin.adapters.memory import DeltaInMemorySaver


class InTheWayError(Exception):
    """Another transaction was in the way."""


class Batched(DeltaInMemorySaver):
    """Records its batches; deletes of `stuck` threads fail so many times."""

    CLEANUP_BATCH_SIZE = 3

    def __init__(self, stuck=()):
        super().__init__()
        self.stuck = dict(stuck)
        self.batches = []
        self.read_batches = []

    def _retry_after(self, error):
        return isinstance(error, InTheWayError)

    @contextmanager
    def _cleanup_scope(self, thread_ids):
        self.batches.append(thread_ids)
        yield

    @contextmanager
    def _read_scope(self, thread_ids):
        self.read_batches.append(thread_ids)
        yield

    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            if self.stuck.get(plan.thread_id, 0) > 0:
                self.stuck[plan.thread_id] -= 1
                raise InTheWayError(plan.thread_id)
        super()._delete_checkpoint_rows(plans)


def filled(saver, *thread_ids, length=2):
    for thread_id in thread_ids:
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        for _ in range(length):
            config = saver.put(config, empty_checkpoint(), {"source": "loop"}, {})
    return saver


def lengths(saver):
    return {
        thread_id: sum(map(len, namespaces.values()))
        for thread_id, namespaces in saver.storage.items()
    }


class TestBatches:
    def test_threads_go_through_in_order_and_together(self):
        saver = filled(Batched(), *"abcdefg")
        saver.prune([*"abcdefg"])
        assert saver.batches == [("a", "b", "c"), ("d", "e", "f"), ("g",)]
        saver.plan_prune([*"abcd"])
        assert saver.read_batches == [("a", "b", "c"), ("d",)]

    def test_a_batch_is_closed_before_it_holds_too_many_rows(self):
        class Counted(Batched):
            CLEANUP_BATCH_SIZE = 4
            CLEANUP_BATCH_ROWS = 10
            counted = ()

            def _count_checkpoint_rows(self, thread_ids):
                self.counted = (*self.counted, thread_ids)
                return {"a": 5, "b": 5, "c": 1, "d": 99, "e": 1}

        saver = Counted()
        saver.prune([*"abcdef"])
        assert saver.batches == [("a", "b"), ("c",), ("d",), ("e", "f")]
        assert saver.counted == (("a", "b", "c", "d"), ("e", "f"))

    def test_rows_are_not_counted_where_nobody_asks_for_it(self):
        class Uncounted(Batched):
            def _count_checkpoint_rows(self, thread_ids):
                raise AssertionError("counted")

        Uncounted().prune([*"abcd"])


class TestRetries:
    def test_a_batch_is_planned_anew_until_it_gets_through(self):
        saver = filled(Batched({"b": 2}), *"abc")
        plans = []
        saver.prune([*"abc"], on_plan=plans.append)
        assert saver.batches == [("a", "b", "c")] * 3
        assert [p.thread_id for p in plans] == [*"abc"]
        assert set(lengths(saver).values()) == {1}

    def test_then_its_threads_go_one_by_one_and_those_left_are_named(self):
        saver = filled(Batched({"b": 99}), *"abcd")
        plans = []
        with pytest.raises(CleanupFailedError, match="'b': InTheWayError: b") as caught:
            saver.prune([*"abcd"], on_plan=plans.append)
        assert caught.value.threads == ("b",)
        assert type(caught.value.causes["b"]) is InTheWayError
        assert caught.value.__cause__ is caught.value.causes["b"]
        assert [p.thread_id for p in plans] == [*"acd"]
        assert lengths(saver) == {"a": 1, "b": 2, "c": 1, "d": 1}
        assert saver.batches.count(("b",)) == 3

    def test_a_thread_that_gets_through_alone_is_done(self):
        saver = filled(Batched({"b": 4}), *"abc")
        saver.prune([*"abc"])
        assert set(lengths(saver).values()) == {1}

    def test_run_deletion_is_retried_too(self):
        saver = filled(Batched({"a": 1}), "a")
        config = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {"run_id": "r"}, {})
        saver.delete_for_runs(["r"])
        assert lengths(saver) == {"a": 2}

    def test_other_errors_end_the_operation_at_once(self):
        class Broken(Batched):
            def _delete_checkpoint_rows(self, plans):
                raise KeyError("broken")

        saver = filled(Broken(), *"abc")
        with pytest.raises(KeyError):
            saver.prune([*"abc"])
        assert len(saver.batches) == 1

    def test_severed_threads_are_named_in_the_cause(self):
        saver = filled(Batched({"b": 99}), *"ab")
        config = {"configurable": {"thread_id": "cut", "checkpoint_ns": "", "checkpoint_id": "0"}}
        checkpoint = {**empty_checkpoint(), "channel_versions": {"log": "1"}}
        saver.put(config, checkpoint, {"counters_since_delta_snapshot": {"log": [1, 1]}}, {})
        with pytest.raises(CleanupFailedError) as caught:
            saver.prune(["a", "b", "cut"])
        assert caught.value.threads == ("b",)
        assert isinstance(caught.value.__cause__, SeveredHistoryError)
        assert lengths(saver) == {"a": 1, "b": 2, "cut": 1}

    def test_copies_and_plans_are_retried(self):
        class Vanishing(Batched):
            times = 1

            def _list_checkpoint_rows(self, thread_ids):
                if self.times:
                    self.times -= 1
                    raise InTheWayError
                return super()._list_checkpoint_rows(thread_ids)

        saver = filled(Vanishing(), "a")
        assert [p.thread_id for p in saver.plan_prune(["a"])] == ["a"]
        saver.times = 2
        saver.copy_thread("a", "b")
        assert lengths(saver) == {"a": 2, "b": 2}
        saver.times = 3
        with pytest.raises(InTheWayError):
            saver.copy_thread("a", "c")

    def test_async_operations_are_retried_as_well(self):
        class AsyncBatched(Batched):
            def _acleanup_scope(self, thread_ids):
                return _nothing()

            async def _adelete_checkpoint_rows(self, plans):
                self._delete_checkpoint_rows(plans)

        class _nothing:  # noqa: N801
            async def __aenter__(self):
                return None

            async def __aexit__(self, *error):
                return None

        saver = filled(AsyncBatched({"b": 99}), *"abc")
        with pytest.raises(CleanupFailedError) as caught:
            asyncio.run(saver.aprune([*"abc"]))
        assert caught.value.threads == ("b",)
        assert lengths(saver) == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize("method", ["prune", "plan_prune"])
def test_a_nul_in_an_id_is_refused_before_reading(method):
    saver = Batched()
    with pytest.raises(ValueError, match=r"thread_id must not hold a NUL character, got 'a\\x00b'"):
        getattr(saver, method)(["a", "a\0b"])
    assert not saver.batches + saver.read_batches
