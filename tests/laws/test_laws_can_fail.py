"""Every law goes red for a fault of its kind, planted in the planner or in a hook."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from delta_mixin import _copying, _sweeping, channels, marking, planner
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import (
    CleanupStateMachine,
    cleanup_settings,
    laws,
    prunings,
    run_selections,
    thread_histories,
)
from delta_mixin.testing._bridge import open_saver

# Only whether a fault is found counts, so it is not made small.
FINDING = {
    "max_examples": 1000,
    "phases": [Phase.generate],
    "derandomize": True,
    "database": None,
    "report_multiple_bugs": False,
}


def fails(law, saver_class=DeltaInMemorySaver, **drawn):
    """Whether a law fails on some history."""

    @settings(**FINDING)
    @given(**{"history": thread_histories(exact=True), **drawn})
    def hold(history, **arguments):
        with open_saver(lambda: opened(saver_class)) as view:
            law(view, history, **arguments)

    try:
        hold()
    except AssertionError:
        return True
    return False


@contextmanager
def opened(saver_class):
    yield saver_class()


# -- faults of planning ----------------------------------------------------------------------


@pytest.fixture
def nothing_is_kept_for_readers(monkeypatch):
    def keep(sweep, roots, traits):
        return
        yield

    monkeypatch.setattr(planner, "keep_what_readers_need", keep)


@pytest.fixture
def walks_stop_before_the_seed(monkeypatch):
    def too_early(view, row, channel, child):
        above = view.get(row.parent_id)
        return above is None or channel in (above.populated or ())
        yield

    monkeypatch.setattr(marking, "_is_populated", too_early)


@pytest.fixture
def walks_run_past_the_seed(monkeypatch):
    def never(view, row, channel, child):
        return False
        yield

    monkeypatch.setattr(marking, "_is_populated", never)


@pytest.fixture
def no_evidence_is_taken(monkeypatch):
    for rule in ("_evidence", "_written_without_value"):
        monkeypatch.setattr(channels, rule, lambda view: frozenset())


@pytest.fixture
def the_root_alone_is_asked(monkeypatch):
    monkeypatch.setattr(channels, "is_hosts_own", lambda channel: True)


@pytest.fixture
def parents_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(_sweeping, "_detached", lambda sweep, operation: iter(()))


@pytest.fixture
def subgraph_calls_never_end(monkeypatch):
    def never(views, call, kept_roots):
        return False
        yield

    monkeypatch.setattr(planner, "_call_ended", never)


@pytest.fixture
def pins_are_forgotten(monkeypatch):
    roots = planner._prune_roots
    monkeypatch.setattr(
        planner,
        "_prune_roots",
        lambda view, rules, head: roots(view, replace(rules, pinned=frozenset()), head),
    )


PRUNE_FAULTS = [
    ("nothing_is_kept_for_readers", laws.every_root_of_a_prune_reads_as_before),
    ("nothing_is_kept_for_readers", laws.every_doomed_row_is_needed_by_none),
    ("walks_stop_before_the_seed", laws.every_root_of_a_prune_reads_as_before),
    ("walks_run_past_the_seed", laws.every_kept_row_is_needed),
    ("no_evidence_is_taken", laws.every_root_of_a_prune_reads_as_before),
    ("parents_are_left_as_they_are", laws.a_prune_does_what_its_plan_says),
    ("the_root_alone_is_asked", laws.every_doomed_row_is_needed_by_none),
    ("subgraph_calls_never_end", laws.every_kept_row_is_needed),
    ("pins_are_forgotten", laws.every_root_of_a_prune_reads_as_before),
]


@pytest.mark.parametrize(("fault", "law"), PRUNE_FAULTS)
def test_a_fault_of_planning_breaks_a_law_of_pruning(request, fault, law):
    request.getfixturevalue(fault)
    assert fails(law, pruning=prunings())


def test_what_other_rows_say_of_a_channel_matters(monkeypatch):
    monkeypatch.setattr(channels, "_detected", lambda view, declared: frozenset())
    # A delta channel that became plain again is named by other rows than the newest.
    histories = thread_histories(old_releases=False, skewed_clocks=False, exact=True)
    law = laws.every_root_of_a_prune_reads_as_before
    assert fails(law, history=histories, pruning=prunings())


@pytest.fixture
def rows_above_a_deleted_run_are_passed_over(monkeypatch):
    monkeypatch.setattr(planner, "_descendants", lambda view, origins: set(origins))


@pytest.fixture
def subgraphs_lose_what_they_remember(monkeypatch):
    monkeypatch.setattr(_copying, "_may_precede", lambda row, lineage: False)


RUN_FAULTS = [
    ("rows_above_a_deleted_run_are_passed_over", laws.a_run_deletion_changes_no_survivor),
    ("nothing_is_kept_for_readers", laws.a_run_deletion_changes_no_survivor),
    ("walks_run_past_the_seed", laws.a_run_deletion_retains_only_what_survivors_need),
]


@pytest.mark.parametrize(("fault", "law"), RUN_FAULTS)
def test_a_fault_of_planning_breaks_a_law_of_run_deletion(request, fault, law):
    request.getfixturevalue(fault)
    assert fails(law, runs=run_selections())


# -- faults of hooks -------------------------------------------------------------------------


class ForgetsToDetach(DeltaInMemorySaver):
    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows([replace(plan, detached=()) for plan in plans])


class KeepsOneDoomedRow(DeltaInMemorySaver):
    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows([replace(p, doomed=p.doomed[1:]) for p in plans])


class DropsSharedBlobs(DeltaInMemorySaver):
    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            for ns, checkpoint_id in plan.doomed:
                saved = self.storage[plan.thread_id][ns][checkpoint_id]
                for versioned in self.serde.loads_typed(saved[0])["channel_versions"].items():
                    self.blobs.pop((plan.thread_id, ns, *versioned), None)
        super()._delete_checkpoint_rows(plans)


class DropsWritesOfKeptRows(DeltaInMemorySaver):
    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for ns, checkpoint_id in plan.kept:
                self.writes.pop((plan.thread_id, ns, checkpoint_id), None)


class MatchesPrefixes(DeltaInMemorySaver):
    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            for thread_id in [t for t in self.storage if t.startswith(plan.thread_id)]:
                super()._delete_checkpoint_rows([replace(plan, thread_id=thread_id)])


class DeletesNothingOnTheAsyncSide(DeltaInMemorySaver):
    async def _adelete_checkpoint_rows(self, plans):
        pass


HOOK_FAULTS = [
    (ForgetsToDetach, laws.a_prune_does_what_its_plan_says),
    (KeepsOneDoomedRow, laws.a_prune_does_what_its_plan_says),
    (KeepsOneDoomedRow, laws.a_second_prune_changes_nothing),
    (DropsSharedBlobs, laws.every_root_of_a_prune_reads_as_before),
    (DropsWritesOfKeptRows, laws.every_root_of_a_prune_reads_as_before),
]


@pytest.mark.parametrize(("saver_class", "law"), HOOK_FAULTS)
def test_a_fault_of_the_delete_hook_breaks_a_law(saver_class, law):
    assert fails(law, saver_class, pruning=prunings())


def test_cleaning_neighbours_breaks_a_law():
    def law(view, history, pruning):
        ids = ["u", "u_2", "v"]
        laws.nothing_outside_the_named_threads_changes(view, history, ids, pruning.clean)

    assert fails(law, MatchesPrefixes, pruning=prunings())


def test_a_difference_between_the_sides_breaks_a_law():
    def law(view, history, pruning):
        laws.both_sides_clean_alike(view, history, pruning.clean)

    assert fails(law, DeletesNothingOnTheAsyncSide, pruning=prunings())


class CopiesWithoutTaskPaths(DeltaInMemorySaver):
    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        for key in [key for key in self.writes if key[0] == target_thread_id]:
            stored = sorted(self.writes[key].items(), reverse=True)
            self.writes[key] = {k: (*write[:3], "") for k, write in stored}


class CopiesOnlyTheNewestRow(DeltaInMemorySaver):
    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        newest = {row.checkpoint_ns: row for row in sorted(rows, key=lambda r: r.key)}
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, [*newest.values()])


class CopiesParentsThatStayBehind(DeltaInMemorySaver):
    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        for ns, saved in self.storage[target_thread_id].items():
            saved.update({i: self.storage[source_thread_id][ns][i] for i in saved})


class MovesInsteadOfCopying(DeltaInMemorySaver):
    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        self.delete_thread(source_thread_id)


def copy_of_the_first(view, history):
    laws.a_copy_of_a_checkpoint_reads_as_that_checkpoint(view, history, "copy", 3)


def whole_copy(view, history):
    laws.a_copy_equals_its_source(view, history, "copy")


COPY_FAULTS = [
    (CopiesWithoutTaskPaths, whole_copy),
    (CopiesOnlyTheNewestRow, whole_copy),
    (MovesInsteadOfCopying, whole_copy),
    (CopiesOnlyTheNewestRow, copy_of_the_first),
    (CopiesParentsThatStayBehind, copy_of_the_first),
]


@pytest.mark.parametrize(("saver_class", "law"), COPY_FAULTS)
def test_a_fault_of_the_copy_hook_breaks_a_law(saver_class, law):
    assert fails(law, saver_class)


def test_a_fault_of_selecting_breaks_the_law_of_copies(subgraphs_lose_what_they_remember):
    assert fails(copy_of_the_first)


# -- the machine -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "nothing_is_kept_for_readers",
        "walks_run_past_the_seed",
        "walks_stop_before_the_seed",
        "pins_are_forgotten",
        "rows_above_a_deleted_run_are_passed_over",
        "subgraphs_lose_what_they_remember",
        "parents_are_left_as_they_are",
    ],
)
def test_the_machine_finds_a_fault_of_planning(request, fault):
    request.getfixturevalue(fault)
    assert machine_fails(DeltaInMemorySaver)


@pytest.mark.parametrize(
    "saver_class",
    [
        ForgetsToDetach,
        KeepsOneDoomedRow,
        DropsSharedBlobs,
        DropsWritesOfKeptRows,
        CopiesOnlyTheNewestRow,
        MovesInsteadOfCopying,
    ],
)
def test_the_machine_finds_a_fault_of_a_hook(saver_class):
    assert machine_fails(saver_class)


def machine_fails(saver_class):
    class Machine(CleanupStateMachine):
        def make_saver(self):
            return opened(saver_class)

    try:
        run_state_machine_as_test(Machine, settings=cleanup_settings(**FINDING))
    except AssertionError:
        return True
    return False
