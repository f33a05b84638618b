"""Graphs run while two processes prune their threads in a loop, and nothing is lost."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver

SUPERSTEPS = 1_000
OTHERS = [f"other {n}" for n in range(20)]
OPTIONS = {"autocommit": True, "prepare_threshold": 0}


def append(value: list, writes: list) -> list:
    return value + [item for write in writes for item in write]


class State(TypedDict):
    log: Annotated[list, DeltaChannel(append, list, snapshot_frequency=50)]
    rare: Annotated[list, DeltaChannel(append, list, snapshot_frequency=5)]
    step: int


class Inner(TypedDict):
    inner: Annotated[list, DeltaChannel(append, list, snapshot_frequency=50)]


def build(saver, steps):
    """A graph that logs so many supersteps in each run, with a subgraph call now and then."""

    def node(state):
        step = state["step"] + 1
        return {"step": step, "log": [step]} | ({"rare": [step]} if step % 7 == 0 else {})

    called = StateGraph(Inner)
    called.add_node("inner", lambda state: {"inner": ["called"]})
    called.add_edge(START, "inner")
    subgraph = called.compile()

    def call(state):
        found = subgraph.invoke({"inner": [state["step"]]})
        return {"log": [found["inner"]]}

    async def acall(state):
        found = await subgraph.ainvoke({"inner": [state["step"]]})
        return {"log": [found["inner"]]}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_node("call", RunnableLambda(call, acall))
    builder.add_edge(START, "node")

    def then(state):
        if state["step"] % steps == 0:
            return END
        return "call" if state["step"] % 20 == 10 else "node"

    builder.add_conditional_edges("node", then)
    builder.add_edge("call", "node")
    return builder.compile(checkpointer=saver)


def config(thread_id, run=0):
    return {
        "configurable": {"thread_id": thread_id},
        "metadata": {"run_id": f"{thread_id} {run}"},
        "recursion_limit": 2 * SUPERSTEPS,
    }


def work(saver, thread_id, runs, steps):
    """Run a thread to its end; returns its final values."""
    graph = build(saver, steps)
    for run in range(runs):
        given = {"log": [f"run {run}"], "step": run * steps}
        graph.invoke(given, config(thread_id, run), durability="sync")
    return graph.get_state(config(thread_id)).values


def lengths(rows_of, dsn):
    counts = {}
    for row in rows_of(dsn)["checkpoints"]:
        counts[row[0]] = counts.get(row[0], 0) + 1
    return counts


def start_pruning(neighbour, dsn):
    pruners = [neighbour("prune_on", dsn, "long", *OTHERS) for _ in range(2)]
    for pruner in pruners:
        assert pruner.stdout.readline() == "ready\n"
    for pruner in pruners:
        pruner.stdin.write("go\n")
        pruner.stdin.flush()
    return pruners


def stop_pruning(pruners):
    """How often each process has pruned all threads; raises if one has failed."""
    for pruner in pruners:
        pruner.stdin.close()
    rounds = [int(pruner.stdout.read() or -1) for pruner in pruners]
    assert [pruner.wait(timeout=60) for pruner in pruners] == [0, 0]
    return rounds


def expect_nothing_lost(dsn, found, rounds, call_prune, rows_of, orphans_of):
    assert min(rounds) > 10, rounds
    assert found.pop("long") == work(InMemorySaver(), "long", 1, SUPERSTEPS)
    expected = work(InMemorySaver(), "other", 3, 10)
    assert found == dict.fromkeys(OTHERS, expected)
    call_prune(["long", *OTHERS])
    assert orphans_of(dsn) == {"writes": 0, "blobs": 0}
    assert lengths(rows_of, dsn)["long"] < 60


def test_graphs_of_a_sync_saver(dsn, neighbour, rows_of, orphans_of):
    with ConnectionPool(dsn, min_size=4, max_size=12, kwargs=OPTIONS) as pool:
        saver = DeltaPostgresSaver(pool)
        pruners = start_pruning(neighbour, dsn)
        with ThreadPoolExecutor(4) as workers:
            long = workers.submit(work, saver, "long", 1, SUPERSTEPS)
            others = {name: workers.submit(work, saver, name, 3, 10) for name in OTHERS}
            found = {name: done.result() for name, done in {"long": long, **others}.items()}
        rounds = stop_pruning(pruners)
        expect_nothing_lost(dsn, found, rounds, saver.prune, rows_of, orphans_of)


def test_graphs_of_an_async_saver(dsn, neighbour, rows_of, orphans_of):
    async def awork(saver, thread_id, runs, steps):
        graph = build(saver, steps)
        for run in range(runs):
            given = {"log": [f"run {run}"], "step": run * steps}
            await graph.ainvoke(given, config(thread_id, run))
        return (await graph.aget_state(config(thread_id))).values

    async def main():
        async with AsyncConnectionPool(dsn, min_size=4, max_size=12, kwargs=OPTIONS) as pool:
            saver = AsyncDeltaPostgresSaver(pool)
            names = ["long", *OTHERS]
            values = await asyncio.gather(
                awork(saver, "long", 1, SUPERSTEPS), *(awork(saver, n, 3, 10) for n in OTHERS)
            )
            return dict(zip(names, values, strict=True))

    pruners = start_pruning(neighbour, dsn)
    found = asyncio.run(main())
    rounds = stop_pruning(pruners)
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        expect_nothing_lost(dsn, found, rounds, saver.prune, rows_of, orphans_of)
