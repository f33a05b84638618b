"""Without delta channels, `prune` leaves row for row what the host's own `prune` leaves."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from delta_mixin.adapters.postgres import DeltaPostgresSaver
from delta_mixin.testing import histories, strategies, writing
from delta_mixin.testing._bridge import open_saver

pytestmark = pytest.mark.skipif(
    "prune" not in vars(PostgresSaver), reason="this release of the host has no prune of its own"
)

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


class State(TypedDict):
    log: Annotated[list, operator.add]
    step: int


def subgraph(checkpointer=None):
    def inner(state):
        return {"log": ["inner"]}

    builder = StateGraph(State)
    builder.add_node("one", inner)
    builder.add_node("two", inner)
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    return builder.compile(checkpointer=checkpointer)


def graph(saver, *, called=None, asking=False, fanning=False):
    """Three supersteps a turn, with what is asked for."""

    def node(state):
        if asking:
            return {"log": [interrupt("go on?")]}
        return {"log": ["node"], "step": state.get("step", 0) + 1}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_node("last", called or (lambda state: {"log": ["last"]}))
    builder.add_edge(START, "node")
    if fanning:
        builder.add_conditional_edges(
            "node", lambda s: [Send("last", {"log": [], "step": n}) for n in range(3)]
        )
    else:
        builder.add_edge("node", "last")
    builder.add_edge("last", END)
    return builder.compile(checkpointer=saver)


def config(thread_id="t", **more):
    return {"configurable": {"thread_id": thread_id, **more}}


def plain(saver):
    for turn in range(4):
        graph(saver).invoke({"log": [f"turn {turn}"]}, config())


def subgraph_calls(saver):
    called = graph(saver, called=subgraph())
    for turn in range(3):
        called.invoke({"log": [f"turn {turn}"]}, config())


def remembering_subgraph(saver):
    called = graph(saver, called=subgraph(checkpointer=True))
    for turn in range(3):
        called.invoke({"log": [f"turn {turn}"]}, config())


def forks(saver):
    plain(saver)
    older = [s.config for s in graph(saver).get_state_history(config())]
    graph(saver).update_state(older[5], {"log": ["fork"]})
    graph(saver).invoke({"log": ["on the fork"]}, config())
    graph(saver).invoke(None, older[8])


def interrupted(saver):
    asking = graph(saver, asking=True)
    asking.invoke({"log": ["asked"]}, config())
    asking.invoke(Command(resume="yes"), config())
    asking.invoke({"log": ["asked again"]}, config())


def fanned_out(saver):
    for turn in range(2):
        graph(saver, fanning=True).invoke({"log": [f"turn {turn}"]}, config())


def interrupted_call(saver):
    def ask(state):
        return {"log": [interrupt("inside?")]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    called = graph(saver, called=builder.compile())
    called.invoke({"log": ["one"]}, config())
    called.invoke(Command(resume="yes"), config())
    called.invoke({"log": ["two"]}, config())


def exit_durability(saver):
    for turn in range(3):
        graph(saver).invoke({"log": [f"turn {turn}"]}, config(), durability="exit")


SCENARIOS = (
    plain,
    subgraph_calls,
    remembering_subgraph,
    forks,
    interrupted,
    fanned_out,
    interrupted_call,
    exit_durability,
)


def before_version_4(conn):
    """Make every checkpoint one of format 3, whose sends lie at their parents."""
    conn.execute("UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{v}', '3')")
    conn.execute(
        "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, "
        "channel, type, blob) SELECT thread_id, checkpoint_ns, checkpoint_id, 'sender', 0, "
        "'__pregel_tasks', 'null', '' FROM checkpoints ON CONFLICT DO NOTHING"
    )


def dangling_parents(conn):
    """Take away every third checkpoint, as other tools do, and leave the pointers."""
    conn.execute(
        "DELETE FROM checkpoints WHERE (checkpoint_ns, checkpoint_id) IN (SELECT checkpoint_ns, "
        "checkpoint_id FROM (SELECT checkpoint_ns, checkpoint_id, row_number() OVER (PARTITION BY "
        "checkpoint_ns ORDER BY checkpoint_id DESC) AS n FROM checkpoints) AS c WHERE n % 3 = 2)"
    )


def stored_ahead(conn):
    """Writes and blobs of a superstep whose checkpoint is not stored yet."""
    conn.execute(
        "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, "
        "channel, type, blob) SELECT DISTINCT thread_id, checkpoint_ns, 'ahead', 'task', 0, 'log', "
        "'null', ''::bytea FROM checkpoints"
    )
    conn.execute(
        "INSERT INTO checkpoint_blobs SELECT DISTINCT thread_id, checkpoint_ns, 'log', 'ahead', "
        "'null', ''::bytea FROM checkpoints"
    )


def as_it_is(conn):
    """Leave it."""


def assert_equal_rows(dsn, twin, rows_of, call, thread_ids=("t",)):
    """Clean the schema with ours and its twin with the host's, and compare."""
    with psycopg.connect(dsn) as conn:
        schema = conn.execute("SELECT current_schema()").fetchone()[0]
    with psycopg.connect(twin) as conn:
        for table in TABLES:
            conn.execute(f"TRUNCATE {table}")
            conn.execute(f"INSERT INTO {table} SELECT * FROM {schema}.{table}")
    before = rows_of(dsn)
    with PostgresSaver.from_conn_string(twin) as saver:
        saver.prune(thread_ids)
    call(dsn, "prune", thread_ids)
    after, expected = rows_of(dsn), rows_of(twin)
    assert after == expected
    return before, after


