"""A small graph with two delta channels of different cadence, for both processes of a test."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph


def append(value: list[int], writes: list[list[int]]) -> list[int]:
    return value + [item for write in writes for item in write]


class State(TypedDict):
    log: Annotated[list[int], DeltaChannel(append, list, snapshot_frequency=20)]
    rare: Annotated[list[int], DeltaChannel(append, list, snapshot_frequency=5)]
    step: int


def build(saver: Any, steps: int = 3) -> Any:
    """A graph that logs so many steps in each run; "rare" gets every fourth."""

    def node(state: State) -> dict[str, Any]:
        step = state["step"] + 1
        return {"step": step, "log": [step]} | ({"rare": [step]} if step % 4 == 0 else {})

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges("node", lambda s: "node" if s["step"] % steps else END)
    return builder.compile(checkpointer=saver)


def config(thread_id: str, run: int | None = None) -> Any:
    metadata = {} if run is None else {"metadata": {"run_id": f"run-{run}"}}
    return {"configurable": {"thread_id": thread_id}, "recursion_limit": 200, **metadata}


def inputs(run: int, steps: int = 3) -> dict[str, Any]:
    return {"step": steps * run, "log": [-run]}


def expected(runs: int, steps: int = 3) -> dict[str, Any]:
    """The state after so many runs, computed without a graph."""
    log: list[int] = []
    for run in range(runs):
        log += [-run, *range(steps * run + 1, steps * (run + 1) + 1)]
    return {"log": log, "rare": list(range(4, steps * runs + 1, 4)), "step": steps * runs}
