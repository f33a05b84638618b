from __future__ import annotations

import asyncio
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin import (
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
    MissingHookError,
)


class Untouchable(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver):
    """Fails on any read or write."""

    def _touched(self, *args, **kwargs):
        raise AssertionError("the backend was touched")

    _list_checkpoint_rows = _delete_checkpoint_rows = _copy_checkpoint_rows = _touched
    _list_run_threads = _read_checkpoint_rows = _cleanup_scope = get_tuple = list = _touched


BAD_PRUNES = [
    ({"thread_ids": "t"}, TypeError, r"thread_ids must be a list of ids, got 't'; pass \['t'\]"),
    ({"thread_ids": 7}, TypeError, "thread_ids must be a list"),
    ({"thread_ids": [None]}, TypeError, "thread_id must be a str, int or UUID, got None"),
    ({"thread_ids": [True]}, TypeError, "got True"),
    ({"thread_ids": [""]}, ValueError, "must not be empty"),
    ({"strategy": "keep-latest"}, ValueError, "strategy must be one of 'keep_latest', 'delete'"),
    ({"keep_last": 0}, ValueError, "keep_last must be 1 or more, got 0"),
    ({"keep_last": -1}, ValueError, "keep_last must be 1 or more, got -1"),
    ({"keep_last": True}, TypeError, "keep_last must be an int"),
    ({"keep_last": 1.0}, TypeError, "keep_last must be an int"),
    ({"older_than": datetime(2026, 1, 1)}, ValueError, "aware datetime"),  # noqa: DTZ001
    ({"older_than": timedelta(seconds=-1)}, ValueError, "must not be negative"),
    ({"older_than": 3600}, TypeError, "older_than must be a timedelta or a datetime"),
    ({"pinned": "abc"}, TypeError, "pinned ids must be a list"),
    ({"delta": "keep"}, ValueError, "delta must be one of"),
    ({"severed": "raise"}, ValueError, "severed must be one of"),
    ({"strategy": "delete", "keep_last": 2}, ValueError, "cannot be given with it"),
    ({"strategy": "delete", "pinned": ["a"]}, ValueError, "cannot be given with it"),
    ({"delta": "squash"}, MissingHookError, "does not write the hook _squash_checkpoint_rows"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_PRUNES)
@pytest.mark.parametrize("method", ["prune", "plan_prune", "aprune", "aplan_prune"])
def test_a_prune_refuses_bad_arguments_before_reading(method, arguments, error, message):
    def call():
        outcome = getattr(Untouchable(), method)(**{"thread_ids": ["t"], **arguments})
        asyncio.run(outcome)  # a sync method has raised by now

    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("run_ids", ["r", 7, None])
def test_a_run_deletion_wants_a_list(run_ids):
    with pytest.raises(TypeError, match="run_ids must be a list"):
        Untouchable().delete_for_runs(run_ids)
    with pytest.raises(TypeError, match="thread_ids must be a list"):
        Untouchable().plan_delete_for_runs(["r"], thread_ids="t")


@pytest.mark.parametrize(
    ("delta", "error", "message"),
    [
        ("skip", ValueError, "delta must be one of 'keep_history', 'squash', got 'skip'"),
        (None, ValueError, "got None"),
        ("squash", MissingHookError, "Untouchable does not write the hook _squash_checkpoint_rows"),
    ],
)
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("delete_for_runs", (["r"],)),
        ("plan_delete_for_runs", (["r"],)),
        ("copy_thread", ("t", "u")),
    ],
)
@pytest.mark.parametrize("side", ["", "a"])
def test_a_squash_is_refused_before_reading(side, method, arguments, delta, error, message):
    def call():
        asyncio.run(getattr(Untouchable(), side + method)(*arguments, delta=delta))

    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("same", ["t", 7, uuid.UUID(int=5)])
def test_a_copy_onto_itself_is_refused(same):
    with pytest.raises(ValueError, match="source and target are the same thread"):
        Untouchable().copy_thread(same, str(same))


def test_a_keep_set_wants_a_list_of_channels():
    with pytest.raises(TypeError, match="channels must be a list"):
        Untouchable().get_delta_channel_keepset({"configurable": {"thread_id": "t"}}, "m")


def test_empty_lists_do_nothing():
    saver = Untouchable()
    saver.prune([])
    saver.delete_for_runs([])
    assert saver.plan_prune(()) == saver.plan_delete_for_runs([], thread_ids=["t"]) == []


def test_an_older_than_in_the_past_of_any_zone_is_fine():
    far = datetime(2000, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    Untouchable().prune([], older_than=far)
