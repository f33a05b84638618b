"""Compaction in Postgres: twins of real graphs, and threads that old releases wrote."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import twin_actions
import twin_graphs
import twins
from hypothesis import Phase, given, settings
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg_pool import ConnectionPool

from delta_mixin import compaction
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import open_saver

TESTS = Path(__file__).parents[1]
CORPUS = TESTS / "corpus"


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its annotations and dataclasses
    spec.loader.exec_module(module)
    return module


corpus = _load("compaction_corpus", CORPUS / "conftest.py")
scenarios = _load("corpus_scenarios_of_postgres", CORPUS / "scenarios.py")

# Shrinking a failure on a server takes many minutes.
few = settings(max_examples=10, phases=(Phase.generate,))
mixed = twin_actions.cleanups | twin_actions.compactions
SAVERS = [DeltaPostgresSaver, AsyncDeltaPostgresSaver]


@pytest.fixture(scope="module", params=SAVERS)
def opened(request, server_of, fresh_schema):
    """Opens a saver on empty tables."""
    with fresh_schema(server_of(18)) as dsn:

        def open_empty():
            with psycopg.connect(dsn) as conn:
                conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")
            return open_saver(lambda: request.param.from_conn_string(dsn))

        yield open_empty


@given(turns=twin_actions.rounds(*twin_actions.flat, most=8, cleanups=mixed))
@few
def test_a_compacted_thread_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twin_graphs.flat_graph(), turns)


@given(turns=twin_actions.rounds(*twin_actions.onward, most=7, cleanups=mixed))
@few
def test_a_compacted_thread_with_subgraphs_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twin_graphs.nested_graph(), turns)


@pytest.mark.parametrize("subgraphs", [False, True])
def test_whatever_is_compacted_in_between_the_states_of_twins_are_equal(opened, subgraphs):
    twins.run_machine(opened, 8, subgraphs, phases=(Phase.generate,))


THREADS = [
    pytest.param(release, thread, id=f"{release}-{thread}")
    for release in corpus.RELEASES
    for thread in sorted(corpus.EXPECTED[release]["threads"])
]


def expected_heads(view, thread):
    """The head of each namespace; a subgraph call goes with the root checkpoint it started from."""
    stored = oracle.keys(view, thread)
    heads = {ns: oracle.head(view, thread, ns) for ns, _ in stored}
    for ns in [ns for ns in heads if ":" in ns]:
        saved = view.get_tuple(view.config(thread, ns, heads[ns]))
        root = saved.metadata["parents"][""]
        if ("", root) in stored and root != heads[""]:
            del heads[ns]
    return set(heads.items())


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize(("release", "thread"), THREADS)
def test_each_namespace_of_the_corpus_holds_exactly_its_head(
    saver, dsn, release, thread, orphans_of
):
    recorded = corpus.EXPECTED[release]["threads"][thread]["delta"]
    delta = frozenset(channel for names in recorded.values() for channel in names)
    with PostgresSaver.from_conn_string(dsn) as host:
        corpus.load_into_memory(CORPUS / f"langgraph-{release}.sqlite", thread, host)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as conn:
        graph = scenarios.SCENARIOS[thread](SqliteSaver(conn), thread)
    with open_saver(lambda: saver.from_conn_string(dsn)) as view:
        heads = expected_heads(view, thread)
        before = oracle.read_thread(view, thread, delta)
        if view.side == "sync":
            (report,) = compaction.compact(graph, [thread], saver=view.saver, prune=True)
        else:
            (report,) = view.run(compaction.acompact(graph, [thread], saver=view.saver, prune=True))
        after = oracle.read_thread(view, thread, delta)
    assert not report.left
    assert after.keys() == heads
    for key in heads:
        for channel in delta:
            assert corpus._replayed(after[key], channel) == corpus._replayed(before[key], channel)
        assert after[key].writes == before[key].writes
    assert orphans_of(dsn) == {"writes": 0, "blobs": 0}


class Busy(DeltaPostgresSaver):
    """Something happens when the first value has been stored, before the transaction ends."""

    meanwhile = None

    def _rewrite_checkpoint(self, config, values, metadata):
        super()._rewrite_checkpoint(config, values, metadata)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()


def log_and_items(graph, thread):
    values = graph.get_state({"configurable": {"thread_id": thread}}).values
    return values["log"], values["items"]


def go(graph, thread, number):
    given = {"items": [f"in {number}"], "log": [f"in {number}"], "total": 1, "ask": False}
    graph.invoke(given, {"configurable": {"thread_id": thread}}, durability="sync")


@pytest.mark.parametrize("prune", [False, True])
def test_a_run_goes_on_at_the_head_while_it_is_compacted(dsn, prune):
    """From another process, whose changes the transaction sees or not as they come."""
    with (
        Busy.from_conn_string(dsn) as saver,
        PostgresSaver.from_conn_string(dsn) as host,
    ):
        running = twin_graphs.flat_graph().compile(checkpointer=host)
        for thread in ("busy", "quiet"):
            go(running, thread, 1)
        saver.meanwhile = lambda: go(running, "busy", 2)
        go(running, "quiet", 2)
        graph = twin_graphs.flat_graph().compile(checkpointer=saver)
        compaction.compact(graph, ["busy"], prune=prune)
        assert saver.meanwhile is None
        for number in (3, 4):
            assert log_and_items(running, "busy") == log_and_items(running, "quiet")
            compaction.compact(graph, ["busy"], prune=prune)
            for thread in ("busy", "quiet"):
                go(running, thread, number)
        assert log_and_items(running, "busy") == log_and_items(running, "quiet")


@pytest.mark.parametrize("kind", ["pool", "pipeline"])
def test_pools_and_pipelines_read_inside_the_transaction(dsn, kind):
    with PostgresSaver.from_conn_string(dsn) as host:
        running = twin_graphs.flat_graph().compile(checkpointer=host)
        for number in range(3):
            go(running, "t", number)
        before = log_and_items(running, "t")
    options = {"autocommit": True, "prepare_threshold": 0}
    with (
        DeltaPostgresSaver.from_conn_string(dsn, pipeline=True)
        if kind == "pipeline"
        else ConnectionPool(dsn, min_size=1, max_size=1, kwargs=options)
    ) as opened:
        saver = opened if kind == "pipeline" else DeltaPostgresSaver(opened)
        graph = twin_graphs.flat_graph().compile(checkpointer=saver)
        (report,) = compaction.compact(graph, ["t"], prune=True)
        assert report.rows_after == 1
        assert log_and_items(graph, "t") == before


def test_what_stands_empty_under_a_version_is_replaced(dsn):
    """As old hosts stored a channel without a value; what they insert only must be set."""
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        graph = twin_graphs.flat_graph().compile(checkpointer=saver)
        go(graph, "t", 1)
        before = log_and_items(graph, "t")
        with psycopg.connect(dsn) as conn:
            conn.execute(
                "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type) "
                "SELECT DISTINCT c.thread_id, c.checkpoint_ns, v.key, v.value, 'empty' "
                "FROM checkpoints c, jsonb_each_text(c.checkpoint -> 'channel_versions') v "
                "WHERE v.key IN ('items', 'log') ON CONFLICT DO NOTHING"
            )
        assert log_and_items(graph, "t") == before
        (report,) = compaction.compact(graph, ["t"], prune=True)
        assert report.compacted
        assert report.rows_after == 1
        assert log_and_items(graph, "t") == before
        with psycopg.connect(dsn) as conn:
            ((values,),) = conn.execute("SELECT checkpoint -> 'channel_values' FROM checkpoints")
        # As the host marks snapshots; its older readers know them by this.
        assert (values["items"], values["log"]) == (True, True)
