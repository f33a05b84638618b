"""The host's own conformance suite, in full: its `passed_all` would call a skip a pass."""

from __future__ import annotations

import asyncio
import importlib

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver

# How many tests each capability had in langgraph-checkpoint-conformance 0.0.2.
TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


@checkpointer_test("memory")
async def memory():
    yield DeltaInMemorySaver()


@checkpointer_test("async sqlite")
async def async_sqlite():
    async with AsyncDeltaSqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


@pytest.mark.parametrize("saver", [memory, async_sqlite], ids=lambda saver: saver.name)
def test_every_conformance_test_is_run_and_passes(saver):
    seen = {}

    def note(capability, name, passed, error):
        seen.setdefault(capability, {})[name] = (passed, error)

    report = asyncio.run(validate(saver, progress=ProgressCallbacks(on_test_result=note)))
    assert set(report.results) == set(TESTS)
    for capability, result in report.results.items():
        module = importlib.import_module(f"langgraph.checkpoint.conformance.spec.test_{capability}")
        shipped = [test.__name__ for test in getattr(module, f"ALL_{capability.upper()}_TESTS")]
        assert set(shipped) == {name for name in vars(module) if name.startswith("test_")}
        failed = {name: error for name, (passed, error) in seen[capability].items() if not passed}
        assert failed == {}
        assert list(seen[capability]) == shipped
        assert len(shipped) >= TESTS[capability], capability
        assert (result.detected, result.passed) == (True, True), capability
        assert (result.tests_failed, result.tests_skipped) == (0, 0), capability
        assert result.tests_passed == len(shipped), capability
