"""The body of compaction: plan, resolve, store, read back, sweep; one thread after the other.

Hooks that plan and sweep run in a scope. What reads and rewrites goes through public methods;
it shares the scope of both where the saver's readers work there (`READS_IN_SCOPE`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from delta_mixin import _steps, planner
from delta_mixin._compacting import plan_roots, rows_to_rewrite, sharing_rows
from delta_mixin._compacting_values import (
    CompactionReport,
    Job,
    StoppedError,
    store_values,
)
from delta_mixin._copying import copy_roots
from delta_mixin._drive import Call, InScope, Report, Steps
from delta_mixin._planning_steps import (
    Planner,
    Views,
    answer_one,
    heads_of,
    plan_batch,
    rows_of,
    traits_of,
)
from delta_mixin._resolving import GraphChannels
from delta_mixin.errors import (
    CompactionError,
    DeltaMixinError,
    RowsUnreadError,
)
from delta_mixin.model import CleanupPlan, Planning, RowKey, by_namespace


def compact(
    saver: Any,
    known: GraphChannels,
    thread_ids: Sequence[str],
    planned: Planner,
    execute: bool,
    on_report: Callable[[CompactionReport], object] | None,
) -> Steps[list[CompactionReport]]:
    """Compact the threads as planned, and sweep them if `execute`."""
    planned = _knowing(planned, known)
    reports: list[CompactionReport] = []
    left_alone: list[CleanupPlan] = []
    stopped: dict[str, str] = {}
    failed: dict[str, Exception] = {}
    for thread_id in thread_ids:
        report = None
        try:
            report = yield from _one_thread(saver, known, thread_id, planned, execute)
        except StoppedError as stop:
            stopped[thread_id] = str(stop)
        except CompactionError as stop:
            stopped.update(stop.failures)
        except Exception as error:
            if not saver._retry_after(error):
                raise
            failed[thread_id] = error
        if report is None:
            continue
        if report.plan is not None and report.plan.left_alone:
            left_alone.append(report.plan)
            continue
        reports.append(report)
        if on_report is not None:
            yield Report(on_report, report)
    _raise_for(left_alone, failed, stopped)
    return reports


def delete_for_runs(
    saver: Any,
    known: GraphChannels,
    run_ids: Sequence[str],
    thread_ids: Sequence[str] | None,
    on_report: Callable[[CompactionReport], object] | None,
) -> Steps[list[CompactionReport]]:
    """Compact what survives the runs, then delete all their rows."""
    threads = yield from _steps.run_threads(saver, run_ids, thread_ids)
    planned = _steps.runs_planner(saver, run_ids, squashing=False)
    return (yield from compact(saver, known, threads, planned, True, on_report))


def copy_thread(
    saver: Any, known: GraphChannels, source: str, target: str, checkpoint_id: str
) -> Steps[CompactionReport]:
    """Copy what a checkpoint needs, compact the copy and keep its roots only."""
    roots: set[RowKey] = set()

    def copy() -> Steps[None]:
        yield from _steps.copy_rows(saver, source, target, checkpoint_id)
        rows = yield from rows_of(saver, [source])
        chosen = yield from answer_one(
            saver, source, copy_roots(planner.group_rows(rows[source]), checkpoint_id)
        )
        roots.update(RowKey(ns, i) for ns, ids in chosen.items() for i in ids)

    def planned(thread_id: str, views: Views, heads: Mapping[str, str | None]) -> Any:
        return plan_roots(thread_id, views, roots, traits_of(saver), heads)

    kept_only = _knowing(planned, known)

    def whole() -> Steps[CompactionReport | None]:
        yield from copy()
        return (yield from _in_scope(saver, known, target, kept_only, True))

    try:
        if saver.READS_IN_SCOPE:
            report = yield from _steps._attempt(saver, "_cleanup_scope", (source, target), whole)
        else:
            yield from _steps._attempt(saver, "_cleanup_scope", (source, target), copy)
            report = yield from _undone_on_error(
                saver, target, _one_thread(saver, known, target, kept_only, True)
            )
    except StoppedError as stop:
        raise CompactionError({target: str(stop)}) from stop
    if report is None:
        raise RowsUnreadError(f"the copy {target!r} of thread {source!r} is gone")
    return report


def _undone_on_error(saver: Any, thread_id: str, steps: Steps[Any]) -> Steps[Any]:
    """The steps; an error removes the thread, which held nothing before."""
    try:
        return (yield from steps)
    except BaseException:
        with suppress(NotImplementedError):
            yield Call("delete_thread", (thread_id,))
        raise


def _one_thread(
    saver: Any, known: GraphChannels, thread_id: str, planned: Planner, execute: bool
) -> Steps[CompactionReport | None]:
    if saver.READS_IN_SCOPE:
        return (
            yield from _steps._attempt(
                saver,
                "_cleanup_scope",
                (thread_id,),
                lambda: _in_scope(saver, known, thread_id, planned, execute),
            )
        )
    job = yield InScope("_read_scope", (thread_id,), _plan(saver, thread_id, planned, execute))
    if job is None or job.plan.left_alone:
        return None if job is None else _report(job, job.plan)
    yield from store_values(saver, known, job, undo=True)
    swept = None
    if execute:
        swept = yield from _steps._attempt(
            saver, "_cleanup_scope", (thread_id,), lambda: _sweep(saver, thread_id, planned)
        )
    return _report(job, swept)


def _in_scope(
    saver: Any, known: GraphChannels, thread_id: str, planned: Planner, execute: bool
) -> Steps[CompactionReport | None]:
    job = yield from _plan(saver, thread_id, planned, execute)
    if job is None or job.plan.left_alone:
        return None if job is None else _report(job, job.plan)
    yield from store_values(saver, known, job, undo=False)
    swept = None
    if execute:
        swept = yield from _sweep(saver, thread_id, planned)
    return _report(job, swept)


def _knowing(planned: Planner, known: GraphChannels) -> Planner:
    """The planner, told by the graph which channels no reader rebuilds."""

    def told(
        thread_id: str, views: Views, heads: Mapping[str, str | None]
    ) -> Planning[CleanupPlan]:
        for ns, view in views.items():
            view.fleeting = known.fleeting(ns)
        return (yield from planned(thread_id, views, heads))

    return told


def _plan(saver: Any, thread_id: str, planned: Planner, execute: bool) -> Steps[Job | None]:
    rows = yield from rows_of(saver, [thread_id])
    if not rows[thread_id]:
        return None
    views = planner.group_rows(rows[thread_id])
    heads = yield from heads_of(saver, thread_id, views)

    def planning() -> Planning[Job]:
        plan = yield from planned(thread_id, views, heads)
        job = Job(thread_id, plan, {}, {})
        if plan.left_alone:
            return job
        declared = traits_of(saver).declared
        job.wanted = yield from rows_to_rewrite(views, plan, declared)
        if not saver.VALUES_BY_VERSION:
            return job
        kept = by_namespace(plan.kept)
        for ns, ids in by_namespace(job.wanted).items():
            wanted = {i: job.wanted[RowKey(ns, i)] for i in ids}
            pool = sorted(kept[ns]) if execute else views[ns].ids
            found = yield from sharing_rows(views[ns], wanted, pool)
            job.sharing |= {(RowKey(ns, i), c): others for (i, c), others in found.items()}
        return job

    return (yield from answer_one(saver, thread_id, planning()))


def _sweep(saver: Any, thread_id: str, planned: Planner) -> Steps[CleanupPlan | None]:
    plans = yield from plan_batch(saver, (thread_id,), planned)
    for plan in plans:
        if plan.changes:
            yield Call("_delete_checkpoint_rows", ([plan],))
        return plan
    return None


def _report(job: Job, swept: CleanupPlan | None) -> CompactionReport:
    before = len(job.plan.kept) + len(job.plan.doomed)
    # A subgraph call can go after all, with the last row that was needed of its root checkpoint.
    there = job.plan.kept if swept is None else swept.kept
    return CompactionReport(
        job.thread_id,
        compacted={r.key: tuple(r.values) for r in job.rewrites if r.key in there},
        left=tuple(x for x in job.left if RowKey(x.checkpoint_ns, x.checkpoint_id) in there),
        rows_before=before,
        rows_after=before if swept is None else len(swept.kept),
        plan=swept,
    )


def _raise_for(
    left: Sequence[CleanupPlan], failed: Mapping[str, Exception], stopped: Mapping[str, str]
) -> None:
    error: DeltaMixinError | None = None
    try:
        _steps._raise_for(left, failed)
    except DeltaMixinError as named:
        error = named
    if stopped:
        raise CompactionError(stopped) from error
    if error is not None:
        raise error
