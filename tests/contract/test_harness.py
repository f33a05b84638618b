"""The shipped harness: what it refuses, what it skips, and how it opens savers."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager, contextmanager, nullcontext

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin, testing
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.testing import LongLifeSuite, SaverContract, _deadline, contract
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing._contract import guards
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing.oracle import SETTLED_HOST
from delta_mixin.testing.plugin import help_for

NAME = "test_prune_keeps_the_metadata_of_the_head"

# Their subject is the suite, or all that a saver does, rather than one method.
NO_METHOD = {*ContractBase.contract_tests(), *LongLifeSuite.contract_tests()}


def suite(**members):
    return type("TestTheirSaver", (SaverContract,), members)()


def test_a_suite_without_make_saver_names_the_hook_and_the_class():
    with pytest.raises(NotImplementedError, match=r"TestTheirSaver does not override make_saver"):
        suite().make_saver()


def test_the_contract_has_tests_of_every_subject():
    tests = SaverContract.contract_tests()
    assert len(tests) > 90
    for subject in (
        "history",
        "keepset",
        "prune",
        "copy",
        "run_deletion",
        "subgraph",
        "interrupts",
    ):
        assert [name for name in tests if subject in name], subject


@pytest.mark.parametrize("replacement", [None, lambda self, view: None])
def test_a_deleted_or_replaced_test_is_reported(replacement):
    broken = suite(**{NAME: replacement})
    with pytest.raises(AssertionError, match=f"TestTheirSaver.{NAME} replaces a test"):
        broken.test_no_test_of_the_contract_is_deleted_or_replaced()


def test_a_test_may_be_overridden_only_to_expect_its_failure():
    def calls_the_original(self, view):
        getattr(super(type(self), self), NAME)(view)

    excused = pytest.mark.xfail(reason="not yet", strict=True)(calls_the_original)
    suite(**{NAME: excused}).test_no_test_of_the_contract_is_deleted_or_replaced()
    for marks in ({"strict": True}, {"reason": "not yet"}):
        silent = pytest.mark.xfail(**marks)(lambda self, view: None)
        with pytest.raises(AssertionError, match="replaces a test"):
            suite(**{NAME: silent}).test_no_test_of_the_contract_is_deleted_or_replaced()


@pytest.mark.parametrize("name", ["view", "pytest_generate_tests", "broken_promises"])
def test_what_the_tests_stand_on_is_not_to_be_replaced(name):
    broken = suite(**{name: lambda self: None})
    with pytest.raises(AssertionError, match=rf"TestTheirSaver\.{name} replaces what"):
        broken.test_no_test_of_the_contract_is_deleted_or_replaced()


def test_an_expected_failure_names_a_test_and_a_reason():
    good = {NAME: "upstream #1", f"{NAME}[async]": "upstream #2"}
    suite(expected_failures=good).test_expected_failures_name_tests_and_reasons()
    for bad, match in (({"test_unheard_of": "why"}, "no test's name"), ({NAME: " "}, "no reason")):
        with pytest.raises(AssertionError, match=match):
            suite(expected_failures=bad).test_expected_failures_name_tests_and_reasons()


SUITES = [
    value
    for name, value in vars(contract).items()
    if name.endswith("Suite") and isinstance(value, type)
]


def test_the_contract_is_the_sum_of_its_suites():
    tests = [{*s.contract_tests()} - {*ContractBase.contract_tests()} for s in SUITES]
    assert len(SUITES) == 8
    assert sum(map(len, tests)) == len(set().union(*tests)), "a test is in two suites"
    assert set().union(*tests) == {*SaverContract.contract_tests()} - {
        *ContractBase.contract_tests()
    }
    assert {s.__name__ for s in SUITES} < {*testing.__all__}
    assert all(getattr(testing, s.__name__) is s for s in SUITES)


@pytest.mark.parametrize("name", sorted(SaverContract.contract_tests()))
def test_every_test_says_what_fails_it_and_where_to_look(name):
    told = help_for(guards.part_of(SaverContract, name), name).splitlines()
    assert told[0] == name
    if name not in ContractBase.contract_tests():
        assert told[1].startswith("Fails"), told
    look_at = " ".join(told[1:]).partition("Look at ")[2]
    assert look_at.endswith("."), told
    methods = re.findall(r"(\w+)\(\)", look_at)
    assert all(hasattr(DeltaInMemorySaver, method) for method in methods), methods
    assert len(methods) or name in NO_METHOD, f"{name} names no hook or method: {look_at}"


def run_alone(saver_class, suites):
    lacking = {"ends_looped_histories"}
    if not SETTLED_HOST:
        lacking |= {"orders_writes_by_task_path", "replays_writes_of_plain_seeds"}
    for each in suites:
        parts = type("TestTheirSaver", (each,), {"make_saver": lambda self: saver_class()})
        for name, test in each.contract_tests().items():
            if "view" in inspect.signature(test).parameters and not hasattr(test, "pytestmark"):
                if guards.part_of(each, name).subject == "leftovers":
                    continue
                if set(getattr(test, "needs", ())) & lacking:
                    continue
                with open_saver(saver_class, "sync") as view:
                    getattr(parts(), name)(view)


def test_suites_can_be_used_with_the_mixin_they_are_about_or_with_none():
    class Prunes(DeltaChannelAwarePruneMixin, InMemorySaver):
        _delete_checkpoint_rows = DeltaInMemorySaver._delete_checkpoint_rows
        _stored_as = DeltaInMemorySaver._stored_as
        _drop_namespace = DeltaInMemorySaver._drop_namespace
        VERSIONED_BLOBS = True

    class Copies(CopyAndDeleteForRunsMixin, InMemorySaver):
        _delete_checkpoint_rows = DeltaInMemorySaver._delete_checkpoint_rows
        _stored_as = DeltaInMemorySaver._stored_as
        _drop_namespace = DeltaInMemorySaver._drop_namespace
        VERSIONED_BLOBS = LISTS_ALL_THREADS = True

    run_alone(InMemorySaver, [contract.ReadingSuite, contract.HistorySuite])
    run_alone(Prunes, [contract.KeepsetSuite, contract.PruneSuite, contract.LongLifeSuite])
    run_alone(Copies, [contract.CopySuite, contract.RunDeletionSuite])


def test_a_suite_that_tests_nothing_is_reported():
    suite().test_something_of_the_contract_is_left_to_test()
    with pytest.raises(AssertionError, match="sides is empty"):
        suite(sides=()).test_something_of_the_contract_is_left_to_test()
    with pytest.raises(AssertionError, match=r"sides names \['both'\]"):
        suite(sides=("both",)).test_something_of_the_contract_is_left_to_test()


@pytest.mark.parametrize("side", ["sync", "async"])
def test_a_walk_that_never_ends_fails_instead_of_hanging(contract_test, monkeypatch, side):
    monkeypatch.setattr(_deadline, "PATIENCE", 0.2)
    name = "test_history_ends_where_the_parents_are_a_loop"

    class HostsWalk(DeltaInMemorySaver):
        get_delta_channel_history = InMemorySaver.get_delta_channel_history

    with pytest.raises(AssertionError, match="the walk does not end"):
        contract_test(HostsWalk, name, side)


def test_authors_get_skips_with_reasons_and_assertions_with_details(tmp_path):
    (tmp_path / "test_theirs.py").write_text(
        textwrap.dedent(
            """
            from delta_mixin.adapters.memory import DeltaInMemorySaver
            from delta_mixin.testing import SaverContract


            class Saver(DeltaInMemorySaver):
                def get_delta_channel_keepset(self, config, channels):
                    return {"1"}


            class TestSaver(SaverContract):
                sides = ("sync",)
                ends_looped_histories = False

                def make_saver(self):
                    return Saver()
            """
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-k"]
    run = subprocess.run(
        [*command, "keepset_without_an_id or ends_where or keepset_of_an_unknown", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "TestSaver.ends_looped_histories is False" in run.stdout
    assert "[async]" not in run.stdout
    assert "3 failed, 1 passed, 1 skipped" in run.stdout
    assert "assert {'1'} == " in run.stdout, "assertions of the shipped suite are not rewritten"


def test_an_async_saver_is_entered_and_left_on_one_loop_in_one_task():
    seen = []

    @asynccontextmanager
    async def make():
        seen.append((asyncio.get_running_loop(), asyncio.current_task()))
        async with AsyncDeltaSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver
        seen.append((asyncio.get_running_loop(), asyncio.current_task()))

    with open_saver(make) as view:
        assert (view.side, view.base_sides) == ("async", ("sync", "async"))
        assert view.run(_running_loop()) is seen[0][0]
        other = view.other_side()
        assert (other.side, other.saver) == ("sync", view.saver)
        assert other.other_side().side == "async"
    assert seen[0] == seen[1]
    assert seen[0][0].is_closed()


async def _running_loop():
    return asyncio.get_running_loop()


def test_a_saver_with_one_side_is_read_on_it_and_cleaned_on_both():
    with open_saver(lambda: DeltaSqliteSaver.from_conn_string(":memory:")) as view:
        assert (view.side, view.base_sides) == ("sync", ("sync",))
        seen = view.seen_from("async")
        assert (seen.side, seen.base_side) == ("async", "sync")
        assert seen.list(view.config("nobody")) == []
        assert seen.plan_prune(["nobody"]) == []
        with pytest.raises(LookupError, match="its sync side only"):
            view.other_side()


def test_the_saver_is_left_when_a_test_fails():
    left = []

    @contextmanager
    def make():
        try:
            yield DeltaInMemorySaver()
        finally:
            left.append("sync")

    @asynccontextmanager
    async def amake():
        try:
            yield DeltaInMemorySaver()
        finally:
            left.append("async")

    for each in (make, amake):
        with pytest.raises(ZeroDivisionError), open_saver(each):
            _ = 1 / 0
    assert left == ["sync", "async"]


def test_a_saver_that_cannot_be_opened_says_why():
    @asynccontextmanager
    async def amake():
        raise ConnectionError("no server")
        yield

    with pytest.raises(ConnectionError, match="no server"), open_saver(amake):
        pass
    wrong = "must return a sync or async context manager"
    with pytest.raises(TypeError, match=wrong), open_saver(object):
        pass
    neither = "neither get_tuple nor aget_tuple"
    with pytest.raises(TypeError, match=neither), open_saver(lambda: nullcontext(_Stub())):
        pass


class _Stub:
    def get_tuple(self, config):
        raise NotImplementedError

    async def aget_tuple(self, config):
        raise NotImplementedError
