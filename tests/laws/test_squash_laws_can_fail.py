"""Each law of squashing fails on a fault of its kind, planted into the planning of base rows."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings

from delta_mixin import _sweeping, contraction, planner
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import prunings, run_selections, squash_laws, thread_histories
from delta_mixin.testing._bridge import open_saver

FINDING = settings(
    max_examples=300, deadline=None, database=None, derandomize=True, phases=(Phase.generate,)
)


@contextmanager
def opened():
    yield DeltaInMemorySaver()


def fails(law, **drawn):
    @FINDING
    @given(history=thread_histories(exact=True), **drawn)
    def hold(history, **arguments):
        with open_saver(opened) as view:
            law(view, history, **arguments)

    try:
        hold()
    except AssertionError:
        return True
    return False


def with_bases(monkeypatch, change):
    contract = contraction.contract

    def changed(*args, **options):
        return [change(base) for base in (yield from contract(*args, **options))]

    monkeypatch.setattr(_sweeping, "contract", changed)


@pytest.fixture
def branches_are_passed_over(monkeypatch):
    runs = contraction._runs

    def blind(view, kept, replayed):
        newest = {view.newest.checkpoint_id}
        return runs(view, {i: kept[i] for i in kept if i in replayed or i in newest}, replayed)

    monkeypatch.setattr(contraction, "_runs", blind)


@pytest.fixture
def seeds_are_forgotten(monkeypatch):
    with_bases(monkeypatch, lambda base: replace(base, channel_versions={}, seeds=()))


@pytest.fixture
def the_oldest_writes_are_forgotten(monkeypatch):
    with_bases(monkeypatch, lambda base: replace(base, writes=base.writes[1:]))


@pytest.fixture
def writes_come_newest_first(monkeypatch):
    def change(base):
        order = [part[2:] for part in reversed(base.writes)]
        pairs = zip(base.writes, order, strict=True)
        return replace(base, writes=tuple(type(p)(*p[:2], *named) for p, named in pairs))

    with_bases(monkeypatch, change)


@pytest.fixture
def parents_are_forgotten(monkeypatch):
    with_bases(monkeypatch, lambda base: replace(base, parent_id=None))


@pytest.fixture
def ids_sort_above(monkeypatch):
    monkeypatch.setattr(contraction, "id_below", lambda child, above, used: f"{child}z")


@pytest.fixture
def long_runs_are_left(monkeypatch):
    runs = contraction._runs
    monkeypatch.setattr(
        contraction, "_runs", lambda *args: (run for run in runs(*args) if len(run.rows) < 4)
    )


@pytest.fixture
def single_rows_of_a_run_stay(monkeypatch):
    squash = planner.squash
    monkeypatch.setattr(planner, "squash", lambda sweep, traits, must_go=(): squash(sweep, traits))


PRUNES = {"pruning": prunings()}
RUNS = {"runs": run_selections()}


@pytest.mark.parametrize(
    ("fault", "law", "drawn"),
    [
        ("branches_are_passed_over", squash_laws.every_root_of_a_squash_reads_as_before, PRUNES),
        ("seeds_are_forgotten", squash_laws.every_root_of_a_squash_reads_as_before, PRUNES),
        (
            "the_oldest_writes_are_forgotten",
            squash_laws.every_root_of_a_squash_reads_as_before,
            PRUNES,
        ),
        ("writes_come_newest_first", squash_laws.every_root_of_a_squash_reads_as_before, PRUNES),
        ("parents_are_forgotten", squash_laws.every_root_of_a_squash_reads_as_before, PRUNES),
        ("ids_sort_above", squash_laws.a_squash_does_what_its_plan_says, PRUNES),
        (
            "long_runs_are_left",
            squash_laws.a_squash_leaves_no_two_rows_that_one_could_stand_for,
            PRUNES,
        ),
        (
            "single_rows_of_a_run_stay",
            squash_laws.a_squashing_run_deletion_leaves_other_runs_alone,
            RUNS,
        ),
    ],
)
def test_a_fault_of_contraction_breaks_a_law(request, fault, law, drawn):
    request.getfixturevalue(fault)
    assert fails(law, **drawn)
