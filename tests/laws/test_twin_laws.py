"""Two threads of a real graph get the same inputs, one is cleaned: their states stay equal."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given


def _load():
    path = Path(__file__).with_name("twins.py")
    spec = importlib.util.spec_from_file_location("laws_twins", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its annotations get resolved
    spec.loader.exec_module(module)
    return module


twins = sys.modules.get("laws_twins") or _load()


@given(twins.rounds(*twins.flat, most=8))
def test_a_cleaned_thread_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twins.flat_graph(), turns)


# A fork needs what a `checkpointer=True` subgraph had stored at that time, which a prune of the
# newest rows does not keep; so here threads only go on.
@given(twins.rounds(*twins.onward, most=7))
def test_a_cleaned_thread_with_subgraphs_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twins.nested_graph(), turns)


# Any cleanup, so that what has been compacted is pruned, copied and compacted again.
mixed = twins.cleanups | twins.compactions


@given(twins.rounds(*twins.flat, most=8, cleanups=mixed))
def test_a_compacted_thread_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twins.flat_graph(), turns)


@given(twins.rounds(*twins.onward, most=7, cleanups=mixed))
def test_a_compacted_thread_with_subgraphs_goes_on_like_its_twin(opened, turns):
    with opened() as view:
        twins.drive(view, twins.nested_graph(), turns)


@pytest.mark.parametrize("subgraphs", [False, True])
def test_whatever_is_compacted_in_between_the_states_of_twins_are_equal(opened, subgraphs):
    twins.run_machine(opened, 20, subgraphs)
