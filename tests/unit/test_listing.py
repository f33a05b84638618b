"""Listings, and threads that a backend prunes without one."""

from __future__ import annotations

import asyncio

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from delta_mixin import CheckpointRow, Listing, Outline
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.planner import group_rows, views_of

READ = CheckpointRow("t", "", "2", "1", metadata={"step": 2})


def test_a_listing_iterates_as_rows_read_or_lean():
    listing = Listing([Outline("t", "", {"1": None, "2": "1"}, (READ,)), Outline("u", "n", {})])
    assert list(listing) == [CheckpointRow("t", "", "1"), READ]
    assert list(listing) == list(listing)
    assert Listing.of(listing) is listing


def test_of_rows_listed_twice_the_first_counts():
    later = READ._replace(parent_id="other", metadata=None)
    assert list(Listing.of(iter([READ, later]))) == [READ]
    view = group_rows([READ, later, CheckpointRow("t", "", "1")])[""]
    assert view.parents == {"1": None, "2": "1"}
    assert list(view.parents) == view.ids == ["1", "2"]
    assert view["2"] is READ is view.newest


def test_a_view_makes_rows_when_they_are_asked_for():
    view = views_of([Outline("t", "n", {"2": "1", "1": "0"}, runs={"1": "run"})])["n"]
    assert list(view) == [CheckpointRow("t", "n", "1", "0"), CheckpointRow("t", "n", "2", "1")]
    assert view.get("0") is view.get(None) is None
    assert "0" not in view
    with pytest.raises(KeyError):
        view["0"]
    assert dict(view.runs) == {"1": "run"}


def test_namespaces_come_in_order_and_once():
    outlines = [Outline("t", ns, {"1": None}) for ns in ("b", "", "a")]
    assert list(views_of(outlines)) == ["", "a", "b"]
    with pytest.raises(ValueError, match="'t' has two outlines of namespace 'a'"):
        views_of([*outlines, Outline("t", "a", {"2": "1"})])


# -- threads that need no plan -----------------------------------------------------------------


class InTheWayError(Exception):
    """Another transaction was in the way."""


class Settling(DeltaInMemorySaver):
    """Says of threads in `done` that it has pruned them, and records what it was asked."""

    CLEANUP_BATCH_SIZE = 2
    done = ()
    failures = 0

    def __init__(self):
        super().__init__()
        self.asked = []

    def _prune_settled_threads(self, thread_ids):
        self.asked.append(thread_ids)
        if self.failures:
            self.failures -= 1
            raise InTheWayError
        return [t for t in thread_ids if t in self.done]

    def _retry_after(self, error):
        return isinstance(error, InTheWayError)


def filled(saver):
    for thread_id in "abc":
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        for _ in range(3):
            saved = {**empty_checkpoint(), "channel_versions": {"__start__": 1}}
            config = saver.put(config, saved, {"source": "loop"}, {})
    return saver


def lengths(saver):
    return {thread_id: len(saver.storage[thread_id][""]) for thread_id in "abc"}


@pytest.fixture(params=["sync", "async"])
def prune(request):
    def prune(saver, *args, **options):
        if request.param == "sync":
            saver.prune(*args, **options)
        else:
            asyncio.run(saver.aprune(*args, **options))

    return prune


def test_what_the_backend_leaves_is_planned(prune):
    saver = filled(Settling())
    saver.done = ("b",)
    prune(saver, ["a", "b", "c"])
    assert saver.asked == [("a", "b"), ("c",)]
    assert lengths(saver) == {"a": 1, "b": 3, "c": 1}


@pytest.mark.parametrize("failures", [1, 3, 6])
def test_where_another_is_in_the_way_it_tries_again_then_plans(prune, failures):
    saver = filled(Settling())
    saver.done, saver.failures = ("b",), failures
    prune(saver, ["a", "b", "c"])
    assert lengths(saver) == {"a": 1, "b": 3 if failures < 3 else 1, "c": 1}


def test_any_other_error_is_the_callers(prune):
    class Failing(Settling):
        def _prune_settled_threads(self, thread_ids):
            raise OSError(thread_ids)

    saver = filled(Failing())
    with pytest.raises(OSError, match="a"):
        prune(saver, ["a", "b"])
    assert lengths(saver) == dict.fromkeys("abc", 3)


@pytest.mark.parametrize(
    ("thread_ids", "options"),
    [
        (["a"], {}),
        (["a", "b"], {"on_plan": lambda plan: None}),
        (["a", "b"], {"keep_last": 2}),
        (["a", "b"], {"pinned": ["x"]}),
        (["a", "b"], {"delta": "skip"}),
        (["a", "b"], {"delta": "refuse"}),
        (["a", "b"], {"strategy": "delete"}),
    ],
)
def test_it_is_not_asked_for_more_than_it_can_tell(prune, thread_ids, options):
    saver = filled(Settling())
    prune(saver, thread_ids, **options)
    assert saver.asked == []


@pytest.mark.parametrize(
    "own",
    [
        {"_list_checkpoint_rows": DeltaInMemorySaver._list_checkpoint_rows},
        {"_delete_checkpoint_rows": DeltaInMemorySaver._delete_checkpoint_rows},
        {"DELTA_CHANNELS": ("log",)},
    ],
    ids=lambda own: next(iter(own)),
)
def test_a_class_with_a_way_of_its_own_is_not_asked(prune, own):
    saver = filled(type("Own", (Settling,), own)())
    prune(saver, ["a", "b"])
    assert saver.asked == []
    assert lengths(saver) == {"a": 1, "b": 1, "c": 3}
