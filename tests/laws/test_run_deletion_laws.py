"""Laws of run deletion, on random threads of every shape."""

from hypothesis import given
from hypothesis import strategies as st

from delta_mixin.testing import (
    laws,
    run_selections,
    thread_histories,
    thread_ids,
    write_history,
)
from delta_mixin.testing._roots import roots_of_run_deletion
from delta_mixin.testing.oracle import read_thread

a_history = thread_histories()


@given(history=a_history, runs=run_selections())
def test_no_surviving_row_changes(opened, history, runs):
    with opened() as view:
        laws.a_run_deletion_changes_no_survivor(view, history, runs)


@given(history=thread_histories(exact=True), runs=run_selections())
def test_only_rows_of_the_runs_go_and_the_retained_are_needed(opened, history, runs):
    with opened() as view:
        laws.a_run_deletion_retains_only_what_survivors_need(view, history, runs)


@given(history=a_history, runs=run_selections())
def test_a_run_deletion_does_what_its_plan_says(opened, history, runs):
    with opened() as view:
        laws.a_run_deletion_does_what_its_plan_says(view, history, runs)


@given(history=a_history, runs=run_selections())
def test_both_sides_delete_runs_alike(opened, history, runs):
    with opened() as view:
        laws.both_sides_clean_alike(view, history, _deletion_of(runs))


@given(history=a_history, runs=run_selections())
def test_a_second_run_deletion_changes_nothing(opened, history, runs):
    with opened() as view:
        write_history(view, history, "t")
        view.delete_for_runs(runs)
        after = read_thread(view, "t", history.delta_channels)
        assert not any(plan.changes for plan in view.plan_delete_for_runs(runs))
        view.delete_for_runs(runs)
        assert read_thread(view, "t", history.delta_channels) == after


@given(
    history=thread_histories(max_steps=8),
    runs=run_selections(),
    ids=st.lists(thread_ids(), min_size=2, max_size=4, unique=True),
)
def test_nothing_outside_the_named_threads_changes(opened, store_of, history, runs, ids):
    with opened() as view:
        laws.nothing_outside_the_named_threads_changes(
            view, history, ids, _deletion_of(runs), store_of(view).by_thread
        )


@given(
    history=thread_histories(max_steps=8),
    runs=run_selections(),
    ids=st.lists(thread_ids(), min_size=2, max_size=3, unique=True),
)
def test_without_thread_ids_a_run_goes_from_every_thread(opened, history, runs, ids):
    with opened() as view:
        for thread_id in ids:
            write_history(view, history, thread_id)
        before = read_thread(view, ids[0], history.delta_channels)
        view.delete_for_runs(runs, thread_ids=ids[:1])
        expected = read_thread(view, ids[0], history.delta_channels)
        assert expected.keys() >= roots_of_run_deletion(before, runs)
        view.delete_for_runs(runs)
        for thread_id in ids:
            left = read_thread(view, thread_id, history.delta_channels)
            assert left.keys() == expected.keys(), f"{thread_id!r} was not cleaned alike"


def _deletion_of(runs):
    return lambda view, thread_id, _: view.delete_for_runs(runs, thread_ids=[thread_id])
