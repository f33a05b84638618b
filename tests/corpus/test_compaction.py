"""Compaction of threads that old releases wrote: one checkpoint per namespace, values equal."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin import compaction
from delta_mixin.testing import oracle
from delta_mixin.verification import averify_thread, verify_thread


@pytest.fixture
def graph(thread, scenarios):
    """The graph that wrote the thread."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as conn:
        return scenarios.SCENARIOS[thread.id](SqliteSaver(conn), thread.id)


def call(view, name, *args, **options):
    """A function of the module, or its twin, on the view's side."""
    if view.side == "sync":
        return getattr(compaction, name)(*args, saver=view.saver, **options)
    return view.run(getattr(compaction, f"a{name}")(*args, saver=view.saver, **options))


def verified(view, thread_id):
    if view.side == "sync":
        return verify_thread(view.saver, thread_id)
    return view.run(averify_thread(view.saver, thread_id))


def expected_heads(view, thread):
    """The head of each namespace; a subgraph call goes with the root checkpoint it started from."""
    stored = oracle.keys(view, thread.id)
    heads = {ns: oracle.head(view, thread.id, ns) for ns, _ in stored}
    for ns in [ns for ns in heads if ":" in ns]:
        saved = view.get_tuple(view.config(thread.id, ns, heads[ns]))
        root = saved.metadata["parents"][""]
        if ("", root) in stored and root != heads[""]:
            del heads[ns]
    return set(heads.items())


def test_each_namespace_holds_exactly_its_head(opened, thread, graph, assert_as_recorded, replayed):
    with opened() as view:
        heads = expected_heads(view, thread)
        before = oracle.read_thread(view, thread.id, thread.delta)
        (report,) = call(view, "compact", graph, [thread.id], prune=True)
        after = oracle.read_thread(view, thread.id, thread.delta)
        assert after.keys() == heads, report
        assert not report.left
        assert (report.rows_before, report.rows_after) == (len(before), len(after))
        # The in-memory saver of old hosts reads one thread otherwise than was recorded.
        assert_as_recorded(view, thread, {key: before[key] for key in heads})
        for key in heads:
            for channel in thread.delta:
                assert replayed(after[key], channel) == replayed(before[key], channel)
            assert after[key].writes == before[key].writes
        assert verified(view, thread.id).findings == ()


def test_what_is_compacted_and_kept_verifies(opened, thread, graph):
    with opened() as view:
        call(view, "compact", graph, [thread.id])
        assert verified(view, thread.id).findings == ()
