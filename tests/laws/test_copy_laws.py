"""Laws of copying, on random threads of every shape."""

from hypothesis import given
from hypothesis import strategies as st

from delta_mixin.testing import laws, prunings, run_selections, thread_histories, thread_ids

a_history = thread_histories()


@given(history=a_history, copy_id=thread_ids())
def test_a_copy_equals_its_source_which_stays_as_it_is(opened, history, copy_id):
    with opened() as view:
        laws.a_copy_equals_its_source(view, history, copy_id)


@given(
    history=a_history,
    copy_id=thread_ids(),
    start=st.integers(0, 20),
    pruning=st.none() | prunings(),
)
def test_a_copy_of_a_checkpoint_reads_as_that_checkpoint(opened, history, copy_id, start, pruning):
    with opened() as view:
        laws.a_copy_of_a_checkpoint_reads_as_that_checkpoint(view, history, copy_id, start, pruning)


@given(history=a_history, copy_id=thread_ids(), pruning=prunings())
def test_pruning_one_side_never_touches_the_other(opened, history, copy_id, pruning):
    with opened() as view:
        laws.a_copy_and_its_source_live_apart(view, history, copy_id, pruning.clean)


@given(history=a_history, copy_id=thread_ids(), runs=run_selections())
def test_deleting_runs_of_one_side_never_touches_the_other(opened, history, copy_id, runs):
    def clean(view, thread_id, _):
        view.delete_for_runs(runs, thread_ids=[thread_id])

    with opened() as view:
        laws.a_copy_and_its_source_live_apart(view, history, copy_id, clean)


@given(history=a_history, copy_id=thread_ids())
def test_nothing_but_the_copy_is_added(opened, store_of, history, copy_id):
    def copy(view, thread_id, _):
        view.copy_thread(thread_id, "the copy")

    with opened() as view:
        laws.nothing_outside_the_named_threads_changes(
            view, history, [laws.THREAD, copy_id], copy, store_of(view).by_thread
        )


@given(history=a_history)
def test_both_sides_copy_alike(opened, history):
    def copy_and_look_at_it(view, thread_id, before):
        if before:
            view.copy_thread(thread_id, "copy by " + thread_id)
            view.prune([thread_id], strategy="delete")
            view.copy_thread("copy by " + thread_id, thread_id)

    with opened() as view:
        laws.both_sides_clean_alike(view, history, copy_and_look_at_it)
