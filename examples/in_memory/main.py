"""The same job without a file: a thread in memory, pruned without losing its log."""

from __future__ import annotations

from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from delta_mixin.adapters.memory import DeltaInMemorySaver


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return log + [entry for write in writes for entry in write]


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=10)]


builder = StateGraph(State)
builder.add_node("answer", lambda state: {"log": [f"answer {len(state['log'])}"]})
builder.add_edge(START, "answer")
builder.add_edge("answer", END)
saver = DeltaInMemorySaver()
graph = builder.compile(checkpointer=saver)
thread: RunnableConfig = {"configurable": {"thread_id": "chat"}}
for question in range(12):
    graph.invoke({"log": [f"question {question}"]}, thread, durability="sync")

before, rows = graph.get_state(thread).values["log"], len(list(saver.list(thread)))
saver.prune(["chat"])
after, left = graph.get_state(thread).values["log"], len(list(saver.list(thread)))
print(f"rows {rows} -> {left}, log entries {len(before)} -> {len(after)}")
assert after == before
assert left < rows
