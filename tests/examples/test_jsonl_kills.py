"""Kill the example's saver at every line that writes: each thread is as before or done."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from delta_jsonl_saver import DeltaJsonLinesSaver

HERE = Path(__file__).parent


def stored(folder):
    with DeltaJsonLinesSaver.open(folder) as saver:
        return {
            thread_id: list(saver.list({"configurable": {"thread_id": thread_id}}))
            for thread_id in saver.files.thread_ids()
        }


@pytest.fixture
def threads(tmp_path, quickstart):
    with DeltaJsonLinesSaver.open(tmp_path / "0") as saver:
        graph = quickstart.build_graph(saver)
        for thread_id in "ab":
            for run in range(2):
                graph.invoke(
                    {"log": [f"run {run}"]},
                    {
                        "configurable": {"thread_id": thread_id},
                        "metadata": {"run_id": f"run-{run}"},
                    },
                    durability="sync",
                )
    return tmp_path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("operation", ["prune", "delete", "delete_for_runs", "copy_thread"])
def test_a_cleanup_killed_anywhere_is_as_before_or_done(threads, examples, operation):
    done = subprocess.run(
        [sys.executable, HERE / "kill_jsonl.py", threads, operation],
        env={**os.environ, "PYTHONPATH": str(examples / "custom_saver")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    attempts = int(done.stdout)
    assert attempts > 5
    before, after = stored(threads / "0"), stored(threads / str(attempts))
    assert before != after
    for attempt in range(1, attempts):
        found = stored(threads / str(attempt))
        for thread_id in {*before, *after}:
            allowed = (before.get(thread_id), after.get(thread_id))
            assert found.get(thread_id) in allowed, (attempt, thread_id)
