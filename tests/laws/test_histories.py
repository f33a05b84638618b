"""Drawn histories are what a graph would have stored, come in all kinds and get small."""

from __future__ import annotations

import operator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Annotated, TypedDict

import pytest
from hypothesis import Phase, find, given, settings
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from delta_mixin.planner import checkpoint_time
from delta_mixin.testing import (
    Channel,
    Pruning,
    Step,
    ThreadHistory,
    prunings,
    thread_histories,
    write_history,
)
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing.histories import checkpoint_id_at
from delta_mixin.testing.oracle import SETTLED_HOST, read_thread


def append(state, writes):
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    items: Annotated[list, DeltaChannel(append, snapshot_frequency=3)]
    log: Annotated[list, DeltaChannel(append, snapshot_frequency=2)]
    never: Annotated[list, DeltaChannel(append, snapshot_frequency=1)]
    note: Annotated[list, operator.add]


CHANNELS = (
    Channel("items", snapshot_every=3),
    Channel("log", snapshot_every=2),
    Channel("never", snapshot_every=1),
    Channel("note", kind="plain"),
)


def stored(saver, thread_id):
    """Per checkpoint, oldest first: source, counters, snapshots, versioned state channels."""
    names = {c.name for c in CHANNELS}
    saved = sorted(
        saver.list({"configurable": {"thread_id": thread_id}}), key=lambda s: s.checkpoint["id"]
    )
    return [
        (
            s.metadata["source"],
            # The host counts supersteps for channels that were never written, too.
            {k: tuple(v) for k, v in s.metadata.get("counters_since_delta_snapshot", {}).items()},
            {
                k
                for k, v in s.checkpoint["channel_values"].items()
                if type(v).__name__ == "_DeltaSnapshot"
            },
            names & s.checkpoint["channel_versions"].keys(),
            sorted({channel for _, channel, _ in s.pending_writes or () if channel in names}),
        )
        for s in saved
    ]


def test_a_history_is_stored_as_a_graph_stores_it():
    builder = StateGraph(State)
    builder.add_node("node", lambda state: {"log": ["l"], "note": ["n"]})
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    saver = InMemorySaver()
    graph = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "graph"}}
    for _ in range(3):
        graph.invoke({"items": ["i"]}, config, durability="sync")
    graph.update_state(config, {"items": ["u"]}, as_node="node")
    graph.update_state(config, {"log": ["u"]}, as_node="node")

    a_run = (Step(source="input"), Step((("items",),)), Step((("log", "note"),)))
    # Before 1.2.9, `update_state` kept no counters.
    update = {"source": "update", "old": not SETTLED_HOST}
    steps = (*a_run * 3, Step((("items",),), **update), Step((("log",),), **update))
    with open_saver(lambda: the(saver)) as view:
        write_history(view, ThreadHistory(CHANNELS, steps), "history")
    assert stored(saver, "history") == stored(saver, "graph")


@contextmanager
def the(saver):
    yield saver


def kinds_of(history):
    """Names of the unusual things in a history."""
    steps = history.steps
    kinds = {f"namespace {step.ns!r}" for step in steps}
    kinds |= {f"source {step.source}" for step in steps} | {f"run {step.run}" for step in steps}
    kinds |= {
        name
        for name, there in {
            "fork": any(s.back for s in steps),
            "parallel": any(len(s.tasks) > 1 for s in steps),
            "pending": any(not s.commit for s in steps),
            "interrupt": any(s.interrupt for s in steps),
            "old": any(s.old for s in steps),
            "skewed": any(s.skewed for s in steps),
            "migrated": any(c.plain_rows for c in history.channels),
            "back to plain": any(c.delta_rows for c in history.channels),
            "ephemeral": any(c.kind == "ephemeral" for c in history.channels),
        }.items()
        if there
    }
    return kinds


SEEN_QUICKLY = [
    "fork", "parallel", "pending", "interrupt", "old", "skewed", "migrated", "back to plain",
    "ephemeral", "source input", "source update", "source fork", "run run 2", "run None",
    "namespace 'memory'", "namespace ''",
]  # fmt: skip


def test_every_kind_of_history_is_drawn():
    seen = set()

    @settings(max_examples=300, derandomize=True, database=None, deadline=None)
    @given(thread_histories())
    def draw(history):
        seen.update(kinds_of(history))

    draw()
    assert not set(SEEN_QUICKLY) - seen


@pytest.mark.parametrize("kind", ["fork", "skewed", "back to plain"])
def test_histories_get_small(kind):
    smallest = find(
        thread_histories(),
        lambda history: kind in kinds_of(history),
        settings=settings(max_examples=300, derandomize=True, database=None, deadline=None),
    )
    assert len(smallest.steps) <= 2
    assert len(repr(smallest)) < 400


def test_only_what_differs_from_the_defaults_is_printed():
    assert repr(Step()) == "Step()"
    assert repr(Step((("items",),), back=2)) == "Step(tasks=(('items',),), back=2)"
    assert repr(Channel("items")) == "Channel('items')"
    assert eval(repr(Pruning(pinned=(1,)))) == Pruning(pinned=(1,))


def test_prunings_choose_among_what_is_stored():
    keys = [("", "c"), ("sub", "a"), ("", "b")]
    pruning = Pruning(keep_last=2, minutes=5, pinned=(4,))
    five_past = datetime(2026, 1, 1, 0, 5, tzinfo=timezone.utc)
    assert pruning.options(keys) == {"keep_last": 2, "pinned": ["b"], "older_than": five_past}
    assert Pruning(pinned=(0,)).options([]) == {"keep_last": 1, "pinned": []}
    find_one = settings(max_examples=200, database=None, phases=[Phase.generate])
    assert find(prunings(), lambda p: p.pinned and p.minutes and p.keep_last > 1, settings=find_one)


def test_ids_of_a_history_carry_its_clock_and_sort_by_it():
    first = checkpoint_id_at(datetime(2026, 1, 1, tzinfo=timezone.utc), 1)
    later = checkpoint_id_at(datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc), 0)
    assert first < later
    assert checkpoint_time(later) == datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc)


def test_a_skewed_checkpoint_sorts_below_its_parent():
    steps = (Step((("items",),)), Step((("items",),), skewed=True))
    with open_saver(lambda: the(InMemorySaver())) as view:
        builder = write_history(view, ThreadHistory(CHANNELS, steps), "t")
        parent, child = builder.rows.values()
        assert child.parent_id == parent.checkpoint_id > child.checkpoint_id
        reading = read_thread(view, "t", ["items"])["", child.checkpoint_id]
    assert reading.rebuilt["items"].ended == "seed"
