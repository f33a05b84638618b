"""The operations, each written once: generators that ask for hooks and are sent answers.

1. Everything of a batch is read before anything of it is deleted.
2. Reading, planning and deleting of a batch happen in one `_cleanup_scope`.
3. A thread that cannot be cleaned safely is left alone, the others are done, then it is named.
4. Plans are reported after their scope has ended, so what is reported has happened.
5. Where another transaction was in the way (`_retry_after`), a batch is planned and swept anew,
   then thread by thread; threads that still fail are named in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from delta_mixin import planner
from delta_mixin._bases import overrides
from delta_mixin._copying import select_for_copy
from delta_mixin._drive import Call, InScope, Report, Steps
from delta_mixin._planning_steps import (
    ALL_ROWS,
    ROWS_WITH_RUNS,
    Planner,
    Views,
    answer_one,
    plan_batch,
    rows_of,
    traits_of,
)
from delta_mixin.channels import UnknownChannelsError
from delta_mixin.errors import (
    CheckpointNotFoundError,
    CleanupFailedError,
    DeltaThreadRefusedError,
    SeveredHistoryError,
    TargetThreadExistsError,
    ThreadNotFoundError,
    UnknownDeltaChannelsError,
)
from delta_mixin.marking import mark
from delta_mixin.model import CheckpointRow, CleanupPlan, T
from delta_mixin.planner import PruneRules

OnPlan = Callable[[CleanupPlan], object] | None
SETTLING = "_prune_settled_threads"

ATTEMPTS = 3
"""How often a batch is tried while another transaction is in the way."""


def prune(
    saver: Any,
    thread_ids: Sequence[str],
    strategy: str,
    rules: PruneRules,
    on_plan: OnPlan,
) -> Steps[None]:
    """Plan and sweep, batch by batch."""
    planned = prune_planner(saver, strategy, rules)
    if strategy == "keep_latest" and rules.delta == "refuse":
        plans = yield from plan(saver, thread_ids, planned)
        _refuse_delta_threads(plans)
    if strategy == "keep_latest" and rules.keeps_heads and on_plan is None:
        thread_ids = yield from _prune_settled(saver, thread_ids)
    yield from _clean(saver, thread_ids, planned, on_plan, refuse=rules.delta == "refuse")


def _prune_settled(saver: Any, thread_ids: Sequence[str]) -> Steps[Sequence[str]]:
    """Let the backend prune what it can tell needs no plan; returns the threads left to plan."""
    # A class that lists or deletes in a way of its own wants that done.
    settles = overrides(type(saver), SETTLING, (ALL_ROWS, "_delete_checkpoint_rows"))
    if len(thread_ids) == 1 or saver.DELTA_CHANNELS or not settles:
        return thread_ids
    left: list[str] = []

    def one(batch: Sequence[str]) -> Steps[Collection[str]]:
        return (yield Call(SETTLING, (batch,)))  # type: ignore[no-any-return]

    for batch in _batches(saver, thread_ids):
        settled: Collection[str] = ()
        try:
            settled = yield from _attempt(saver, "_cleanup_scope", batch, partial(one, batch))
        except Exception as error:
            if not saver._retry_after(error):
                raise
        left += [t for t in batch if t not in settled]
    return left


def prune_planner(saver: Any, strategy: str, rules: PruneRules) -> Planner:
    """The planner of a prune with these arguments."""
    traits = traits_of(saver)

    def planned(thread_id: str, views: Views, heads: Mapping[str, str | None]) -> Any:
        if strategy == "delete":
            return planner.plan_whole_thread(thread_id, views)
        return (yield from planner.plan_prune(thread_id, views, rules, traits, heads))

    return planned


def runs_planner(saver: Any, run_ids: Sequence[str], squashing: bool) -> Planner:
    """The planner of a deletion of these runs."""
    traits, runs = traits_of(saver), frozenset(run_ids)

    def planned(thread_id: str, views: Views, heads: Mapping[str, str | None]) -> Any:
        return planner.plan_delete_for_runs(
            thread_id, views, runs, traits, heads, squashing=squashing
        )

    return planned


def plan(
    saver: Any, thread_ids: Sequence[str], planned: Planner, listing: str = ALL_ROWS
) -> Steps[list[CleanupPlan]]:
    """Plans for the threads that have rows, touching nothing."""
    plans: list[CleanupPlan] = []

    def one(batch: Sequence[str]) -> Steps[None]:
        nonlocal plans
        scope = "_read_scope"
        plans += yield from _attempt(
            saver, scope, batch, lambda: plan_batch(saver, batch, planned, listing)
        )

    yield from _each_batch(saver, thread_ids, one)
    return plans


def run_threads(
    saver: Any, run_ids: Sequence[str], thread_ids: Sequence[str] | None
) -> Steps[list[str]]:
    """The threads to look at for rows of the runs."""
    if not run_ids:
        return []
    if thread_ids is not None:
        return list(thread_ids)
    found = yield Call("_list_run_threads", (tuple(run_ids),))
    return list(dict.fromkeys(str(thread_id) for thread_id in found))


def delete_for_runs(
    saver: Any,
    run_ids: Sequence[str],
    thread_ids: Sequence[str] | None,
    squashing: bool,
    on_plan: OnPlan,
) -> Steps[None]:
    """Plan and sweep the rows of the runs, batch by batch."""
    threads = yield from run_threads(saver, run_ids, thread_ids)
    planned = runs_planner(saver, run_ids, squashing)
    yield from _clean(saver, threads, planned, on_plan, listing=ROWS_WITH_RUNS)


def plan_delete_for_runs(
    saver: Any, run_ids: Sequence[str], thread_ids: Sequence[str] | None, squashing: bool
) -> Steps[list[CleanupPlan]]:
    """Plans of a run deletion, touching nothing."""
    threads = yield from run_threads(saver, run_ids, thread_ids)
    planned = runs_planner(saver, run_ids, squashing)
    return (yield from plan(saver, threads, planned, ROWS_WITH_RUNS))


def copy_thread(
    saver: Any, source: str, target: str, checkpoint_id: str | None, squashing: bool
) -> Steps[None]:
    """Copy a thread, or what one of its checkpoints needs, all or nothing."""

    def body() -> Steps[None]:
        return copy_rows(saver, source, target, checkpoint_id, squashing)

    yield from _attempt(saver, "_cleanup_scope", (source, target), body)


def copy_rows(
    saver: Any, source: str, target: str, checkpoint_id: str | None, squashing: bool = False
) -> Steps[None]:
    """The body of `copy_thread`, for a scope that is open."""
    rows = yield from rows_of(saver, [source, target])
    if rows[target]:
        raise TargetThreadExistsError(target)
    if not rows[source]:
        raise ThreadNotFoundError(source)
    if checkpoint_id is None:
        # Every row is a root, so there is nothing to squash.
        yield Call("_copy_checkpoint_rows", (source, target, rows[source]))
        return
    selected, plan = yield from _select(
        saver, source, target, rows[source], checkpoint_id, squashing
    )
    yield Call("_copy_checkpoint_rows", (source, target, selected))
    if plan.bases:
        yield from _squash_copy(saver, plan)


def keepset(saver: Any, config: Any, channels: Sequence[str]) -> Steps[set[str]]:
    """Ids of a checkpoint and of every ancestor that its channels are rebuilt from."""
    conf = config["configurable"]
    thread_id, ns = str(conf["thread_id"]), conf.get("checkpoint_ns", "")
    checkpoint_id = conf.get("checkpoint_id")
    if not checkpoint_id:
        newest = yield Call("get_tuple", (config,))
        if newest is None:
            return set()
        checkpoint_id = newest.checkpoint["id"]

    def body() -> Steps[set[str]]:
        rows = yield from rows_of(saver, [thread_id])
        view = planner.group_rows(rows[thread_id]).get(ns)
        if view is None or checkpoint_id not in view:
            return set()
        yield from answer_one(
            saver, thread_id, view.need([checkpoint_id], "metadata", "checkpoint")
        )
        replayed = frozenset(channels) - (view[checkpoint_id].populated or frozenset())
        marks = yield from answer_one(saver, thread_id, mark(view, {checkpoint_id: replayed}))
        return {checkpoint_id, *marks.needed}

    return (yield from _attempt(saver, "_read_scope", (thread_id,), body))


def _squash_copy(saver: Any, plan: CleanupPlan) -> Steps[None]:
    try:
        yield from _carry_out([plan])
    except BaseException:
        # It held nothing before. A scope of the saver's own undoes the copy itself, and may hold
        # the lock that its `delete_thread` takes.
        scopes = ("_cleanup_scope", "_acleanup_scope")
        if not any(map(saver._writes_hook, scopes)):
            with suppress(NotImplementedError):
                yield Call("delete_thread", (plan.thread_id,))
        raise


def _carry_out(plans: Sequence[CleanupPlan]) -> Steps[None]:
    if squashed := [p for p in plans if p.bases]:
        yield Call("_squash_checkpoint_rows", (squashed,))
    yield Call("_delete_checkpoint_rows", (plans,))


def _select(
    saver: Any,
    source: str,
    target: str,
    rows: list[CheckpointRow],
    checkpoint_id: str,
    squashing: bool,
) -> Steps[tuple[list[CheckpointRow], CleanupPlan]]:
    views = planner.group_rows(rows)
    if checkpoint_id not in views.get("", ()):
        raise CheckpointNotFoundError(source, checkpoint_id)
    try:
        selected, plan = yield from answer_one(
            saver,
            source,
            select_for_copy(views, checkpoint_id, traits_of(saver), target, squashing=squashing),
        )
    except UnknownChannelsError:
        raise UnknownDeltaChannelsError([source]) from None
    if plan.severed:
        raise SeveredHistoryError({source: list(map(str, plan.severed))})
    return selected, plan


def _clean(
    saver: Any,
    thread_ids: Sequence[str],
    planned: Planner,
    on_plan: OnPlan,
    *,
    refuse: bool = False,
    listing: str = ALL_ROWS,
) -> Steps[None]:
    left: list[CleanupPlan] = []
    failed: dict[str, Exception] = {}

    def body(batch: Sequence[str]) -> Steps[list[CleanupPlan]]:
        plans = yield from plan_batch(saver, batch, planned, listing)
        if refuse:
            # Catches a thread that began to use a delta channel after the first look.
            _refuse_delta_threads(plans)
        if changing := [p for p in plans if p.changes]:
            yield from _carry_out(changing)
        return plans

    def clean(batch: Sequence[str]) -> Steps[None]:
        failure = None
        plans: list[CleanupPlan] = []
        try:
            plans = yield from _attempt(saver, "_cleanup_scope", batch, lambda: body(batch))
        except Exception as error:
            if not saver._retry_after(error):
                raise
            failure = error
        if failure is not None and len(batch) == 1:
            failed[batch[0]] = failure
        elif failure is not None:
            for thread_id in batch:
                yield from clean((thread_id,))
        for done in plans:
            if done.left_alone:
                left.append(done)
            elif on_plan is not None:
                yield Report(on_plan, done)

    yield from _each_batch(saver, thread_ids, clean)
    _raise_for(left, failed)


def _raise_for(left: Iterable[CleanupPlan], failed: Mapping[str, Exception]) -> None:
    """Name the threads that were not cleaned, all kinds of them in one chain of causes."""
    unknown = [p.thread_id for p in left if p.left_alone == "unknown delta channels"]
    severed = {p.thread_id: list(map(str, p.severed)) for p in left if p.left_alone == "severed"}
    error: Exception | None = None
    if unknown:
        error = UnknownDeltaChannelsError(unknown)
    if severed:
        error = _caused(SeveredHistoryError(severed), error)
    if failed:
        error = _caused(CleanupFailedError(failed), error or next(iter(failed.values())))
    if error is not None:
        raise error


def _caused(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


def _attempt(
    saver: Any, scope: str, batch: Sequence[str], body: Callable[[], Steps[T]]
) -> Steps[T]:
    """Run a body in its scope, again where another transaction was in the way."""
    for _ in range(ATTEMPTS - 1):
        try:
            return (yield InScope(scope, tuple(batch), body()))  # type: ignore[no-any-return]
        except Exception as error:
            if not saver._retry_after(error):
                raise
    return (yield InScope(scope, tuple(batch), body()))  # type: ignore[no-any-return]


def _refuse_delta_threads(plans: Iterable[CleanupPlan]) -> None:
    delta = [
        p.thread_id for p in plans if p.left_alone in ("delta thread", "unknown delta channels")
    ]
    if delta:
        raise DeltaThreadRefusedError(delta)


def _each_batch(
    saver: Any, thread_ids: Sequence[str], do: Callable[[Sequence[str]], Steps[None]]
) -> Steps[None]:
    for some in _batches(saver, thread_ids):
        counts: Mapping[str, int] = {}
        if saver.CLEANUP_BATCH_ROWS is not None and len(some) > 1:
            counts = yield Call("_count_checkpoint_rows", (some,))
        for batch in _split(some, counts, saver.CLEANUP_BATCH_ROWS):
            yield from do(batch)


def _batches(saver: Any, thread_ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    size = max(1, saver.CLEANUP_BATCH_SIZE)
    for start in range(0, len(thread_ids), size):
        yield tuple(thread_ids[start : start + size])


def _split(
    thread_ids: Sequence[str], counts: Mapping[str, int], limit: int | None
) -> Iterator[tuple[str, ...]]:
    """The threads in order, parted where they come to more rows than the limit."""
    batch: list[str] = []
    rows = 0
    for thread_id in thread_ids:
        count = counts.get(thread_id, 0)
        if batch and limit is not None and rows + count > limit:
            yield tuple(batch)
            batch, rows = [], 0
        batch.append(thread_id)
        rows += count
    if batch:
        yield tuple(batch)
