"""Threads that old releases wrote stay readable through every cleanup.

The judge is `delta_mixin.testing.oracle`, which follows parents itself. It is told the delta
channels of the graphs that wrote the threads, and it is held to what each release recorded of
its own threads.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from delta_mixin import channels
from delta_mixin.testing import oracle

# -- what readers see -------------------------------------------------------------------------


def read_all(view, thread, thread_id=None):
    return oracle.read_thread(view, thread_id or thread.id, thread.delta)


# -- what must stay, worked out from scratch --------------------------------------------------


def needed_by(view, thread, roots):
    """The roots, and what their readers pass."""
    needed = set()
    for ns, checkpoint_id in roots:
        checkpoint = view.get_tuple(view.config(thread.id, ns, checkpoint_id)).checkpoint
        written = thread.delta & checkpoint["channel_versions"].keys()
        walked = oracle.kept_by_walk(view, thread.id, ns, checkpoint_id, written)
        needed |= {(ns, i) for i in walked}
    return needed


def kept_by_prune(view, thread, pinned=()):
    """What a prune must keep: the heads, pinned rows, and what their readers pass."""
    stored = oracle.keys(view, thread.id)
    kept = set()
    for ns in sorted({ns for ns, _ in stored}):
        head = oracle.head(view, thread.id, ns)
        asked_for = {(n, i) for n, i in stored if n == ns and i in pinned}
        if ":" in ns and not asked_for:
            metadata = view.get_tuple(view.config(thread.id, ns, head)).metadata
            started_from = ("", metadata["parents"][""])
            if started_from in stored and started_from not in kept:
                continue
        kept |= needed_by(view, thread, {(ns, head)} | asked_for)
    return kept


EPHEMERAL = "update_ephemeral"
"""The one thread that keeps more than it needs. With no row of the loop to show that a channel
is ephemeral, it counts as delta: in doubt, rows stay."""


def assert_minimal(thread, kept, needed):
    if thread.id == EPHEMERAL:
        assert kept >= needed
    else:
        assert kept == needed


def rows_in(file, where="1"):
    """The rows of both tables, sorted."""
    with closing(sqlite3.connect(file)) as conn:
        return [
            sorted(map(repr, conn.execute(f"SELECT * FROM {table} WHERE {where}")))
            for table in ("checkpoints", "writes")
        ]


# -- tests ------------------------------------------------------------------------------------


def test_every_release_wrote_every_thread(release, recorded_threads, scenarios):
    assert recorded_threads == scenarios.SCENARIOS.keys()


def test_values_read_as_the_release_recorded_them(opened, thread, assert_as_recorded):
    with opened() as view:
        found = read_all(view, thread)
        assert found.keys() == {(ns, i) for ns, states in thread.states.items() for i in states}
        assert_as_recorded(view, thread, found)


def test_prune_keeps_what_readers_need_and_nothing_else(opened, thread, assert_as_recorded):
    with opened() as view:
        before = read_all(view, thread)
        expected = kept_by_prune(view, thread)
        heads = {key for key in expected if key[1] == oracle.head(view, thread.id, key[0])}
        planned = view.plan_prune([thread.id])
        assert read_all(view, thread) == before, "planning changed something"

        done = []
        view.prune([thread.id], on_plan=done.append)
        assert done == planned
        after = read_all(view, thread)
        assert {key: after[key] for key in heads} == {key: before[key] for key in heads}
        assert_as_recorded(view, thread, {key: after[key] for key in heads})
        assert set(done[0].kept) == after.keys()
        assert_minimal(thread, after.keys(), expected)

        view.prune([thread.id], on_plan=done.append)
        assert not done[1].changes
        assert read_all(view, thread) == after


def test_pruning_a_file_touches_nothing_else_and_leaves_no_orphans(thread):
    file = thread.copy_file()
    with thread.open("sqlite", file) as view:
        view.prune([])  # migrates the file, as any use of it does
        others = rows_in(file, f"thread_id <> '{thread.id}'")
        view.prune([thread.id])
        kept = oracle.keys(view, thread.id)
    assert rows_in(file, f"thread_id <> '{thread.id}'") == others
    with closing(sqlite3.connect(file)) as conn:
        query = "SELECT DISTINCT checkpoint_ns, checkpoint_id FROM writes WHERE thread_id = ?"
        assert set(conn.execute(query, (thread.id,))) <= set(kept)


@pytest.mark.parametrize("saver_kind", ["sqlite", "memory"], indirect=True)
def test_any_pinned_checkpoint_keeps_what_it_needs_and_nothing_else(opened, thread):
    with opened() as view:
        for _, checkpoint_id in oracle.keys(view, thread.id):
            (plan,) = view.plan_prune([thread.id], pinned=[checkpoint_id])
            assert_minimal(thread, {*plan.kept}, kept_by_prune(view, thread, [checkpoint_id]))


def test_deleting_any_run_changes_no_other_checkpoint(opened, thread, assert_as_recorded):
    with opened() as view:
        before = read_all(view, thread)
        runs = {key: r.metadata.value.get("run_id") for key, r in before.items()}
        named = {*runs.values()} - {None}  # a stub of langgraph < 1.2.8 names none
        survivors = {run: {k for k in runs if runs[k] != run} for run in named}
        expected = {run: needed_by(view, thread, kept) for run, kept in survivors.items()}
    for run, kept in survivors.items():
        with opened() as view:
            planned = view.plan_delete_for_runs([run], thread_ids=[thread.id])
            done = []
            view.delete_for_runs([run], on_plan=done.append)
            assert done == planned
            after = read_all(view, thread)
            assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
            assert_minimal(thread, after.keys(), expected[run])
            assert_as_recorded(view, thread, {key: after[key] for key in kept})


def test_a_copy_reads_the_same_and_lives_on_its_own(opened, thread):
    with opened() as view:
        before = read_all(view, thread)
        view.copy_thread(thread.id, "copy")
        assert read_all(view, thread, "copy") == before
        assert read_all(view, thread) == before

        view.prune([thread.id])
        assert read_all(view, thread, "copy") == before
        pruned = read_all(view, thread)
        view.prune(["copy"])
        assert read_all(view, thread, "copy") == pruned


def test_a_copy_of_a_file_is_equal_row_for_row(thread):
    file = thread.copy_file()
    with thread.open("sqlite", file) as view:
        view.copy_thread(thread.id, "copy")
    source, copy = (rows_in(file, f"thread_id = '{t}'") for t in (thread.id, "copy"))
    renamed = [[row.replace(f"('{thread.id}'", "('copy'", 1) for row in rows] for rows in source]
    assert sorted(renamed[0]) == copy[0]
    assert sorted(renamed[1]) == copy[1]


def test_a_copy_of_a_checkpoint_reads_the_same(opened, thread, assert_as_recorded):
    root_ids = sorted(thread.states[""])
    middle = root_ids[len(root_ids) // 2]
    with opened() as view:
        before = read_all(view, thread)
        view.copy_thread(thread.id, "copy", checkpoint_id=middle)
        copied = read_all(view, thread, "copy")
        assert copied["", middle] == before["", middle]
        assert_as_recorded(view, thread, {("", middle): copied["", middle]})
        needed = needed_by(view, thread, [("", middle)])
        assert_minimal(thread, {key for key in copied if key[0] == ""}, needed)

        view.prune(["copy"])
        assert read_all(view, thread, "copy")["", middle] == before["", middle]
        assert read_all(view, thread) == before


@pytest.mark.parametrize("options", [{}, {"delta": "squash"}], ids=["prune", "squash"])
def test_a_pruned_thread_runs_on_like_its_twin(thread, scenarios, options):
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as conn:
        graph = scenarios.SCENARIOS[thread.id](SqliteSaver(conn), thread.id)
    ends = []
    for pruned in (False, True):
        with thread.open() as view:
            if pruned:
                view.prune([thread.id], **options)
            reader = graph.copy({"checkpointer": view.saver})
            config = scenarios.config(thread.id, 99)
            start = reader.get_state(config)
            pending = {i.id: "yes" for task in start.tasks for i in task.interrupts}
            given = Command(resume=pending) if pending else {"log": ["more"]}
            reader.invoke(given, config, durability="sync")
            end = reader.get_state(config)
            assert end.values != start.values
            values = end.values
            if thread.id == "parallel" and not oracle.SETTLED_HOST:
                values = {**values, "log": sorted(values["log"])}
            ends.append((start.values, start.next, start.tasks, values, end.next))
    assert ends[0] == ends[1]


def by_value(readings, keys):
    return {key: readings[key].by_value() for key in keys}


def keeps_a_plain_seed(view, thread, readings):
    """Whether a checkpoint with a plain value of a replayed channel stays, as for the in-memory
    saver before 4.3, which does not replay the writes at one."""
    replayed = (*thread.delta, "scratch")
    values = [r.values[c].value for r in readings.values() for c in replayed if c in r.values]
    plain = [value for value in values if type(value).__name__ != "_DeltaSnapshot"]
    return bool(plain) and not view.saver.REPLAYS_PLAIN_SEEDS


def test_a_squash_leaves_each_head_and_one_row_at_most(opened, thread, assert_as_recorded):
    with opened() as view:
        before = read_all(view, thread)
        planned = view.plan_prune([thread.id], delta="squash")
        assert read_all(view, thread) == before, "planning changed something"
        done = []
        view.prune([thread.id], delta="squash", on_plan=done.append)
        assert done == planned
        after = read_all(view, thread)
        namespaces = {ns for ns, _ in before} - {*done[0].dropped_namespaces}
        heads = {(ns, max(i for n, i in before if n == ns)) for ns in namespaces}
        assert by_value(after, heads) == by_value(before, heads)
        assert_as_recorded(view, thread, {key: after[key] for key in heads})
        new = {(base.checkpoint_ns, base.checkpoint_id) for base in done[0].bases}
        assert after.keys() == done[0].kept.keys() | new
        for ns in namespaces:
            rows = [i for n, i in after if n == ns]
            assert len(rows) <= 2 or keeps_a_plain_seed(view, thread, after), rows

        view.prune([thread.id], delta="squash", on_plan=done.append)
        assert not done[1].changes
        assert read_all(view, thread) == after


def test_deleting_any_run_with_a_squash_leaves_no_row_of_it(opened, thread, assert_as_recorded):
    with opened() as view:
        before = read_all(view, thread)
    runs = {key: r.metadata.value.get("run_id") for key, r in before.items()}
    for run in {*runs.values()} - {None}:
        survivors = {key for key in runs if runs[key] != run}
        with opened() as view:
            done = []
            view.delete_for_runs([run], delta="squash", on_plan=done.append)
            after = read_all(view, thread)
            assert by_value(after, survivors) == by_value(before, survivors)
            assert_as_recorded(view, thread, {key: after[key] for key in survivors})
            left = {key for key, r in after.items() if r.metadata.value.get("run_id") == run}
            stays = keeps_a_plain_seed(view, thread, {key: after[key] for key in left})
            assert not left or stays, left


def test_a_squashing_copy_of_a_checkpoint_reads_the_same(opened, thread, assert_as_recorded):
    root_ids = sorted(thread.states[""])
    middle = root_ids[len(root_ids) // 2]
    with opened() as view:
        before = read_all(view, thread)
        view.copy_thread(thread.id, "copy", checkpoint_id=middle, delta="squash")
        copied = read_all(view, thread, "copy")
        assert by_value(copied, [("", middle)]) == by_value(before, [("", middle)])
        assert_as_recorded(view, thread, {("", middle): copied["", middle]})
        rows = [i for ns, i in copied if ns == ""]
        assert len(rows) <= 2 or keeps_a_plain_seed(view, thread, copied), rows
        assert read_all(view, thread) == before


@pytest.mark.parametrize("thread", [EPHEMERAL], indirect=True)
def test_more_than_needed_stays_only_for_an_ephemeral_channel(thread):
    with thread.open() as view:
        needed = kept_by_prune(view, thread)
        (plan,) = view.plan_prune([thread.id])
    extra = {reason.channel for key in plan.kept.keys() - needed for reason in plan.kept[key]}
    assert extra <= {"scratch"}


LOST_WITHOUT_EVIDENCE = {
    ("1.2.0", "update_twice"),
    ("1.2.0", "update_ephemeral"),
    ("1.2.5", "update_once"),
    ("1.2.5", "update_twice"),
    ("1.2.5", "update_ephemeral"),
}
"""Threads of which nothing stored but writes says that there is a delta channel."""


@pytest.mark.parametrize(
    "thread", ["update_once", "update_twice", "update_after_run", EPHEMERAL], indirect=True
)
def test_without_the_evidence_rule_update_state_threads_would_lose_their_value(thread, monkeypatch):
    for rule in ("_evidence", "_written_without_value"):
        monkeypatch.setattr(channels, rule, lambda view: frozenset())
    with thread.open() as view:
        head = ("", oracle.head(view, thread.id))
        before = read_all(view, thread)[head]
        view.prune([thread.id])
        after = read_all(view, thread)[head]
    assert (after != before) == ((thread.release, thread.id) in LOST_WITHOUT_EVIDENCE)
