"""Compaction in Postgres: twins of real graphs, and threads that old releases wrote."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import Phase, given, settings
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

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


twins = sys.modules.get("laws_twins") or _load("laws_twins", TESTS / "laws" / "twins.py")
corpus = _load("compaction_corpus", CORPUS / "conftest.py")
scenarios = _load("corpus_scenarios_of_postgres", CORPUS / "scenarios.py")

# Shrinking a failure on a server takes many minutes.
few = settings(max_examples=10, phases=(Phase.generate,))
mixed = twins.cleanups | twins.compactions
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


@given(turns=twins.rounds(*twins.flat, most=8, cleanups=mixed))
@few
def test_a_compacted_thread_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twins.flat_graph(), turns)


@given(turns=twins.rounds(*twins.onward, most=7, cleanups=mixed))
@few
def test_a_compacted_thread_with_subgraphs_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twins.nested_graph(), turns)


@pytest.mark.parametrize("subgraphs", [False, True])
def test_whatever_is_compacted_in_between_the_states_of_twins_are_equal(opened, subgraphs):
    twins.run_machine(opened, 5, subgraphs, phases=(Phase.generate,))


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
