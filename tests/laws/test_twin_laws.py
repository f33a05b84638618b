"""Two threads of a real graph get the same inputs, one is cleaned: their states stay equal."""

from __future__ import annotations

import pytest
import twin_actions
import twin_graphs
import twins
from hypothesis import given


@given(twin_actions.rounds(*twin_actions.flat, most=8))
def test_a_cleaned_thread_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twin_graphs.flat_graph(), turns)


# A fork needs what a `checkpointer=True` subgraph had stored at that time, which a prune of the
# newest rows does not keep; so here threads only go on.
@given(twin_actions.rounds(*twin_actions.onward, most=7))
def test_a_cleaned_thread_with_subgraphs_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twin_graphs.nested_graph(), turns)


# Any cleanup, so that what has been compacted is pruned, copied and compacted again.
mixed = twin_actions.cleanups | twin_actions.compactions


@given(twin_actions.rounds(*twin_actions.flat, most=8, cleanups=mixed))
def test_a_compacted_thread_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twin_graphs.flat_graph(), turns)


@given(twin_actions.rounds(*twin_actions.onward, most=7, cleanups=mixed))
def test_a_compacted_thread_with_subgraphs_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twin_graphs.nested_graph(), turns)


@pytest.mark.parametrize("subgraphs", [False, True])
def test_whatever_is_compacted_in_between_the_states_of_twins_are_equal(opened, subgraphs):
    twins.run_machine(opened, 20, subgraphs)
