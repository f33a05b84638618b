"""Threads that old releases wrote, loaded into Postgres, read as before through every cleanup."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import open_saver

CORPUS = Path(__file__).parents[1] / "corpus"


def _corpus():
    spec = importlib.util.spec_from_file_location("corpus_conftest", CORPUS / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


corpus = _corpus()
THREADS = [
    pytest.param(release, thread, id=f"{release}-{thread}")
    for release in corpus.RELEASES
    for thread in sorted(corpus.EXPECTED[release]["threads"])
]
WITHOUT_COUNTERS = [
    pytest.param(release, thread, id=f"{release}-{thread}")
    for release in ("1.2.0", "1.2.5")
    for thread in ("update_once", "update_twice", "update_ephemeral")
    if len(corpus.EXPECTED[release]["threads"][thread]["states"][""]) > 1
]
"""Before langgraph 1.2.8 `update_state` stored neither counters nor a snapshot; 1.2.0 kept
nothing of the very first one at all."""


@pytest.fixture
def loaded(dsn, release, thread):
    """The thread in Postgres, put there checkpoint by checkpoint."""
    with PostgresSaver.from_conn_string(dsn) as saver:
        file = CORPUS / f"langgraph-{release}.sqlite"
        corpus.load_into_memory(file, thread, saver)
    return dsn


@pytest.fixture
def delta(release, thread):
    """Names of the thread's delta channels, known from its graph."""
    recorded = corpus.EXPECTED[release]["threads"][thread]["delta"]
    return frozenset().union(*recorded.values()) if isinstance(recorded, dict) else recorded


@pytest.fixture(params=[DeltaPostgresSaver, AsyncDeltaPostgresSaver])
def opened(request, loaded):
    with open_saver(lambda: request.param.from_conn_string(loaded)) as view:
        yield view


@pytest.mark.parametrize(("release", "thread"), THREADS)
def test_prune_leaves_heads_and_only_what_they_need(opened, loaded, thread, delta, orphans_of):
    before = oracle.read_thread(opened, thread, delta)
    heads = {(ns, oracle.head(opened, thread, ns)) for ns, _ in before}
    done = []
    opened.prune([thread], on_plan=done.append)
    after = oracle.read_thread(opened, thread, delta)
    gone = set(done[0].dropped_namespaces)
    for key in heads:
        assert key[0] in gone or after[key] == before[key]
    assert after.keys() == set(done[0].kept)
    assert orphans_of(loaded) == {"writes": 0, "blobs": 0}


@pytest.mark.parametrize(("release", "thread"), THREADS)
def test_deleting_any_run_changes_no_other_checkpoint(opened, loaded, thread, delta, orphans_of):
    before = oracle.read_thread(opened, thread, delta)
    runs = {key: reading.metadata.value.get("run_id") for key, reading in before.items()}
    for run in sorted(set(runs.values()) - {None}):
        opened.copy_thread(thread, "copy")
        assert oracle.read_thread(opened, "copy", delta) == before
        opened.delete_for_runs([run], thread_ids=["copy"])
        after = oracle.read_thread(opened, "copy", delta)
        survivors = {key for key in before if runs[key] != run}
        assert {key: after[key] for key in survivors} == {key: before[key] for key in survivors}
        assert orphans_of(loaded) == {"writes": 0, "blobs": 0}
        opened.prune(["copy"], strategy="delete")
    assert oracle.read_thread(opened, thread, delta) == before


@pytest.mark.parametrize(("release", "thread"), THREADS)
def test_squashes_leave_heads_and_survivors_as_they_were(opened, loaded, thread, delta, orphans_of):
    before = oracle.read_thread(opened, thread, delta)
    runs = {key: reading.metadata.value.get("run_id") for key, reading in before.items()}
    for run in sorted(set(runs.values()) - {None}):
        opened.copy_thread(thread, "copy")
        opened.delete_for_runs([run], thread_ids=["copy"], delta="squash")
        after = oracle.read_thread(opened, "copy", delta)
        assert run not in {reading.metadata.value.get("run_id") for reading in after.values()}
        for key in before:
            assert runs[key] == run or after[key].by_value() == before[key].by_value()
        assert orphans_of(loaded) == {"writes": 0, "blobs": 0}
        opened.prune(["copy"], strategy="delete")
    heads = {(ns, oracle.head(opened, thread, ns)) for ns, _ in before}
    done = []
    opened.prune([thread], delta="squash", on_plan=done.append)
    after = oracle.read_thread(opened, thread, delta)
    for key in heads:
        gone = key[0] in done[0].dropped_namespaces
        assert gone or after[key].by_value() == before[key].by_value()
        assert len([i for ns, i in after if ns == key[0]]) <= 2
    assert orphans_of(loaded) == {"writes": 0, "blobs": 0}


@pytest.mark.skipif(
    "prune" not in vars(PostgresSaver), reason="this release of the host has no prune of its own"
)
@pytest.mark.parametrize(("release", "thread"), WITHOUT_COUNTERS)
def test_the_hosts_own_prune_empties_threads_of_update_state_alone(loaded, thread, delta, release):
    """Behaviour of the host, not of this package: why evidence besides counters is needed."""
    with open_saver(lambda: DeltaPostgresSaver.from_conn_string(loaded)) as view:
        key = ("", oracle.head(view, thread))
        view.copy_thread(thread, "twin")
        before = oracle.read_thread(view, thread, delta)[key]
        view.prune(["twin"])
        assert oracle.read_thread(view, "twin", delta)[key] == before
        with PostgresSaver.from_conn_string(loaded) as host:
            host.prune([thread])
        lost = oracle.read_thread(view, thread, delta)[key]
    written = [rebuilt for rebuilt in before.rebuilt.values() if rebuilt.writes]
    assert written
    assert not any(rebuilt.writes for rebuilt in lost.rebuilt.values())


def test_there_are_such_threads():
    assert len(THREADS) > 60
    assert len(WITHOUT_COUNTERS) > 1
