"""The body of compaction: plan, resolve, store, read back, sweep; one thread after the other.

Hooks that plan and sweep run in a scope. What reads and rewrites goes through public methods;
it shares the scope of both where the saver's readers work there (`READS_IN_SCOPE`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from delta_mixin import _steps, planner
from delta_mixin._compacting import Wanted, by_namespace, plan_roots, rows_to_rewrite, sharing_rows
from delta_mixin._copying import copy_roots
from delta_mixin._drive import Call, InScope, Report, Steps
from delta_mixin._resolving import GraphChannels, Replayer, UnresolvedError, abbreviated, same
from delta_mixin._rewriting import fault_of
from delta_mixin.channels import without_counters
from delta_mixin.errors import (
    CompactionError,
    DeltaMixinError,
    RewriteUnsafeError,
    RowsUnreadError,
)
from delta_mixin.model import CleanupPlan, Planning, RowKey

CHECKPOINT_FORMAT = 4
"""The format that hosts with delta channels write; readers change older ones on the way."""


@dataclass(frozen=True)
class LeftChannel:
    """A channel that still needs its history, and why.

    Attributes:
        checkpoint_ns: Namespace of the checkpoint whose reader needs it.
        checkpoint_id: Id of that checkpoint.
        channel: The channel.
        why: A clause.
    """

    checkpoint_ns: str
    checkpoint_id: str
    channel: str
    why: str

    def __str__(self) -> str:
        where = f" in namespace {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        return f"channel {self.channel!r} of checkpoint {self.checkpoint_id}{where}: {self.why}"


@dataclass(frozen=True)
class CompactionReport:
    """What a compaction did to one thread.

    Attributes:
        thread_id: The thread.
        compacted: By checkpoint, the channels whose value it holds now.
        left: Channels that go on being rebuilt from older checkpoints.
        rows_before: How many checkpoints the thread had.
        rows_after: How many it has.
        plan: The cleanup that followed, or `None` if none was asked for.
    """

    thread_id: str
    compacted: Mapping[RowKey, tuple[str, ...]]
    left: tuple[LeftChannel, ...]
    rows_before: int
    rows_after: int
    plan: CleanupPlan | None = None


@dataclass
class _Job:
    """A thread on its way: what is planned, and what came of it."""

    thread_id: str
    plan: CleanupPlan
    wanted: Wanted
    sharing: dict[tuple[RowKey, str], list[str]]
    rewrites: list[_Rewrite] = field(default_factory=list)
    left: list[LeftChannel] = field(default_factory=list)

    def leave(self, key: RowKey, channel: str, why: str) -> None:
        self.left.append(LeftChannel(*key, channel, why))


@dataclass
class _Rewrite:
    """A checkpoint and the values it is to hold."""

    key: RowKey
    config: Any
    saved: Any
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        return without_counters(self.saved.metadata, self.values)


class _StoppedError(Exception):
    """A thread that must not be compacted; the message says why."""


def compact(
    saver: Any,
    known: GraphChannels,
    thread_ids: Sequence[str],
    planned: _steps.Planner,
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
        except _StoppedError as stop:
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
        rows = yield from _steps._rows_of(saver, [source])
        chosen = yield from _steps._answer_one(
            saver, source, copy_roots(planner.group_rows(rows[source]), checkpoint_id)
        )
        roots.update(RowKey(ns, i) for ns, ids in chosen.items() for i in ids)

    def planned(thread_id: str, views: _steps.Views, heads: Mapping[str, str | None]) -> Any:
        return plan_roots(thread_id, views, roots, _steps.traits_of(saver), heads)

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
    except _StoppedError as stop:
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
    saver: Any, known: GraphChannels, thread_id: str, planned: _steps.Planner, execute: bool
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
    yield from _store(saver, known, job, undo=True)
    swept = None
    if execute:
        swept = yield from _steps._attempt(
            saver, "_cleanup_scope", (thread_id,), lambda: _sweep(saver, thread_id, planned)
        )
    return _report(job, swept)


def _in_scope(
    saver: Any, known: GraphChannels, thread_id: str, planned: _steps.Planner, execute: bool
) -> Steps[CompactionReport | None]:
    job = yield from _plan(saver, thread_id, planned, execute)
    if job is None or job.plan.left_alone:
        return None if job is None else _report(job, job.plan)
    yield from _store(saver, known, job, undo=False)
    swept = None
    if execute:
        swept = yield from _sweep(saver, thread_id, planned)
    return _report(job, swept)


def _knowing(planned: _steps.Planner, known: GraphChannels) -> _steps.Planner:
    """The planner, told by the graph which channels no reader rebuilds."""

    def told(
        thread_id: str, views: _steps.Views, heads: Mapping[str, str | None]
    ) -> Planning[CleanupPlan]:
        for ns, view in views.items():
            view.fleeting = known.fleeting(ns)
        return (yield from planned(thread_id, views, heads))

    return told


def _plan(saver: Any, thread_id: str, planned: _steps.Planner, execute: bool) -> Steps[_Job | None]:
    rows = yield from _steps._rows_of(saver, [thread_id])
    if not rows[thread_id]:
        return None
    views = planner.group_rows(rows[thread_id])
    heads = yield from _steps._heads(saver, thread_id, views)

    def planning() -> Planning[_Job]:
        plan = yield from planned(thread_id, views, heads)
        job = _Job(thread_id, plan, {}, {})
        if plan.left_alone:
            return job
        declared = _steps.traits_of(saver).declared
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

    return (yield from _steps._answer_one(saver, thread_id, planning()))


def _store(saver: Any, known: GraphChannels, job: _Job, *, undo: bool) -> Steps[None]:
    """Resolve all values, then store and read back.

    Args:
        saver: The saver.
        known: The graph's channels.
        job: The thread.
        undo: Whether nothing else takes back what a failure has left half done.
    """
    for key, channels in job.wanted.items():
        yield from _resolve(saver, known, job, key, channels)
    done: list[_Rewrite] = []
    try:
        for rewrite in job.rewrites:
            done.append(rewrite)
            yield Call("_rewrite_checkpoint", (rewrite.config, rewrite.values, rewrite.metadata))
            yield from _read_back(saver, job, rewrite)
    except (_StoppedError, CompactionError, RewriteUnsafeError) as error:
        if not isinstance(error, _StoppedError):
            done.pop()  # the hook has seen to that row itself
        for rewrite in reversed(done) if undo else ():
            nothing = dict.fromkeys(rewrite.values)
            yield Call("_rewrite_checkpoint", (rewrite.config, nothing, rewrite.saved.metadata))
        raise


def _resolve(
    saver: Any, known: GraphChannels, job: _Job, key: RowKey, channels: frozenset[str]
) -> Steps[None]:
    config = saver._checkpoint_config(job.thread_id, *key)
    saved = yield Call("get_tuple", (config,))
    if saved is None:
        raise RowsUnreadError(f"checkpoint {key.checkpoint_id} of {job.thread_id!r} is gone")
    rewrite = _Rewrite(key, config, saved)
    replayers: dict[str, Replayer] = {}
    for channel in sorted(channels):
        if (format_ := saved.checkpoint.get("v", 1)) < CHECKPOINT_FORMAT:
            job.leave(key, channel, f"the checkpoint is of format {format_}")
        elif channel in saved.checkpoint["channel_values"]:
            job.leave(key, channel, "a None is stored, which readers take differently")
        else:
            try:
                replayers[channel] = known.replayer(key.checkpoint_ns, channel)
            except UnresolvedError as unresolved:
                job.leave(key, channel, str(unresolved))
    if not replayers:
        return
    first = yield from _history(saver, config, replayers)
    second = yield from _history(saver, config, replayers)
    for channel, replayer in replayers.items():
        try:
            value = replayer.at_once(saved.checkpoint, config, first[channel])
            again = replayer.one_by_one(saved.checkpoint, config, second[channel])
            stored = replayer.stored(value)
        except UnresolvedError as unresolved:
            job.leave(key, channel, str(unresolved))
            continue
        except Exception as error:
            stop = f"its reducer raised {type(error).__name__}: {error}"
            raise _stopped(key, channel, stop) from error
        if not same(saver.serde, value, again):
            third = (yield from _history(saver, config, [channel]))[channel]
            repeated = replayer.at_once(saved.checkpoint, config, third)
            why = "writes replayed one by one do not give what they give at once"
            if not same(saver.serde, value, repeated):
                why, again = "its value changes from one resolution to the next", repeated
            why += f" ({abbreviated(value)} and {abbreviated(again)})"
            raise _stopped(
                key, channel, f"{why}; its reducer must be deterministic and batch alike"
            )
        others = job.sharing.get((key, channel), ())
        unlike = yield from _unlike(saver, job, key, replayer, value, others)
        if unlike is None:
            rewrite.values[channel] = stored
        else:
            job.leave(key, channel, f"checkpoint {unlike} shares its version but reads otherwise")
    if rewrite.values:
        job.rewrites.append(rewrite)


def _unlike(
    saver: Any, job: _Job, key: RowKey, replayer: Replayer, value: Any, others: Sequence[str]
) -> Steps[str | None]:
    """The first of the other checkpoints at which the channel has another value."""
    for checkpoint_id in others:
        config = saver._checkpoint_config(job.thread_id, key.checkpoint_ns, checkpoint_id)
        saved = yield Call("get_tuple", (config,))
        history = yield from _history(saver, config, [replayer.channel])
        try:
            if saved is not None and same(
                saver.serde,
                value,
                replayer.at_once(saved.checkpoint, config, history[replayer.channel]),
            ):
                continue
        except UnresolvedError:
            pass
        return checkpoint_id
    return None


def _history(saver: Any, config: Any, channels: Any) -> Steps[Mapping[str, Any]]:
    wanted = {"config": config, "channels": list(channels)}
    return (yield Call("get_delta_channel_history", (), wanted))  # type: ignore[no-any-return]


def _read_back(saver: Any, job: _Job, rewrite: _Rewrite) -> Steps[None]:
    found = yield Call("get_tuple", (rewrite.config,))
    # A row that shares a version with one rewritten before shows its value as well.
    shared = {c for r in job.rewrites if r.key[0] == rewrite.key[0] for c in r.values}
    checkpoint = rewrite.saved.checkpoint
    changed = {
        **checkpoint,
        "channel_values": {**checkpoint["channel_values"], **rewrite.values},
    }
    fault = fault_of(
        saver.serde, rewrite.saved, found, changed, rewrite.metadata, exact=False, shared=shared
    )
    if fault:
        channels = ", ".join(map(repr, sorted(rewrite.values)))
        raise _StoppedError(
            f"checkpoint {rewrite.key.checkpoint_id} in namespace {rewrite.key.checkpoint_ns!r}, "
            f"channels {channels}: read back after storing, {fault}"
        )


def _sweep(saver: Any, thread_id: str, planned: _steps.Planner) -> Steps[CleanupPlan | None]:
    plans = yield from _steps._plan_batch(saver, (thread_id,), planned)
    for plan in plans:
        if plan.changes:
            yield Call("_delete_checkpoint_rows", ([plan],))
        return plan
    return None


def _report(job: _Job, swept: CleanupPlan | None) -> CompactionReport:
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


def _stopped(key: RowKey, channel: str, why: str) -> _StoppedError:
    return _StoppedError(
        f"channel {channel!r} of checkpoint {key.checkpoint_id} in namespace "
        f"{key.checkpoint_ns!r}: {why}"
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
