"""The application: a chat that keeps a log in a `DeltaChannel`, and refuses to read a short one."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from delta_mixin import StrictDeltaHistoryMixin
from delta_mixin.adapters.sqlite import DeltaSqliteSaver


class StrictSaver(StrictDeltaHistoryMixin, DeltaSqliteSaver):
    """Reads raise `SeveredHistoryError` where the log would come back short."""


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return log + [entry for write in writes for entry in write]


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=50)]


def graph_on(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("answer", lambda state: {"log": [f"answer {len(state['log']) // 2}"]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def config_of(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def chat(saver: Any, thread: str, turns: int) -> None:
    graph = graph_on(saver)
    for turn in range(turns):
        graph.invoke({"log": [f"question {turn}"]}, config_of(thread), durability="sync")


def log_of(saver: Any, thread: str) -> list[str]:
    values: dict[str, list[str]] = graph_on(saver).get_state(config_of(thread)).values
    return values.get("log", [])
