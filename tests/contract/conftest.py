from __future__ import annotations

from contextlib import nullcontext

import pytest

from delta_mixin.testing import SaverContract
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing.oracle import SETTLED_HOST


class Suite(SaverContract):
    orders_writes_by_task_path = SETTLED_HOST


@pytest.fixture
def contract_test():
    """Run one test of the contract, by name, on a saver of the given class."""

    def run(saver_class, name, side="sync", **arguments):
        def make_saver():
            if hasattr(saver_class, "from_conn_string"):
                return saver_class.from_conn_string(":memory:")
            return nullcontext(saver_class())

        with open_saver(make_saver, side) as view:
            getattr(Suite(), name)(view, **arguments)

    return run


@pytest.fixture
def expect_fault(contract_test):
    """Run one test of the contract on a sound saver, then on one with a fault that must fail it.

    By default the sound one is the class that the broken one is derived from.
    """

    def run(broken, name, match=None, sound=None, **arguments):
        sound = sound or next(
            base for base in broken.__mro__ if base.__module__ != broken.__module__
        )
        contract_test(sound, name, **arguments)
        with pytest.raises((AssertionError, pytest.fail.Exception), match=match):
            contract_test(broken, name, **arguments)

    return run
