"""Laws of pruning, on random threads of every shape."""

from hypothesis import example, given
from hypothesis import strategies as st

from delta_mixin.testing import (
    Channel,
    Pruning,
    Step,
    ThreadHistory,
    laws,
    prunings,
    thread_histories,
    thread_ids,
    write_history,
)
from delta_mixin.testing._roots import roots_of_prune
from delta_mixin.testing.oracle import read, read_thread

a_history = thread_histories()

# The seed is a plain value, and nothing but a version tells that the channel is delta now.
only_a_plain_seed = example(
    history=ThreadHistory(
        channels=(Channel("items", plain_rows=1),),
        steps=(Step((("items",),)), Step(source="update", old=True)),
    ),
    pruning=Pruning(),
)
an_exact_history = thread_histories(exact=True)


@only_a_plain_seed
@given(history=a_history, pruning=prunings())
def test_every_root_reads_exactly_as_before(opened, history, pruning):
    with opened() as view:
        laws.every_root_of_a_prune_reads_as_before(view, history, pruning)


@given(history=a_history, pruning=prunings())
def test_every_doomed_row_is_needed_by_none(opened, history, pruning):
    with opened() as view:
        laws.every_doomed_row_is_needed_by_none(view, history, pruning)


@given(history=an_exact_history, pruning=prunings())
def test_every_kept_row_is_needed(opened, history, pruning):
    with opened() as view:
        laws.every_kept_row_is_needed(view, history, pruning)


@given(history=an_exact_history, pruning=prunings())
def test_removing_any_kept_row_changes_what_a_root_sees(opened, store_of, history, pruning):
    with opened() as view:
        write_history(view, history, "t")
        before = read_thread(view, "t", history.delta_channels)
        options = pruning.options(before)
        roots = roots_of_prune(view, "t", before, **options)
        view.prune(["t"], **options)
        kept = read_thread(view, "t", history.delta_channels)
        for row in kept.keys() - roots:
            with store_of(view).without("t", *row):
                seen = {root: read(view, "t", *root, history.delta_channels) for root in roots}
            assert any(seen[root] != kept[root] for root in roots), f"{row} is kept in vain"
        assert read_thread(view, "t", history.delta_channels) == kept, "the test restores rows"


@given(history=a_history, pruning=prunings())
def test_a_second_prune_changes_nothing(opened, history, pruning):
    with opened() as view:
        laws.a_second_prune_changes_nothing(view, history, pruning)


@given(history=a_history, pruning=prunings())
def test_a_prune_does_what_its_plan_says(opened, history, pruning):
    with opened() as view:
        laws.a_prune_does_what_its_plan_says(view, history, pruning)


@given(history=a_history, pruning=prunings())
def test_both_sides_prune_alike(opened, history, pruning):
    with opened() as view:
        laws.both_sides_clean_alike(view, history, pruning.clean)


@given(
    history=thread_histories(max_steps=8),
    pruning=prunings(),
    ids=st.lists(thread_ids(), min_size=2, max_size=4, unique=True),
)
def test_nothing_outside_the_named_threads_changes(opened, store_of, history, pruning, ids):
    with opened() as view:
        laws.nothing_outside_the_named_threads_changes(
            view, history, ids, pruning.clean, store_of(view).by_thread
        )
