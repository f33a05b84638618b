"""Laws of squashing, on random threads of every shape."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delta_mixin.testing import (
    Channel,
    Pruning,
    Step,
    ThreadHistory,
    laws,
    prunings,
    run_selections,
    squash_laws,
    thread_histories,
    thread_ids,
)
from delta_mixin.testing.oracle import SETTLED_HOST

# Where clocks are skewed, readers of older hosts miss parents; a base row they find.
a_history = thread_histories(skewed_clocks=SETTLED_HOST)

# The branch point lies inside of what would be one run.
a_fork_inside = example(
    history=ThreadHistory(
        channels=(Channel("items", snapshot_every=9),),
        steps=(*[Step((("items",),))] * 6, Step((("items",),), back=3), Step((("items",),))),
    ),
    pruning=Pruning(keep_last=1, pinned=(5,)),
)
two_cadences = example(
    history=ThreadHistory(
        channels=(Channel("items", snapshot_every=2), Channel("log", snapshot_every=5)),
        steps=(Step((("items", "log"),)),) * 9,
    ),
    pruning=Pruning(),
)
a_plain_seed = example(
    history=ThreadHistory(
        channels=(Channel("items", plain_rows=3, snapshot_every=9),),
        steps=(Step((("items",),)),) * 7,
    ),
    pruning=Pruning(),
)


@a_fork_inside
@two_cadences
@a_plain_seed
@given(history=a_history, pruning=prunings())
def test_every_root_reads_as_before(opened, history, pruning):
    with opened() as view:
        squash_laws.every_root_of_a_squash_reads_as_before(view, history, pruning)


@pytest.mark.skipif(not SETTLED_HOST, reason="rows with a plain seed stay on this host")
@a_fork_inside
@given(history=a_history, pruning=prunings())
def test_no_two_rows_are_left_that_one_could_stand_for(opened, history, pruning):
    with opened() as view:
        squash_laws.a_squash_leaves_no_two_rows_that_one_could_stand_for(view, history, pruning)


@a_fork_inside
@given(history=a_history, pruning=prunings())
def test_a_second_squash_changes_nothing(opened, history, pruning):
    with opened() as view:
        squash_laws.a_second_squash_changes_nothing(view, history, pruning)


@a_fork_inside
@given(history=a_history, pruning=prunings())
def test_a_squash_does_what_its_plan_says(opened, history, pruning):
    with opened() as view:
        squash_laws.a_squash_does_what_its_plan_says(view, history, pruning)


@pytest.mark.skipif(not SETTLED_HOST, reason="rows with a plain seed stay on this host")
@given(history=a_history, runs=run_selections(), pruning=st.none() | prunings())
def test_a_squashing_run_deletion_leaves_other_runs_alone(opened, history, runs, pruning):
    with opened() as view:
        squash_laws.a_squashing_run_deletion_leaves_other_runs_alone(view, history, runs, pruning)


@given(history=a_history, copy_id=thread_ids(), start=st.integers(0, 20))
def test_a_squashing_copy_reads_as_its_checkpoint(opened, history, copy_id, start):
    with opened() as view:
        squash_laws.a_squashing_copy_reads_as_its_checkpoint(view, history, copy_id, start)


@given(history=a_history, pruning=prunings())
def test_both_sides_squash_alike(opened, history, pruning):
    with opened() as view:
        laws.both_sides_clean_alike(view, history, replace(pruning, squash=True).clean)


@given(
    history=thread_histories(max_steps=8, skewed_clocks=SETTLED_HOST),
    pruning=prunings(),
    ids=st.lists(thread_ids(), min_size=2, max_size=4, unique=True),
)
def test_nothing_outside_the_named_threads_changes(opened, store_of, history, pruning, ids):
    clean = replace(pruning, squash=True).clean
    with opened() as view:
        laws.nothing_outside_the_named_threads_changes(
            view, history, ids, clean, store_of(view).by_thread
        )
