"""Compaction without transactions: stopped between any two steps, or with a run in between."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from delta_mixin import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin, compaction
from delta_mixin.adapters.memory import DeltaInMemorySaver


def extend(state: list, writes: list) -> list:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list, DeltaChannel(extend, snapshot_frequency=4)]
    notes: Annotated[list, DeltaChannel(extend)]


def step(values: dict) -> dict:
    return {"log": [f"step {len(values['log'])}"], "notes": [f"note {len(values['log'])}"]}


def graph_of(saver: Any) -> Any:
    """A step in a subgraph that remembers, and one behind it."""
    inner = StateGraph(State)
    inner.add_node("inner", step)
    inner.add_edge(START, "inner")
    builder = StateGraph(State)
    builder.add_node("sub", inner.compile(checkpointer=True))
    builder.add_node("step", step)
    builder.add_edge(START, "sub")
    builder.add_edge("sub", "step")
    return builder.compile(checkpointer=saver)


def config(thread: str = "t", ns: str = "") -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}


def run(graph: Any, number: int) -> None:
    conf = {**config(), "metadata": {"run_id": f"run {number}"}}
    graph.invoke({"log": [f"in {number}"]}, conf, durability="sync")


class RowByRow:
    """Deletes row by row, writes before their checkpoint, as a saver without transactions."""

    def _delete_checkpoint_rows(self: Any, plans: Any) -> None:
        for plan in plans:
            for ns, checkpoint_id in plan.doomed:
                self.step()
                self.writes.pop((plan.thread_id, ns, checkpoint_id), None)
                self.step()
                self.storage[plan.thread_id][ns].pop(checkpoint_id, None)
            for ns, checkpoint_id in plan.detached:
                self.step()
                row = self.storage[plan.thread_id][ns][checkpoint_id]
                self.storage[plan.thread_id][ns][checkpoint_id] = (*row[:2], None)


class Watched:
    """Keeps what is stored at every step, as a process killed there would leave it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: list[Any] | None = None

    def step(self: Any) -> None:
        if self.kept is not None:
            self.kept.append(copy.deepcopy((self.storage, self.writes, self.blobs)))

    def put(self: Any, *args: Any) -> Any:
        self.step()
        return super().put(*args)  # type: ignore[misc]

    def put_writes(self: Any, *args: Any) -> Any:
        self.step()
        return super().put_writes(*args)  # type: ignore[misc]

    def get_tuple(self: Any, conf: Any) -> Any:
        self.step()
        return super().get_tuple(conf)  # type: ignore[misc]

    def delete_thread(self: Any, thread: str) -> None:
        self.step()
        super().delete_thread(thread)  # type: ignore[misc]


class ByPublicApi(
    RowByRow, Watched, DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver
):
    """A saver that writes the one hook only."""


class InMemory(RowByRow, Watched, DeltaInMemorySaver):
    """The saver with a hook of its own to rewrite a checkpoint."""


OPERATIONS = {
    "compact": lambda graph: compaction.compact(graph, ["t"], prune=True, keep_last=2),
    "delete_for_runs": lambda graph: compaction.delete_for_runs(
        graph, ["run 0", "run 1"], thread_ids=["t"]
    ),
}


def states(graph: Any, heads: dict[str, str]) -> dict[str, Any]:
    """What readers of the heads see."""
    found = {}
    for ns, checkpoint_id in heads.items():
        conf = config(ns=ns)
        conf["configurable"]["checkpoint_id"] = checkpoint_id
        saved = graph.checkpointer.get_tuple(conf)
        history = graph.checkpointer.get_delta_channel_history(
            config=conf, channels=["log", "notes"]
        )
        for channel in ("log", "notes"):
            stored = saved.checkpoint["channel_values"].get(channel)
            if stored is None:
                seed = history[channel].get("seed")
                values = [write[2] for write in history[channel]["writes"]]
                found[ns, channel] = extend(getattr(seed, "value", seed) or [], values)
            else:
                found[ns, channel] = stored.value
        found[ns, "pending"] = saved.pending_writes
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("saver_class", [ByPublicApi, InMemory])
def test_stopped_between_any_two_steps_heads_read_as_before_and_it_can_be_repeated(
    saver_class, operation
):
    saver = saver_class()
    graph = graph_of(saver)
    for number in range(3):
        run(graph, number)
    saver.put_writes(saver.get_tuple(config()).config, [("other", "pending")], "task")
    heads = {ns: max(rows) for ns, rows in saver.storage["t"].items()}
    before = states(graph, heads)
    saver.kept = []
    OPERATIONS[operation](graph)
    stops, saver.kept = saver.kept, None
    done = {ns: set(rows) for ns, rows in saver.storage["t"].items()}
    assert states(graph, heads) == before
    assert len(stops) > 20
    for stop in stops:
        saver.storage, saver.writes, saver.blobs = copy.deepcopy(stop)
        assert states(graph, heads) == before
        OPERATIONS[operation](graph)
        assert states(graph, heads) == before
        assert {ns: set(rows) for ns, rows in saver.storage["t"].items()} == done


@pytest.mark.parametrize("saver_class", [ByPublicApi, InMemory])
def test_a_run_goes_on_at_the_head_while_it_is_rewritten(saver_class):
    class Busy(saver_class):  # type: ignore[misc,valid-type]
        at_last = None

        def _rewrite_checkpoint(self, conf, values, metadata):
            if self.at_last is not None:
                at_last, self.at_last = self.at_last, None
                at_last()
            super()._rewrite_checkpoint(conf, values, metadata)

    quiet, busy = graph_of(saver_class()), graph_of(Busy())
    for graph in (quiet, busy):
        run(graph, 0)
    busy.checkpointer.at_last = lambda: run(busy, 1)
    run(quiet, 1)
    compaction.compact(busy, ["t"], prune=True)
    assert busy.checkpointer.at_last is None
    for _ in range(2):
        assert busy.get_state(config()).values == quiet.get_state(config()).values
        compaction.compact(busy, ["t"], prune=True)
        for graph in (quiet, busy):
            run(graph, 2)