@pytest.fixture
def twin(server, fresh_schema):
    with fresh_schema(server) as twin:
        yield twin


# Of two threads the saver prunes what it can without a plan.
@pytest.mark.parametrize("thread_ids", [("t",), ("t", "nobody")], ids=len)
@pytest.mark.parametrize("changed", [as_it_is, before_version_4, dangling_parents, stored_ahead])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_threads_of_graphs(dsn, twin, rows_of, call, scenario, changed, thread_ids):
    with PostgresSaver.from_conn_string(dsn) as saver:
        scenario(saver)
    with psycopg.connect(dsn) as conn:
        changed(conn)
    before, after = assert_equal_rows(dsn, twin, rows_of, call, thread_ids)
    assert len(after["checkpoints"]) < len(before["checkpoints"])
    if changed is before_version_4:
        assert len(after["checkpoints"]) > 1


def test_deleting_threads(dsn, twin, rows_of, call, threads):
    for each in (dsn, twin):
        with psycopg.connect(each) as conn:
            threads.write_threads(conn, ["t", "other"], 5)
            stored_ahead(conn)
    with PostgresSaver.from_conn_string(twin) as saver:
        saver.prune(["t"], strategy="delete")
    call(dsn, "prune", ["t"], strategy="delete")
    left = {table: len(rows) for table, rows in rows_of(dsn).items()}
    assert left == {table: len(rows) for table, rows in rows_of(twin).items()}
    assert left["checkpoints"] == 5


@st.composite
def plain_histories(draw):
    """Histories of graphs without a delta channel: forks, calls, runs, skewed clocks."""
    step = strategies.steps(["note", "other"], sources=("loop", "input"), old_releases=(False,))
    channels = tuple(histories.Channel(name, kind="plain") for name in ("note", "other"))
    return histories.ThreadHistory(channels, tuple(draw(st.lists(step, min_size=2, max_size=20))))


def test_random_threads(server, fresh_schema, rows_of):
    """Both schemas serve all examples, with a few threads in each."""

    def sync_call(dsn, name, *args):
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            getattr(saver, name)(*args)

    pruned = 0
    with fresh_schema(server) as dsn, fresh_schema(server) as twin:

        @given(st.lists(plain_histories(), min_size=1, max_size=3))
        def law(drawn):
            nonlocal pruned
            with psycopg.connect(dsn, autocommit=True) as conn:
                for table in TABLES:
                    conn.execute(f"TRUNCATE {table}")
            with open_saver(lambda: PostgresSaver.from_conn_string(dsn)) as view:
                for number, history in enumerate(drawn):
                    writing.write_history(view, history, f"t{number}")
            names = [f"t{number}" for number in range(len(drawn))]
            before, after = assert_equal_rows(dsn, twin, rows_of, sync_call, names)
            pruned += len(before["checkpoints"]) - len(after["checkpoints"])

        law()
    assert pruned > 50
