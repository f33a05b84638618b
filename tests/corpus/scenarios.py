"""The threads of the corpus: a function writes each through a saver and returns its graph.

A thread is named after its function, whose docstring tells what it is. Nothing here knows the
project that is tested with them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

from langgraph.channels import EphemeralValue, UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

# With the default, langgraph 1.2.0 can deadlock in a sync run on few cores.
SYNC = "sync"

Scenario = Callable[[SqliteSaver, str], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(build: Scenario) -> Scenario:
    SCENARIOS[build.__name__] = build
    return build


def extend(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


def delta(frequency: int) -> Any:
    return Annotated[list, DeltaChannel(extend, snapshot_frequency=frequency)]


class Linear(TypedDict):
    log: delta(10)
    n: int


class Scratch(TypedDict):
    log: delta(10)
    n: int
    scratch: Annotated[str, EphemeralValue]
    cache: Annotated[str, UntrackedValue]


class TwoDelta(TypedDict):
    often: delta(3)
    seldom: delta(7)
    never: delta(5)
    n: int
    scratch: Annotated[str, EphemeralValue]


class Plain(TypedDict):
    log: Annotated[list, operator.add]
    n: int


class Counted(TypedDict):
    n: int


def config(thread: str, run: int | None = None, checkpoint_id: str | None = None) -> dict:
    conf = {"thread_id": thread, "checkpoint_ns": ""}
    if checkpoint_id is not None:
        conf["checkpoint_id"] = checkpoint_id
    made: dict[str, Any] = {"configurable": conf, "recursion_limit": 100}
    if run is not None:
        made["metadata"] = {"run_id": f"{thread}-{run}"}
    return made


def loop_graph(state: Any, saver: SqliteSaver, turns: int = 4, **extra: Any) -> Any:
    """A node that runs `turns` times per run and writes `log` each time."""

    def step(values: dict) -> dict:
        n = values.get("n", 0) + 1
        return {"log": [f"step{n}"], "n": n, **{k: v(n) for k, v in extra.items()}}

    builder = StateGraph(state)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges(
        "step", lambda values: "step" if values.get("n", 0) % turns else END, ["step", END]
    )
    return builder.compile(checkpointer=saver)


def history(graph: Any, thread: str) -> list[Any]:
    """Snapshots of the root namespace, oldest first."""
    return list(reversed(list(graph.get_state_history(config(thread)))))


@scenario
def linear(saver: SqliteSaver, thread: str) -> Any:
    """35 supersteps in five runs, a snapshot every ten updates."""
    graph = loop_graph(Linear, saver, turns=5)
    for run in range(5):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return graph


@scenario
def fork(saver: SqliteSaver, thread: str) -> Any:
    """`update_state` on an older checkpoint, and a run from there."""
    graph = loop_graph(Scratch, saver, scratch=lambda n: f"scratch{n}", cache=lambda n: f"cache{n}")
    for run in range(2):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    old = history(graph, thread)[4].config["configurable"]["checkpoint_id"]
    forked = graph.update_state(config(thread, 2, old), {"log": ["forked"]}, as_node="step")
    branch = config(thread, 2, forked["configurable"]["checkpoint_id"])
    graph.invoke(None, branch, durability=SYNC)
    graph.invoke({"log": ["in3"]}, config(thread, 3), durability=SYNC)
    return graph


@scenario
def replay(saver: SqliteSaver, thread: str) -> Any:
    """A run from an older checkpoint again, without new input."""
    graph = loop_graph(Scratch, saver, scratch=lambda n: f"scratch{n}")
    for run in range(2):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    old = history(graph, thread)[4].config["configurable"]["checkpoint_id"]
    graph.invoke(None, config(thread, 2, old), durability=SYNC)
    return graph


@scenario
def exit_durability(saver: SqliteSaver, thread: str) -> Any:
    """Four runs that store at their exit only."""
    graph = loop_graph(Linear, saver)
    for run in range(4):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability="exit")
    return graph


@scenario
def mixed_durability(saver: SqliteSaver, thread: str) -> Any:
    """Runs that store at each superstep and runs that store at their exit, in turn."""
    graph = loop_graph(Linear, saver)
    for run, durability in enumerate(["exit", SYNC, "exit", "exit", SYNC]):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=durability)
    return graph


@scenario
def two_delta(saver: SqliteSaver, thread: str) -> Any:
    """Delta channels that snapshot every three and every seven updates, one never written."""

    def step(values: dict) -> dict:
        n = values.get("n", 0) + 1
        wrote: dict[str, Any] = {"often": [f"often{n}"], "n": n, "scratch": str(n)}
        if n % 2:
            wrote["seldom"] = [f"seldom{n}"]
        return wrote

    builder = StateGraph(TwoDelta)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_conditional_edges("step", lambda v: "step" if v["n"] % 5 else END, ["step", END])
    graph = builder.compile(checkpointer=saver)
    for run in range(3):
        graph.invoke({"often": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return graph


@scenario
def parallel(saver: SqliteSaver, thread: str) -> Any:
    """Eight nodes write one delta channel in the same superstep."""
    builder = StateGraph(Linear)
    builder.add_node("fan", lambda values: {"n": values.get("n", 0) + 1})
    builder.add_edge(START, "fan")
    for i in range(8):
        builder.add_node(f"w{i}", lambda values, i=i: {"log": [f"w{i}-{values['n']}"]})
        builder.add_edge("fan", f"w{i}")
    graph = builder.compile(checkpointer=saver)
    for run in range(2):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return graph


def asking_graph(saver: SqliteSaver) -> Any:
    builder = StateGraph(Scratch)
    builder.add_node("start", lambda values: {"log": ["start"], "scratch": "start"})
    builder.add_node("done", lambda values: {"log": ["done"]})
    builder.add_node("ask1", lambda values: {"log": [f"one:{interrupt('one?')}"]})
    builder.add_node("ask2", lambda values: {"log": [f"two:{interrupt('two?')}"]})
    builder.add_edge(START, "start")
    for node in ("done", "ask1", "ask2"):
        builder.add_edge("start", node)
    return builder.compile(checkpointer=saver)


@scenario
def interrupts(saver: SqliteSaver, thread: str) -> Any:
    """Two interrupts pending at once, beside a parallel task that has finished."""
    graph = asking_graph(saver)
    graph.invoke({"log": ["in0"]}, config(thread, 0), durability=SYNC)
    return graph


@scenario
def interrupts_answered(saver: SqliteSaver, thread: str) -> Any:
    """Two interrupts of which one is answered, the other still pending."""
    graph = asking_graph(saver)
    graph.invoke({"log": ["in0"]}, config(thread, 0), durability=SYNC)
    pending = [i for task in graph.get_state(config(thread)).tasks for i in task.interrupts]
    answer = Command(resume={next(i.id for i in pending if i.value == "two?"): "yes"})
    graph.invoke(answer, config(thread, 1), durability=SYNC)
    return graph


def nested_graph(saver: SqliteSaver, state: Any, inner_node: Any, inner_checkpointer: Any) -> Any:
    inner = StateGraph(state)
    inner.add_node("first", lambda values: {"log": ["first"], "n": values.get("n", 0) + 1})
    inner.add_node("second", inner_node)
    inner.add_edge(START, "first")
    inner.add_edge("first", "second")
    outer = StateGraph(state)
    outer.add_node("before", lambda values: {"log": ["before"]})
    outer.add_node("sub", inner.compile(checkpointer=inner_checkpointer))
    outer.add_node("after", lambda values: {"log": ["after"]})
    outer.add_edge(START, "before")
    outer.add_edge("before", "sub")
    outer.add_edge("sub", "after")
    return outer.compile(checkpointer=saver)


@scenario
def subgraph(saver: SqliteSaver, thread: str) -> Any:
    """A subgraph with a namespace per call."""
    graph = nested_graph(saver, Linear, lambda values: {"log": ["second"]}, None)
    for run in range(2):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return graph


@scenario
def subgraph_stateful(saver: SqliteSaver, thread: str) -> Any:
    """A `checkpointer=True` subgraph, which remembers its own state between calls."""
    inner = StateGraph(Linear)
    inner.add_node(
        "count", lambda values: {"log": [f"inner{values.get('n', 0)}"], "n": values.get("n", 0) + 1}
    )
    inner.add_node("tick", lambda values: {"log": ["tick"]})
    inner.add_edge(START, "count")
    inner.add_edge("count", "tick")
    memory = inner.compile(checkpointer=True)

    def call(values: dict) -> dict:
        return {"log": [f"inner has {len(memory.invoke({'log': ['call']})['log'])}"]}

    outer = StateGraph(Linear)
    outer.add_node("before", lambda values: {"log": ["before"]})
    outer.add_node("sub", call)
    outer.add_edge(START, "before")
    outer.add_edge("before", "sub")
    graph = outer.compile(checkpointer=saver)
    for run in range(3):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return graph


@scenario
def subgraph_interrupt(saver: SqliteSaver, thread: str) -> Any:
    """An interrupt pending inside a subgraph, after a run that was answered."""

    def second(values: dict) -> dict:
        return {"log": [f"second:{interrupt('inner?')}"]}

    graph = nested_graph(saver, Linear, second, None)
    graph.invoke({"log": ["in0"]}, config(thread, 0), durability=SYNC)
    graph.invoke(Command(resume="yes"), config(thread, 1), durability=SYNC)
    graph.invoke({"log": ["in2"]}, config(thread, 2), durability=SYNC)
    return graph


@scenario
def update_once(saver: SqliteSaver, thread: str) -> Any:
    """One `update_state` and no run at all."""
    graph = loop_graph(Linear, saver)
    graph.update_state(config(thread, 0), {"log": ["u0"]}, as_node="step")
    return graph


@scenario
def update_twice(saver: SqliteSaver, thread: str) -> Any:
    """Two `update_state` and no run at all."""
    graph = loop_graph(Linear, saver)
    for run in range(2):
        graph.update_state(config(thread, run), {"log": [f"u{run}"]}, as_node="step")
    return graph


@scenario
def update_ephemeral(saver: SqliteSaver, thread: str) -> Any:
    """Six `update_state` and no run; the second also writes an ephemeral channel."""
    graph = loop_graph(TwoDelta, saver)
    for run in range(6):
        values = {"often": [f"u{run}"], **({"scratch": "gone after this"} if run == 1 else {})}
        graph.update_state(config(thread, run), values, as_node="step")
    return graph


@scenario
def update_after_run(saver: SqliteSaver, thread: str) -> Any:
    """A run, then three `update_state`."""
    graph = loop_graph(Scratch, saver, scratch=lambda n: f"scratch{n}")
    graph.invoke({"log": ["in0"]}, config(thread, 0), durability=SYNC)
    for run in range(1, 4):
        graph.update_state(config(thread, run), {"log": [f"u{run}"]}, as_node="step")
    return graph


@scenario
def plain_to_delta(saver: SqliteSaver, thread: str) -> Any:
    """A channel changed from `operator.add` to a `DeltaChannel`."""
    plain, changed = loop_graph(Plain, saver), loop_graph(Linear, saver)
    for run, graph in enumerate([plain, changed, changed]):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return changed


@scenario
def plain_delta_plain(saver: SqliteSaver, thread: str) -> Any:
    """A channel changed to a `DeltaChannel` and back; the head was written by the plain graph.

    Its last run does not write `log` at all, so that the value still rests on older writes.
    """
    plain, changed = loop_graph(Plain, saver), loop_graph(Linear, saver)
    silent = StateGraph(Plain)
    silent.add_node("step", lambda values: {"n": values.get("n", 0) + 1})
    silent.add_edge(START, "step")
    graphs = [plain, changed, silent.compile(checkpointer=saver)]
    for run, graph in enumerate(graphs):
        graph.invoke(
            {"n": 100} if run == 2 else {"log": [f"in{run}"]},
            config(thread, run),
            durability=SYNC,
        )
    return changed


@scenario
def delta_left_out(saver: SqliteSaver, thread: str) -> Any:
    """A delta channel that the graph of the last run does not have at all."""
    graph = loop_graph(Linear, saver)
    for run in range(2):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    silent = StateGraph(Counted)
    silent.add_node("step", lambda values: {"n": values.get("n", 0) + 1})
    silent.add_edge(START, "step")
    silent.compile(checkpointer=saver).invoke({"n": 100}, config(thread, 2), durability=SYNC)
    return graph


@scenario
def no_delta(saver: SqliteSaver, thread: str) -> Any:
    """No delta channel anywhere, with a subgraph per call."""
    graph = nested_graph(saver, Plain, lambda values: {"log": ["second"]}, None)
    for run in range(2):
        graph.invoke({"log": [f"in{run}"]}, config(thread, run), durability=SYNC)
    return graph
