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
