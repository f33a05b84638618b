"""Known faults of a saver: expected to fail, with a reason, and strictly."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from delta_mixin.testing import SaverContract

HEAD = "test_keepset_without_an_id_is_that_of_the_newest"


def run_suite(tmp_path, expected, selected=HEAD):
    (tmp_path / "test_theirs.py").write_text(
        textwrap.dedent(
            f"""
            from delta_mixin.adapters.memory import DeltaInMemorySaver
            from delta_mixin.testing import SaverContract


            class Saver(DeltaInMemorySaver):
                def get_delta_channel_keepset(self, config, channels):
                    return {{"1"}}


            class TestSaver(SaverContract):
                expected_failures = {expected!r}

                def make_saver(self):
                    return Saver()
            """
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rxX", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-k", selected, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )


def test_a_fault_of_one_side_is_expected_there_alone(tmp_path):
    run = run_suite(tmp_path, {f"{HEAD}[sync]": "the sync side makes it up"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed, " in run.stdout
    assert "1 xfailed" in run.stdout
    assert f"{HEAD}[sync] - the sync side makes it up" in run.stdout


def test_a_fault_that_is_mended_fails_the_run(tmp_path):
    run = run_suite(tmp_path, {HEAD: "the sync side makes it up"})
    assert run.returncode == 1, run.stdout + run.stderr
    assert "1 failed" in run.stdout
    assert "1 xfailed" in run.stdout
    assert "[XPASS(strict)] the sync side makes it up" in run.stdout


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"test_no_such_thing": "a reason"}, "is no test's name"),
        ({HEAD: " "}, "gives no reason"),
    ],
)
def test_an_entry_that_excuses_nothing_is_reported(expected, message):
    suite = type("Suite", (SaverContract,), {"expected_failures": expected})()
    with pytest.raises(AssertionError, match=message):
        suite.test_expected_failures_name_tests_and_reasons()


def test_good_entries_pass():
    expected = {HEAD: "a reason", f"{HEAD}[async]": "another"}
    suite = type("Suite", (SaverContract,), {"expected_failures": expected})()
    suite.test_expected_failures_name_tests_and_reasons()
