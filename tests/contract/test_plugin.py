"""The pytest plugin, in runs of pytest of its own: help, summary, and what fails a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest

from delta_mixin.testing.oracle import SETTLED_HOST

HEAD = """
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import HistorySuite, KeepsetSuite, PruneSuite, ReadingSuite
from delta_mixin.testing.oracle import SETTLED_HOST

class Sound:
    sides = ("sync",)
    orders_writes_by_task_path = SETTLED_HOST

    def make_saver(self):
        return InMemorySaver()
"""


@pytest.fixture
def run_pytest(tmp_path):
    def run(code, *arguments):
        (tmp_path / "test_theirs.py").write_text(HEAD + textwrap.dedent(code))
        plugin = ("-p", "delta_mixin.testing.plugin")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin]
        # Where pytest sees that it runs in CI, its last lines repeat whole messages.
        env = {k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER")}
        return subprocess.run(
            [*command, "--strict-markers", *arguments, str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            check=False,
        )

    return run


def test_a_sound_suite_passes_with_one_line_per_subject(run_pytest):
    run = run_pytest("class TestSound(Sound, ReadingSuite): ...")
    assert run.returncode == 0, run.stdout + run.stderr
    tail = run.stdout[run.stdout.index("= saver contract =") :].splitlines()[1:4]
    reading = "13 passed" if SETTLED_HOST else "12 passed, 1 skipped"
    assert tail == ["TestSound", "  guards        3 passed", f"  reading       {reading}"]


def test_the_marker_selects_a_subject(run_pytest):
    code = "class TestSound(Sound, ReadingSuite): ...\ndef test_other(): ..."
    run = run_pytest(code, "-m", "not saver_contract")
    assert (run.returncode, "1 passed, 16 deselected" in run.stdout) == (0, True), run.stdout


def test_a_failure_tells_what_was_read_the_steps_the_thread_and_where_to_look(run_pytest):
    code = """
    class Naive(DeltaInMemorySaver):
        def _delete_checkpoint_rows(self, plans):
            from dataclasses import replace
            for plan in plans:
                doomed = (*plan.doomed, *plan.replay_only)
                kept = {k: v for k, v in plan.kept.items() if k not in doomed}
                super()._delete_checkpoint_rows([replace(plan, kept=kept, doomed=doomed)])

        def get_delta_channel_keepset(self, config, channels):
            return {"1"}

    class TestNaive(Sound, KeepsetSuite, PruneSuite):
        expected_failures = {
            "test_keepset_stops_at_a_plain_value": "a keep-set of its own",
            "test_keepset_of_no_channels_is_the_checkpoint_alone[sync]": "a keep-set of its own",
            "test_prune_of_nothing_or_nobody_does_nothing": "passes after all",
        }

        def make_saver(self):
            return Naive()
    """
    some = "keeps_the_head_and_what or plain_value or no_channels or takes_a_list or nobody"
    run = run_pytest(code, "-k", f"{some} or expected")
    assert run.returncode == 1, run.stdout + run.stderr
    told = run.stdout
    assert "does not read as before:" in told
    assert "rebuilt: expected {'log': Rebuilt(seed=_DeltaSnapshot(" in told
    assert "1. put " in told
    assert "prune()" in told
    assert "snapshot of log, writes log" in told
    assert re.search(r"\nE +x  …\w+  writes log\n", told), "the picture"
    assert "Fails if rows between the head and its snapshot are deleted" in told
    assert "Look at _delete_checkpoint_rows(): doomed rows" in told
    assert told.count("  1. put ") == 1, "a story is told once"
    assert "DID NOT RAISE" in told, "a failure without steps of its own"
    assert "Look at the parents that get_tuple() reads" in told
    assert "[XPASS(strict)] passes after all" in told
    summary = told[told.index("= saver contract =") :]
    assert "  keep-set      1 failed, 2 failed as expected\n" in summary
    assert "  2 failed as expected: a keep-set of its own\n" in summary


def test_what_takes_tests_out_of_a_suite_fails_the_run(run_pytest):
    code = """
    @pytest.mark.skip(reason="later")
    class TestSkipped(Sound, ReadingSuite): ...

    @pytest.mark.xfail(reason="later")
    class TestExcused(Sound, ReadingSuite):
        def test_parents_come_back(self): ...

    class TestWithoutGuards(Sound, ReadingSuite):
        test_no_test_of_the_contract_is_deleted_or_replaced = None
        test_parents_come_back = None

    class TestOther(Sound, ReadingSuite):
        @pytest.fixture
        def view(self): ...
    """
    left_out = (
        "parents or task_path or (TestExcused and not deleted) or (TestOther and not something)"
    )
    run = run_pytest(code, "-k", f"not ({left_out})")
    assert run.returncode == 1, run.stdout
    for line in (
        "tests of TestSkipped are marked skip",
        "tests of TestExcused are marked xfail without strict=True and a reason",
        "TestExcused.test_parents_come_back replaces a test of the contract",
        "TestWithoutGuards.test_no_test_of_the_contract_is_deleted_or_replaced replaces a test",
        "TestWithoutGuards.test_parents_come_back replaces a test of the contract",
        "TestOther.view replaces what the contract's tests stand on",
    ):
        assert f"\n{line}" in run.stdout, line
    assert run.stdout.splitlines()[-1].startswith("14 passed, 14 skipped, "), "no test tells"


def test_a_run_in_which_every_test_is_skipped_fails(run_pytest):
    code = """
    @pytest.mark.skipif(True, reason="no server")
    class TestSkipped(Sound, ReadingSuite): ...
    """
    run = run_pytest(code)
    assert run.returncode == 1, run.stdout
    assert "every test of TestSkipped was skipped: nothing is proven" in run.stdout
    assert "16 skipped: no server" in run.stdout
    assert run_pytest(code, "-k", "test_parents_come_back").returncode == 0
    assert run_pytest(code + "class TestSound(Sound, ReadingSuite): ...").returncode == 0


def test_a_run_without_suites_sees_nothing_of_the_plugin(run_pytest, tmp_path):
    code = "import sys\nprint(*{name.partition('.')[0] for name in sys.modules})\n"
    (tmp_path / "conftest.py").write_text(code)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "test_other.py").write_text("class TestIt:\n    def test_it(self): ...")
    run = run_pytest("", "-s", "--ignore", str(tmp_path / "test_theirs.py"))
    loaded = set(run.stdout.splitlines()[0].split())
    assert {"delta_mixin", "pytest"} <= loaded
    assert not {"langgraph", "langchain_core", "hypothesis"} & loaded
    assert run.stdout.splitlines()[1:] == [".", "1 passed in " + run.stdout.split()[-1]]
