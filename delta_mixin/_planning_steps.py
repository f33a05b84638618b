"""How operations get from threads to plans: list, ask for heads, answer what planners ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delta_mixin import planner
from delta_mixin._bases import overrides
from delta_mixin._drive import Call, Steps
from delta_mixin._sweeping import SaverTraits
from delta_mixin._view import NamespaceView
from delta_mixin.listing import Listing, Outline
from delta_mixin.model import CheckpointRow, CleanupPlan, KnownChannels, Planning, Reads, T

Views = Mapping[str, NamespaceView]
Planner = Callable[[str, Views, Mapping[str, "str | None"]], Planning[CleanupPlan]]

ALL_ROWS, ROWS_WITH_RUNS = "_list_checkpoint_rows", "_list_rows_with_runs"
"""The hooks that list the rows to plan with."""

READ_ROWS, READ_BATCH = "_read_checkpoint_rows", "_read_batch_rows"

BEYOND = "_list_rows_beyond"


def traits_of(saver: Any) -> SaverTraits:
    """What the planner has to know of a saver."""
    return SaverTraits(
        frozenset(saver.DELTA_CHANNELS),
        saver.VERSIONED_BLOBS,
        saver.REPLAYS_PLAIN_SEEDS,
        # A class that lists or reads in a way of its own may store rows elsewhere.
        overrides(type(saver), BEYOND, (ALL_ROWS, ROWS_WITH_RUNS, READ_BATCH, READ_ROWS)),
    )


def plan_batch(
    saver: Any, batch: Sequence[str], planned: Planner, listing: str = ALL_ROWS
) -> Steps[list[CleanupPlan]]:
    """Plans for those threads of the batch that have rows."""
    plannings = {}
    for thread_id, found in (yield from _outlines_of(saver, batch, listing)).items():
        if found:
            views = planner.views_of(found)
            heads = yield from heads_of(saver, thread_id, views)
            plannings[thread_id] = planned(thread_id, views, heads)
    plans = yield from _answer(saver, plannings)
    return [plans[thread_id] for thread_id in plannings]


def rows_of(saver: Any, thread_ids: Sequence[str]) -> Steps[dict[str, list[CheckpointRow]]]:
    """All rows of each thread."""
    outlines = yield from _outlines_of(saver, thread_ids, ALL_ROWS)
    return {thread_id: list(Listing(found)) for thread_id, found in outlines.items()}


def _outlines_of(
    saver: Any, thread_ids: Sequence[str], listing: str
) -> Steps[dict[str, list[Outline]]]:
    outlines: dict[str, list[Outline]] = {thread_id: [] for thread_id in thread_ids}
    for outline in Listing.of((yield Call(listing, (tuple(thread_ids),)))).outlines:
        # Whatever a backend lists beyond what was asked for must never be cleaned.
        if outline.thread_id in outlines and outline.parents:
            outlines[outline.thread_id].append(outline)
    return outlines


def heads_of(saver: Any, thread_id: str, views: Views) -> Steps[dict[str, str | None]]:
    """By namespace, the id that `get_tuple` returns, where that need not be the newest."""
    heads: dict[str, str | None] = {}
    if not saver.NEWEST_ID_IS_HEAD:
        for ns in views:
            config = saver._checkpoint_config(thread_id, ns, None)
            head = yield Call("get_tuple", (config,))
            heads[ns] = None if head is None else head.checkpoint["id"]
    return heads


def _answer(saver: Any, plannings: Mapping[str, Planning[T]]) -> Steps[dict[str, T]]:
    """Answer the planners' requests, those of all threads together."""
    results: dict[str, T] = {}
    answers: Mapping[str, Any] = dict.fromkeys(plannings)
    while answers:
        reads: dict[str, Reads] = {}
        asked: dict[str, KnownChannels] = {}
        for thread_id, found in answers.items():
            try:
                request = plannings[thread_id].send(found)
            except StopIteration as done:
                results[thread_id] = done.value
                continue
            if isinstance(request, KnownChannels):
                asked[thread_id] = request
            else:
                reads[thread_id] = request
        answers = (yield Call(READ_BATCH, (reads,))) if reads else {}
        if asked:
            beyond = yield Call(BEYOND, (asked,))
            answers = {**answers, **{thread_id: beyond.get(thread_id) for thread_id in asked}}
    return results


def answer_one(saver: Any, thread_id: str, planning: Planning[T]) -> Steps[T]:
    """The outcome of one thread's planning."""
    return (yield from _answer(saver, {thread_id: planning}))[thread_id]
