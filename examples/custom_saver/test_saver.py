"""The whole contract, run on our saver; every saver's test file can look like this."""

import tempfile
import threading
from contextlib import contextmanager
from typing import Annotated, TypedDict

import pytest
from delta_jsonl_saver import DeltaJsonLinesSaver
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from thread_files import ThreadFiles

from delta_mixin import TargetThreadExistsError, compaction
from delta_mixin.testing import CleanupStateMachine, SaverContract

THREAD = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}


@contextmanager
def fresh_saver():
    with (
        tempfile.TemporaryDirectory() as folder,
        DeltaJsonLinesSaver.open(folder) as saver,
    ):
        yield saver


class TestDeltaJsonLinesSaver(SaverContract):
    # `get_delta_channel_history` is the host's own, which never returns where a checkpoint was
    # put again below its own descendant. Cleanup copes with that; see the tests of the keep-set.
    ends_looped_histories = False

    def make_saver(self):
        return fresh_saver()


class JsonLinesMachine(CleanupStateMachine):
    def make_saver(self):
        return fresh_saver()


TestJsonLinesMachine = JsonLinesMachine.TestCase


# What the contract leaves to each saver.


@pytest.fixture
def saver(tmp_path):
    with DeltaJsonLinesSaver.open(tmp_path) as saver:
        yield saver


def steps_of(saver):
    return [saved.metadata["step"] for saved in saver.list(THREAD)]


def test_a_run_that_writes_during_a_cleanup_loses_nothing(saver, monkeypatch):
    config = THREAD
    for step in range(3):
        config = saver.put(config, empty_checkpoint(), {"source": "loop", "step": step}, {})
    run = threading.Thread(
        target=saver.put, args=(config, empty_checkpoint(), {"source": "loop", "step": 3}, {})
    )
    replace = ThreadFiles.replace

    def replace_while_a_run_writes(files, thread_id, thread):
        run.start()
        run.join(timeout=0.2)  # it has to wait for the cleanup, so this runs out
        replace(files, thread_id, thread)

    monkeypatch.setattr(ThreadFiles, "replace", replace_while_a_run_writes)
    saver.prune(["a"])
    run.join()
    assert steps_of(saver) == [3, 2]


def test_a_run_is_found_by_the_metadata_of_its_config(saver):
    config = THREAD
    for step in range(3):
        config = {**config, "metadata": {"run_id": f"run-{step}"}}
        config = saver.put(config, empty_checkpoint(), {"source": "loop", "step": step}, {})
    saver.delete_for_runs(["run-1"])
    assert steps_of(saver) == [2, 0]


def test_a_cleanup_leaves_writes_whose_checkpoint_is_still_to_come(saver):
    config = THREAD
    for step in range(2):
        config = saver.put(config, empty_checkpoint(), {"source": "loop", "step": step}, {})
    coming = empty_checkpoint()
    early = {"configurable": {**THREAD["configurable"], "checkpoint_id": coming["id"]}}
    saver.put_writes(early, [("log", "early")], "task")
    saver.prune(["a"])
    saver.put(config, coming, {"source": "loop", "step": 2}, {})
    assert saver.get_tuple(THREAD).pending_writes == [("task", "log", "early")]


def test_a_copy_onto_writes_without_a_checkpoint_is_refused(saver):
    saver.put(THREAD, empty_checkpoint(), {"source": "loop", "step": 0}, {})
    target = {"configurable": {"thread_id": "b", "checkpoint_ns": "", "checkpoint_id": "1"}}
    saver.put_writes(target, [("log", "early")], "task")
    with pytest.raises(TargetThreadExistsError, match="'b'"):
        saver.copy_thread("a", "b")


def test_a_task_that_runs_again_keeps_its_writes_but_not_its_interrupt(saver):
    config = saver.put(THREAD, empty_checkpoint(), {"source": "loop", "step": 0}, {})
    for attempt in ("first", "second"):
        saver.put_writes(config, [("log", attempt), ("__interrupt__", attempt)], "task")
    writes = {channel: value for _, channel, value in saver.get_tuple(config).pending_writes}
    assert writes == {"log": "first", "__interrupt__": "second"}


def test_a_deleted_thread_leaves_nothing_behind(saver):
    config = saver.put(THREAD, empty_checkpoint(), {"source": "loop", "step": 0}, {})
    early = {"configurable": {**config["configurable"], "checkpoint_id": "still to come"}}
    saver.put_writes(early, [("log", "early")], "task")
    saver.prune(["a"], strategy="delete")
    assert saver.files.thread_ids() == []


def test_compaction_needs_no_further_hook(saver):
    graph = counting_graph(saver)
    for _ in range(3):
        graph.invoke({"log": ["in"]}, THREAD, durability="sync")
    before = graph.get_state(THREAD).values
    (report,) = compaction.compact(graph, ["a"], prune=True)
    assert (report.rows_before, report.rows_after) == (9, 1)
    assert graph.get_state(THREAD).values == before
    assert saver.files.thread_ids() == ["a"]


def extend(log, writes):
    return log + [entry for write in writes for entry in write]


class State(TypedDict):
    log: Annotated[list, DeltaChannel(extend)]


def counting_graph(saver):
    builder = StateGraph(State)
    builder.add_node("step", lambda values: {"log": [len(values["log"])]})
    builder.add_edge(START, "step")
    return builder.compile(checkpointer=saver)
