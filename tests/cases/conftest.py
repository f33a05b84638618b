"""Savers and graphs that the cases from the field are replayed on."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "memory":
        yield DeltaInMemorySaver()
    else:
        with DeltaSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver


def append(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list[Any], DeltaChannel(append, snapshot_frequency=4)]
    n: Annotated[int, operator.add]


@pytest.fixture
def graph() -> Callable[[Any], Any]:
    """`graph(saver)`: each run logs its input and counts to three."""

    def build(saver: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("count", lambda state: {"log": [state["n"] + 1], "n": 1})
        builder.add_edge(START, "count")
        builder.add_conditional_edges(
            "count", lambda state: END if state["n"] % 3 == 0 else "count", ["count", END]
        )
        return builder.compile(checkpointer=saver)

    return build


class Thread:
    """A graph on one thread, as an application drives it."""

    def __init__(self, graph: Any, thread_id: Any) -> None:
        self.graph, self.thread_id = graph, thread_id

    @property
    def config(self) -> Any:
        return {"configurable": {"thread_id": self.thread_id}}

    def run(self, *values: Any, run_id: str | None = None, config: Any = None) -> Any:
        config = dict(config or self.config)
        if run_id:
            config["metadata"] = {"run_id": run_id}
        return self.graph.invoke({"log": list(values), "n": 0}, config, durability="sync")

    def values(self, config: Any = None) -> Any:
        return self.graph.get_state(config or self.config).values

    def history(self) -> dict[str, Any]:
        """Values by checkpoint id."""
        return {
            state.config["configurable"]["checkpoint_id"]: state.values
            for state in self.graph.get_state_history(self.config)
        }


@pytest.fixture
def thread(saver: Any, graph: Callable[[Any], Any]) -> Callable[[Any], Thread]:
    return lambda thread_id: Thread(graph(saver), thread_id)


@pytest.fixture
def put(saver: Any) -> Callable[..., str]:
    """`put(thread_id, parent, values=, versions=, writes=, **metadata)` stores a checkpoint."""

    def store(
        thread_id: str,
        parent: str | None = None,
        *,
        ns: str = "",
        values: dict[str, Any] | None = None,
        versions: dict[str, str] | None = None,
        writes: list[tuple[str, Any]] | None = None,
        checkpoint_id: str | None = None,
        **metadata: Any,
    ) -> str:
        values = values or {}
        versions = dict.fromkeys(values, "1") if versions is None else versions
        conf = {"thread_id": thread_id, "checkpoint_ns": ns}
        config = {"configurable": {**conf, **({"checkpoint_id": parent} if parent else {})}}
        checkpoint = {
            "v": 4,
            "id": checkpoint_id or str(uuid6()),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {},
            "updated_channels": None,
        }
        stored = saver.put(config, checkpoint, {"source": "loop", **metadata}, versions)
        for i, write in enumerate(writes or ()):
            saver.put_writes(stored, [write], f"00000000-0000-0000-0000-{i:012}", f"~path, {i:04}")
        return checkpoint["id"]

    return store
