"""`prune`'s arguments: which rows they keep, which threads they pass over, what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from delta_mixin.errors import DeltaThreadRefusedError, SeveredHistoryError
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing._threads import HandMadeThread, id_at

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)

UNUSABLE: tuple[tuple[type[Exception], dict[str, Any]], ...] = (
    (ValueError, {"keep_last": 0}),
    (ValueError, {"keep_last": -1}),
    (TypeError, {"keep_last": "2"}),
    (ValueError, {"strategy": "keep_oldest"}),
    (ValueError, {"delta": "drop"}),
    (ValueError, {"severed": "mend"}),
    (ValueError, {"older_than": datetime(2026, 1, 1)}),  # noqa: DTZ001
    (ValueError, {"older_than": timedelta(days=-1)}),
    (TypeError, {"older_than": 30}),
    (TypeError, {"pinned": "an-id"}),
    (ValueError, {"strategy": "delete", "keep_last": 2}),
)


class PruneRuleTests(ContractBase):
    """Every root that an argument names reads back as before."""

    subject = "prune"
    look_at = "_list_checkpoint_rows(), and prune() if overridden: every argument must arrive"

    def test_keep_last_keeps_that_many_of_the_newest(self, view: SyncView) -> None:
        """Fails if only the head is protected, or only one row's chain is followed."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(2, 5, 8))
        before = thread.read()
        _prune(thread, keep_last=3)
        after = thread.read()
        thread.expect_unchanged(before, after, ids[-3:])
        thread.expect_rows(after, ids[5:])
        _prune(thread, keep_last=100)
        thread.expect_unchanged(after, thread.read())

    def test_keep_last_counts_in_each_namespace(self, view: SyncView) -> None:
        """Fails if rows of all namespaces are counted together."""
        thread = HandMadeThread(view, delta=())
        root = [thread.put() for _ in range(4)]
        child = [thread.put(ns="child") for _ in range(4)]
        _prune(thread, keep_last=2)
        rows = [*root[-2:], *(("child", i) for i in child[-2:])]
        thread.expect_rows(thread.read(), rows)

    def test_older_than_keeps_what_is_younger(self, view: SyncView) -> None:
        """Fails if a row's age is not the time inside its id, or chains are not followed."""
        thread = HandMadeThread(view)
        ids: list[str] = []
        for hour in range(6):
            snapshot = ("log",) if hour in (1, 4) else ()
            writes = [("log", f"hour {hour}")] if ids else []
            born = id_at(NOON + timedelta(hours=hour))
            parent = ids[-1] if ids else None
            ids.append(
                thread.superstep(*writes, parent=parent, checkpoint_id=born, snapshot=snapshot)
            )
        before = thread.read()
        _prune(thread, older_than=NOON + timedelta(hours=2, minutes=30))
        after = thread.read()
        thread.expect_unchanged(before, after, ids[3:])
        thread.expect_rows(after, ids[1:])
        _prune(thread, older_than=timedelta(seconds=1))
        thread.expect_rows(thread.read(), ids[4:])

    def test_older_than_keeps_rows_whose_age_cannot_be_told(self, view: SyncView) -> None:
        """Fails if an id without a time in it is taken for an old one."""
        thread = HandMadeThread(view, delta=())
        ids = [
            thread.put(checkpoint_id=f"{number:08x}-0000-4000-8000-000000000000")
            for number in range(3)
        ]
        _prune(thread, older_than=timedelta(seconds=0))
        thread.expect_rows(thread.read(), ids)

    def test_pinned_checkpoints_read_back_as_before(self, view: SyncView) -> None:
        """Fails if a pinned row stays without the rows it is rebuilt from."""
        thread = HandMadeThread(view)
        ids = thread.grow(9, snapshot_at=(1, 6))
        inner = thread.grow(4, ns="child", snapshot_at=(3,))
        before = thread.read()
        pins = [ids[3], inner[1], "unheard-of"]
        _prune(thread, pinned=pins)
        after = thread.read()
        roots = [ids[3], ids[-1], ("child", inner[1]), ("child", inner[-1])]
        thread.expect_unchanged(before, after, roots)
        thread.expect_rows(after, [*ids[1:4], *ids[6:], *(("child", inner[n]) for n in (0, 1, 3))])
        thread.expect_parents_stored(after)

    def test_strategy_delete_removes_the_thread_and_no_other(self, view: SyncView) -> None:
        """Fails if rows of any namespace stay, or a neighbour's go."""
        thread, neighbour = HandMadeThread(view, "u"), HandMadeThread(view, "u_2")
        for each in (thread, neighbour):
            each.grow(3)
            each.grow(2, ns="child:call", parents={"": "elsewhere"})
        before = neighbour.read()
        _prune(thread, strategy="delete")
        thread.expect_rows(thread.read(), [])
        assert view.get_tuple(view.config("u")) is None, thread.story()
        neighbour.expect_unchanged(before, neighbour.read())

    def test_delta_skip_passes_delta_threads_over(self, view: SyncView) -> None:
        """Fails if a thread with delta channels is touched, or a plain one is not cleaned."""
        delta, plain = _delta_and_plain(view)
        before = delta.read()
        view.prune(["delta", "plain"], delta="skip")
        delta.did("prune(delta='skip')")
        delta.expect_unchanged(before, delta.read())
        assert len(plain.read()) == 1, plain.story()

    def test_delta_refuse_raises_before_anything_is_deleted(self, view: SyncView) -> None:
        """Fails if a thread that came earlier in the list is cleaned already."""
        delta, plain = _delta_and_plain(view)
        before = delta.read(), plain.read()
        with pytest.raises(DeltaThreadRefusedError) as refused:
            view.prune(["plain", "delta"], delta="refuse")
        assert refused.value.threads == ("delta",)
        delta.expect_unchanged(before[0], delta.read())
        plain.expect_unchanged(before[1], plain.read())
        view.prune(["plain"], delta="refuse")
        assert len(plain.read()) == 1, plain.story()

    def test_a_severed_thread_is_left_alone_and_named(self, view: SyncView) -> None:
        """Fails if a missing parent is taken for the thread's start, or others are not done."""
        severed, whole = _severed_and_whole(view)
        before = severed.read()
        with pytest.raises(SeveredHistoryError) as raised:
            view.prune(["severed", "whole"])
        assert raised.value.threads == ("severed",)
        severed.expect_unchanged(before, severed.read())
        assert len(whole.read()) == 2, whole.story()

    def test_severed_ignore_cleans_what_is_left(self, view: SyncView) -> None:
        """Fails if the rows that are still there are not followed, or nothing is swept."""
        severed, _ = _severed_and_whole(view)
        newest = max(i for _, i in severed.read())
        branch = severed.put(parent=None)
        head = severed.put(parent=newest)
        before = severed.read()
        _prune(severed, severed="ignore")
        after = severed.read()
        severed.expect_rows(after, [key for key in before if key != ("", branch)])
        severed.expect_unchanged(before, after, [head])

    def test_a_gap_that_no_reader_needs_is_no_severed_history(self, view: SyncView) -> None:
        """Fails if any missing parent is reported, not only one that a channel needs."""
        thread = HandMadeThread(view, delta=())
        thread.put()
        head = thread.put(parent=_gap(thread))
        _prune(thread)
        thread.expect_rows(thread.read(), [head])
        thread.expect_parents_stored(thread.read())

    def test_plan_prune_tells_what_prune_then_does(self, view: SyncView) -> None:
        """Fails if planning touches the thread, or prune does anything else."""
        thread = HandMadeThread(view)
        thread.grow(8, snapshot_at=(2, 5))
        thread.grow(3, ns="child", snapshot_at=(1,))
        before = thread.read()
        (plan,) = view.plan_prune([thread.thread_id], keep_last=2)
        thread.expect_unchanged(before, thread.read())
        done: list[Any] = []
        _prune(thread, keep_last=2, on_plan=done.append)
        assert done == [plan], f"planned {plan}\ndid {done}{thread.story()}"
        after = thread.read()
        thread.expect_rows(after, plan.kept)
        assert {*plan.kept, *plan.doomed} == {*before}, thread.story()

    def test_on_plan_is_told_each_thread_once_it_is_done(self, view: SyncView) -> None:
        """Fails if a plan is reported before its changes can be seen."""
        threads = [HandMadeThread(view, f"thread-{n}") for n in range(3)]
        for each in threads:
            each.grow(4, snapshot_at=(2,))
        told: list[str] = []
        view.prune([t.thread_id for t in threads], on_plan=lambda plan: told.append(plan.thread_id))
        assert told == [t.thread_id for t in threads]

    @pytest.mark.parametrize(("error", "arguments"), UNUSABLE, ids=lambda a: str(a))
    def test_unusable_arguments_are_refused_before_reading(
        self, view: SyncView, error: type[Exception], arguments: dict[str, Any]
    ) -> None:
        """Fails if a slip such as `keep_last=-1` deletes anything."""
        thread = HandMadeThread(view)
        thread.grow(3, snapshot_at=(2,))
        before = thread.read()
        for call in (view.prune, view.plan_prune):
            with pytest.raises(error):
                call([thread.thread_id], **arguments)
        thread.expect_unchanged(before, thread.read())

    def test_a_bare_string_of_thread_ids_is_refused(self, view: SyncView) -> None:
        """Fails if `prune("thread")` is taken for six threads of one letter."""
        with pytest.raises(TypeError):
            view.prune("thread")

    def test_prune_of_nothing_or_nobody_does_nothing(self, view: SyncView) -> None:
        """Fails if an empty list means all threads, or an unknown one is an error."""
        thread = HandMadeThread(view)
        thread.grow(4, snapshot_at=(2,))
        before = thread.read()
        for strategy in ("keep_latest", "delete"):
            view.prune([], strategy=strategy)
            view.prune(["nobody"], strategy=strategy)
            assert view.plan_prune(["nobody"], strategy=strategy) == []
        thread.expect_unchanged(before, thread.read())


def _prune(thread: HandMadeThread, **options: Any) -> None:
    thread.view.prune([thread.thread_id], **options)
    told = ", ".join(f"{k}={v!r}" for k, v in options.items() if k != "on_plan")
    thread.did(f"prune({told})")


def _delta_and_plain(view: SyncView) -> tuple[HandMadeThread, HandMadeThread]:
    delta, plain = HandMadeThread(view, "delta"), HandMadeThread(view, "plain", delta=())
    delta.grow(4, snapshot_at=(2,))
    plain.grow(4)
    return delta, plain


def _severed_and_whole(view: SyncView) -> tuple[HandMadeThread, HandMadeThread]:
    """A thread whose chain starts at a parent that is not stored, and one that is whole."""
    severed, whole = HandMadeThread(view, "severed"), HandMadeThread(view, "whole")
    severed.put(parent=_gap(severed))
    severed.grow(2)
    whole.grow(4, snapshot_at=(2,))
    return severed, whole


def _gap(thread: HandMadeThread) -> str:
    """The id of a parent that was never stored."""
    return thread.missing("1f000000-0000-6000-8000-000000000000")
