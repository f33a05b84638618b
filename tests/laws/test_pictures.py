"""A failing example is shown as a picture of its thread."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis.stateful import run_state_machine_as_test

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import CleanupStateMachine, cleanup_settings, laws, prunings
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing.strategies import thread_histories

FOUND = {"max_examples": 200, "derandomize": True, "database": None}


class OneRowShort(DeltaInMemorySaver):
    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(
            [replace(p, doomed=(*p.doomed, *p.replay_only[:1])) for p in plans]
        )


def told(error):
    return "\n".join([str(error.value), *getattr(error.value, "__notes__", ())])


def shows_a_short_thread(lines):
    drawn = [line for line in lines if line[:3] in ("*  ", "x  ")]
    return "root namespace" in lines and 1 < len(drawn) < 6 and "writes items" in " ".join(drawn)


def test_a_law_that_fails_shows_the_thread(capsys):
    @settings(**FOUND)
    @given(history=thread_histories(exact=True), pruning=prunings())
    def hold(history, pruning):
        with open_saver(lambda: nullcontext(OneRowShort())) as view:
            laws.every_root_of_a_prune_reads_as_before(view, history, pruning)

    with pytest.raises(AssertionError) as failed:
        hold()
    lines = [*told(failed).splitlines(), *capsys.readouterr().out.splitlines()]
    assert any("thread 'thread' as written, as it was put" in line for line in lines), lines
    assert shows_a_short_thread(lines), lines


def test_a_machine_that_fails_shows_the_thread_before_the_cleanup(capsys):
    class Machine(CleanupStateMachine):
        def make_saver(self):
            return nullcontext(OneRowShort())

    # Making it small takes minutes, and is Hypothesis's own.
    found = cleanup_settings(**FOUND, phases=[Phase.generate])
    with pytest.raises(AssertionError) as failed:
        run_state_machine_as_test(Machine, settings=found)
    lines = [*told(failed).splitlines(), *capsys.readouterr().out.splitlines()]
    assert any("before prune, as it was put" in line for line in lines), lines
    assert any(line.startswith("*  ") for line in lines), lines
