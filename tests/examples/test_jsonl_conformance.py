"""The host's conformance suite on the example's saver: nothing skipped, nothing failed."""

import asyncio
import tempfile

from delta_jsonl_saver import DeltaJsonLinesSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks


@checkpointer_test("JSON lines")
async def json_lines():
    with (
        tempfile.TemporaryDirectory() as folder,
        DeltaJsonLinesSaver.open(folder) as saver,
    ):
        yield saver


def test_the_example_conforms():
    failed = []

    def note(capability, name, passed, error):
        if not passed:
            failed.append((name, error))

    report = asyncio.run(validate(json_lines, progress=ProgressCallbacks(on_test_result=note)))
    assert failed == []
    assert {"put", "put_writes", "list", "prune", "copy_thread", "delete_for_runs"} <= set(
        report.results
    )
    for name, result in report.results.items():
        assert result.passed is True, name
        assert result.tests_passed > 0, name
        assert result.tests_skipped == 0, name
