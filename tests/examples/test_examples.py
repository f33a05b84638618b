"""Every example runs as its README says, and says so by its exit code."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest


@pytest.fixture
def run(examples, tmp_path):
    def run_script(script):
        # Not from the checkout: an example must find nothing there but itself.
        return subprocess.run(
            [sys.executable, str(examples / script)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            timeout=120,
            cwd=tmp_path,
            check=False,
        )

    return run_script


def test_each_example_is_run_by_a_test(pytestconfig, examples):
    run_here = {"quickstart", "in_memory"}
    run_by_pytest = {path.parent.name for path in examples.glob("*/test_*.py")}
    assert "examples" in pytestconfig.getini("testpaths")
    found = {path.name for path in examples.iterdir() if (path / "README.md").exists()}
    assert found == {path.name for path in examples.iterdir() if path.name[0] not in "._"}
    assert found == run_here | run_by_pytest


def test_the_quickstart_shows_the_loss_and_the_cure(run):
    done = run("quickstart/main.py")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        cells[0]: cells[1:]
        for line in done.stdout.splitlines()
        if len(cells := [c.strip() for c in re.split("[│|]", line)][1:-1]) == 5
    }
    assert set(rows) == {
        "naive keep-latest",
        "prune",
        "copy_thread",
        "delete_for_runs, 2 of 4",
    }
    assert rows["naive keep-latest"][3] == "NO, lost"
    assert {cells[3] for name, cells in rows.items() if "naive" not in name} == {"yes"}
    assert rows["prune"][0] == "36 → 3"
    assert "As expected" in done.stdout


def test_the_quickstart_has_25_supersteps_and_several_runs(quickstart):
    assert len(quickstart.RUNS) >= 3
    assert len(quickstart.RUNS) * quickstart.STEPS_PER_RUN >= 25


@pytest.mark.parametrize("fault", ["ours loses the value", "the naive way keeps it"])
def test_the_quickstart_fails_if_anything_is_not_as_expected(
    quickstart, monkeypatch, capsys, fault
):
    naive, prune, *others = quickstart.TRIALS
    if fault == "ours loses the value":
        prune = replace(prune, act=naive.act)
    else:
        naive = replace(naive, act=prune.act)
    monkeypatch.setattr(quickstart, "TRIALS", (naive, prune, *others))
    assert quickstart.main() == 1
    wrong = prune if fault == "ours loses the value" else naive
    assert f"Not as expected: {wrong.name}" in capsys.readouterr().out


def test_the_example_in_memory_keeps_the_log(run):
    done = run("in_memory/main.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "rows 36 -> 6, log entries 24 -> 24\n"
