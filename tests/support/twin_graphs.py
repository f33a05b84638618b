"""The graphs that twin threads run, flat and with subgraphs; their reducers are deterministic."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from delta_mixin.testing.oracle import SETTLED_HOST


def append(state, writes):
    items = [*state, *(item for write in writes for item in write)]
    # Earlier releases replay the writes of parallel nodes in the order of their random task ids.
    return items if SETTLED_HOST else sorted(items)


class State(TypedDict, total=False):
    items: Annotated[list, DeltaChannel(append, snapshot_frequency=2)]
    log: Annotated[list, DeltaChannel(append, snapshot_frequency=3)]
    never: Annotated[list, DeltaChannel(append, snapshot_frequency=2)]
    total: Annotated[int, operator.add]
    ask: bool


class SubState(TypedDict, total=False):
    items: Annotated[list, DeltaChannel(append, snapshot_frequency=2)]
    seen: Annotated[list, DeltaChannel(append, snapshot_frequency=2)]
    ask: bool


def subgraph(name, **compiled):
    """Two steps on a delta channel of its own, with an interrupt in between if asked."""

    def note(state):
        return {"seen": [f"{name} note {len(state.get('seen', []))}"]}

    def answer(state):
        said = interrupt(f"{name}?") if state.get("ask") else "unasked"
        return {"seen": [said], "items": [f"{name} {said} after {len(state['seen'])}"]}

    builder = StateGraph(SubState)
    builder.add_node("note", note)
    builder.add_node("answer", answer)
    builder.add_edge(START, "note")
    builder.add_edge("note", "answer")
    builder.add_edge("answer", END)
    return builder.compile(**compiled)


def flat_graph():
    """Parallel nodes, one of which may interrupt, and a node behind them."""

    def work(name):
        def node(state):
            return {"items": [f"{name} {len(state['items'])}"], "total": 1}

        return node

    def ask(state):
        said = interrupt("which?") if state.get("ask") else "unasked"
        return {"items": [f"ask {said}"], "log": [f"{said} {len(state['items'])}"]}

    builder = StateGraph(State)
    for name in ("b", "a", "c"):
        builder.add_node(name, work(name))
    builder.add_node("ask", ask)
    builder.add_node("last", work("last"))
    for name in ("b", "a", "c", "ask"):
        builder.add_edge(START, name)
    builder.add_edge(["b", "a", "c", "ask"], "last")
    builder.add_edge("last", END)
    return builder


def nested_graph():
    """A subgraph that starts anew with each call, and one that remembers."""
    per_call, remembers = subgraph("call"), subgraph("memory", checkpointer=True)
    builder = StateGraph(State)
    builder.add_node("call", per_call)
    builder.add_node("memory", remembers)
    builder.add_node("last", lambda state: {"log": [f"last {len(state['items'])}"], "total": 1})
    builder.add_edge(START, "call")
    builder.add_edge("call", "memory")
    builder.add_edge("memory", "last")
    builder.add_edge("last", END)
    return builder


# -- what is done ----------------------------------------------------------------------------
