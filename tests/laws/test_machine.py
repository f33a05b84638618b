"""The shipped state machine, on our own savers and as an author would use it."""

from contextlib import contextmanager

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import CleanupStateMachine, cleanup_settings


def test_whatever_is_done_to_threads_all_that_must_be_readable_is(make_saver):
    class Machine(CleanupStateMachine):
        def make_saver(self):
            return make_saver()

    run_state_machine_as_test(Machine, settings=cleanup_settings())


class InMemoryMachine(CleanupStateMachine):
    OLD_RELEASES = False
    SKEWED_CLOCKS = False
    RUNS_IN_ALL_THREADS = False

    @contextmanager
    def make_saver(self):
        yield DeltaInMemorySaver()


TestInMemory = InMemoryMachine.TestCase
TestInMemory.settings = cleanup_settings(max_examples=10)


def test_a_machine_without_a_saver_says_what_to_write():
    class Unfinished(CleanupStateMachine):
        pass

    with pytest.raises(NotImplementedError, match=r"Unfinished must write make_saver\(\)"):
        run_state_machine_as_test(Unfinished, settings=cleanup_settings(max_examples=1))


def test_settings_follow_the_profile_that_is_loaded_when_they_are_made():
    assert cleanup_settings().max_examples == settings().max_examples
    assert cleanup_settings(max_examples=7).max_examples == 7
