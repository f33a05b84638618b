"""Plan a cleanup of one thread: roots, mark, sweep. Pure: no I/O, no clock, no saver.

Every operation is the same garbage collection; they differ in their roots, the checkpoints
that must read back exactly as before:

1. `plan_prune`: per namespace the newest rows, the head, pinned and recent rows. A subgraph
   call's namespace (a task id after ":") goes whole with the root checkpoint it started from,
   once that one is stored and not kept; a `checkpointer=True` subgraph's outlives calls.
2. `plan_delete_for_runs`: every row that is not of those runs; only rows of the runs go.
3. `_copying.select_for_copy`: one checkpoint, and what stood beside it in the other namespaces.

A kept head of a format before version 4 keeps its parent where that holds its pending sends.
In doubt a row is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from delta_mixin._view import NamespaceView
from delta_mixin.channels import UnknownChannelsError, all_delta_channels, channels_to_replay
from delta_mixin.marking import Marks, mark
from delta_mixin.model import (
    BlobKey,
    Break,
    CheckpointRow,
    CleanupPlan,
    LeftAlone,
    Operation,
    Planning,
    Reason,
    RowKey,
)

PENDING_SENDS = "__pregel_tasks"
"""Channel that checkpoint formats before 4 kept a head's sends in, at its parent."""

_UUID_EPOCH = datetime(1582, 10, 15, tzinfo=timezone.utc)


@dataclass(frozen=True)
class SaverTraits:
    """What a plan has to know of the saver.

    Attributes:
        declared: Channels the author declares to be delta.
        versioned_blobs: Whether channel values are stored apart, by version.
    """

    declared: frozenset[str] = frozenset()
    versioned_blobs: bool = False


@dataclass(frozen=True)
class PruneRules:
    """Which rows a prune keeps besides what their readers need.

    Attributes:
        keep_last: How many of the newest rows by id, per namespace.
        cutoff: Rows younger than this are kept, and rows of unknown age.
        pinned: Ids of checkpoints to keep, in any namespace.
        delta: What to do with threads that use a delta channel.
        severed: What to do with threads whose history breaks off.
    """

    keep_last: int = 1
    cutoff: datetime | None = None
    pinned: frozenset[str] = frozenset()
    delta: str = "keep_history"
    severed: str = "refuse"


@dataclass
class _Sweep:
    """A namespace on its way to a plan."""

    view: NamespaceView
    kept: dict[str, list[Reason]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    replayed: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def doomed(self) -> list[str]:
        return [i for i in self.view.ids if i not in self.kept]


def checkpoint_time(checkpoint_id: str) -> datetime | None:
    """The time inside a version 6 UUID, in UTC; `None` for any other id.

    Source: RFC 9562, section 5.6 (100 ns units since 1582-10-15).
    """
    try:
        value = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if value.version != 6:
        return None
    ticks = (value.int >> 80) << 12 | (value.int >> 64) & 0xFFF
    return _UUID_EPOCH + timedelta(microseconds=ticks // 10)


def group_rows(rows: Iterable[CheckpointRow]) -> dict[str, NamespaceView]:
    """One thread's rows as views by namespace, the root namespace first."""
    grouped: dict[str, list[CheckpointRow]] = {}
    for row in rows:
        grouped.setdefault(row.checkpoint_ns, []).append(row)
    return {ns: NamespaceView(ns, grouped[ns]) for ns in sorted(grouped)}


def plan_whole_thread(thread_id: str, views: Mapping[str, NamespaceView]) -> CleanupPlan:
    """Delete every row of the thread and everything else stored under it."""
    return CleanupPlan(
        thread_id,
        "delete",
        doomed=tuple(RowKey(ns, i) for ns, view in views.items() for i in view.ids),
        dropped_namespaces=tuple(views),
        heads=dict.fromkeys(views),
    )


def plan_prune(
    thread_id: str,
    views: Mapping[str, NamespaceView],
    rules: PruneRules,
    traits: SaverTraits,
    heads: Mapping[str, str | None],
) -> Planning[CleanupPlan]:
    """Keep the roots the rules name and what their readers need; doom the rest.

    Args:
        thread_id: The thread.
        views: Its rows, from `group_rows`.
        rules: What to keep.
        traits: What is known of the saver.
        heads: By namespace, the id that `get_tuple` without an id returns, where it may
            differ from the newest.
    """
    if rules.delta in ("refuse", "skip"):
        try:
            found = yield from _delta_channels(views, traits)
        except UnknownChannelsError:
            return _left_alone(thread_id, "prune", views, "unknown delta channels")
        if found:
            return _left_alone(thread_id, "prune", views, "delta thread", delta_channels=found)
    sweeps: list[_Sweep] = []
    dropped: list[str] = []
    kept_roots: Collection[str] = ()
    for ns, view in views.items():
        roots = _prune_roots(view, rules, heads.get(ns))
        if ":" in ns and (yield from _call_ended(views, view, kept_roots)):
            kinds = {reason.kind for reasons in roots.values() for reason in reasons}
            if not kinds & {"pinned", "recent", "unknown age"}:
                dropped.append(ns)
                sweeps.append(_Sweep(view))
                continue
        sweep = _Sweep(view, roots)
        try:
            yield from _keep_what_readers_need(sweep, list(reversed(roots)), traits)
        except UnknownChannelsError:
            return _left_alone(thread_id, "prune", views, "unknown delta channels")
        sweeps.append(sweep)
        if ns == "":
            kept_roots = sweep.kept.keys()
    return (
        yield from _finish(
            thread_id,
            "prune",
            sweeps,
            traits,
            heads,
            dropped=tuple(dropped),
            ignore_breaks=rules.severed == "ignore",
        )
    )


def plan_delete_for_runs(
    thread_id: str,
    views: Mapping[str, NamespaceView],
    run_ids: Collection[str],
    traits: SaverTraits,
    heads: Mapping[str, str | None],
) -> Planning[CleanupPlan]:
    """Doom the rows of the runs that no other row's reader needs.

    Args:
        thread_id: The thread.
        views: Its rows, from `group_rows`.
        run_ids: Ids as metadata `run_id` holds them, spelt as `str`.
        traits: What is known of the saver.
        heads: As for `plan_prune`.
    """
    sweeps = []
    for view in views.values():
        yield from view.need(view.ids, "metadata")
        of_runs = {r.checkpoint_id for r in view if _run_of(r) in run_ids}
        survivors = [i for i in view.ids if i not in of_runs]
        sweep = _Sweep(view, {i: [Reason("survivor")] for i in survivors})
        affected = _descendants(view, of_runs) - of_runs
        try:
            yield from _keep_what_readers_need(
                sweep, [i for i in reversed(survivors) if i in affected], traits
            )
        except UnknownChannelsError:
            return _left_alone(thread_id, "delete_for_runs", views, "unknown delta channels")
        sweeps.append(sweep)
    return (yield from _finish(thread_id, "delete_for_runs", sweeps, traits, heads))


def _prune_roots(
    view: NamespaceView, rules: PruneRules, head: str | None
) -> dict[str, list[Reason]]:
    roots: dict[str, list[Reason]] = {}
    ids = view.ids
    latest = set(ids[-rules.keep_last :])
    if rules.cutoff is None:
        # No other row of a long thread can be a root.
        ids = sorted(i for i in (*latest.union(rules.pinned), head) if i is not None and i in view)
    for row_id in dict.fromkeys(ids):
        reasons = []
        if row_id in latest:
            reasons.append(Reason("latest"))
        if row_id == head:
            reasons.append(Reason("head"))
        if row_id in rules.pinned:
            reasons.append(Reason("pinned"))
        if rules.cutoff is not None:
            born = checkpoint_time(row_id)
            if born is None:
                reasons.append(Reason("unknown age"))
            elif born > rules.cutoff:
                reasons.append(Reason("recent"))
        if reasons:
            roots[row_id] = reasons
    return roots


def _root_of(row: CheckpointRow) -> str | None:
    parents = (row.metadata or {}).get("parents")
    return parents.get("") if isinstance(parents, Mapping) else None


def _run_of(row: CheckpointRow) -> str | None:
    run_id = (row.metadata or {}).get("run_id")
    return None if run_id is None else str(run_id)


def _call_ended(
    views: Mapping[str, NamespaceView], call: NamespaceView, kept_roots: Collection[str]
) -> Planning[bool]:
    # A run saves in the background, so a call can be stored before its root checkpoint is.
    yield from call.need([call.newest.checkpoint_id], "metadata")
    root = _root_of(call.newest)
    return "" in views and root in views[""] and root not in kept_roots


def _keep_what_readers_need(sweep: _Sweep, roots: list[str], traits: SaverTraits) -> Planning[None]:
    view = sweep.view
    # A row without a parent has nothing above it to need.
    roots = [i for i in roots if view[i].parent_id is not None]
    sweep.replayed = yield from channels_to_replay(view, roots, traits.declared)
    sweep.marks = yield from mark(view, sweep.replayed)
    needed = dict(sweep.marks.needed)
    old_format = {i: p for i in roots if (view[i].v or 0) < 4 and (p := view[i].parent_id) in view}
    yield from view.need(filter(None, old_format.values()), "writes")
    for root, parent in old_format.items():
        if parent is not None and PENDING_SENDS in (view[parent].write_channels or ()):
            needed.setdefault(parent, []).append(Reason("pending sends", root=root))
    for row_id, reasons in needed.items():
        sweep.kept.setdefault(row_id, []).extend(reasons)


def _descendants(view: NamespaceView, origins: Collection[str]) -> set[str]:
    """Rows whose chain of parents passes one of `origins`, and `origins` themselves."""
    children: dict[str, list[str]] = {}
    for row in view:
        if row.parent_id is not None:
            children.setdefault(row.parent_id, []).append(row.checkpoint_id)
    found: set[str] = set()
    todo = list(origins)
    while todo:
        row_id = todo.pop()
        if row_id not in found:
            found.add(row_id)
            todo += children.get(row_id, ())
    return found


def _delta_channels(
    views: Mapping[str, NamespaceView], traits: SaverTraits
) -> Planning[dict[str, frozenset[str]]]:
    found = {}
    for ns, view in views.items():
        channels = yield from all_delta_channels(view, traits.declared)
        if channels:
            found[ns] = channels
    return found


def _left_alone(
    thread_id: str,
    operation: Operation,
    views: Mapping[str, NamespaceView],
    why: LeftAlone,
    delta_channels: Mapping[str, frozenset[str]] | None = None,
    severed: Iterable[Break] = (),
) -> CleanupPlan:
    return CleanupPlan(
        thread_id,
        operation,
        kept={
            RowKey(ns, i): (Reason("left alone"),) for ns, view in views.items() for i in view.ids
        },
        heads={ns: view.newest.checkpoint_id for ns, view in views.items()},
        delta_channels=delta_channels or {},
        severed=tuple(severed),
        left_alone=why,
    )


def _finish(
    thread_id: str,
    operation: Operation,
    sweeps: list[_Sweep],
    traits: SaverTraits,
    heads: Mapping[str, str | None],
    *,
    dropped: tuple[str, ...] = (),
    ignore_breaks: bool = False,
) -> Planning[CleanupPlan]:
    delta_channels = {
        s.view.checkpoint_ns: channels
        for s in sweeps
        if (channels := frozenset().union(*s.replayed.values()))
    }
    severed = [b for s in sweeps for b in s.marks.severed]
    if severed and not ignore_breaks:
        views = {s.view.checkpoint_ns: s.view for s in sweeps}
        return _left_alone(thread_id, operation, views, "severed", delta_channels, severed)
    dead_blobs: list[BlobKey] = []
    if traits.versioned_blobs:
        for sweep in sweeps:
            dead_blobs += yield from _dead_blobs(sweep)
    return CleanupPlan(
        thread_id,
        operation,
        kept={
            RowKey(s.view.checkpoint_ns, i): tuple(s.kept[i])
            for s in sweeps
            for i in sorted(s.kept)
        },
        doomed=tuple(RowKey(s.view.checkpoint_ns, i) for s in sweeps for i in s.doomed),
        detached=tuple(
            RowKey(s.view.checkpoint_ns, i) for s in sweeps for i in _detached(s, operation)
        ),
        dead_blobs=tuple(dead_blobs),
        dropped_namespaces=dropped,
        heads={s.view.checkpoint_ns: _new_head(s, heads) for s in sweeps},
        delta_channels=delta_channels,
        severed=tuple(severed),
    )


def _new_head(sweep: _Sweep, heads: Mapping[str, str | None]) -> str | None:
    head = heads.get(sweep.view.checkpoint_ns)
    return head if head in sweep.kept else max(sweep.kept, default=None)


def _detached(sweep: _Sweep, operation: Operation) -> Iterator[str]:
    view = sweep.view
    broken = {b.child.checkpoint_id for b in sweep.marks.severed}
    for row_id in sorted(sweep.kept):
        parent = view[row_id].parent_id
        if parent is None or parent in sweep.kept:
            continue
        # A pointer to nothing is tidied by a prune where no reader needs it, as upstream does.
        if parent in view or (operation == "prune" and row_id not in broken):
            yield row_id


def _dead_blobs(sweep: _Sweep) -> Planning[list[BlobKey]]:
    doomed = sweep.doomed
    if not doomed:
        return []
    view = sweep.view
    yield from view.need(view.ids, "checkpoint")
    referenced = {pair for i in sweep.kept for pair in (view[i].channel_versions or {}).items()}
    freed = {pair for i in doomed for pair in (view[i].channel_versions or {}).items()}
    return [
        BlobKey(view.checkpoint_ns, channel, version)
        for channel, version in sorted(freed - referenced, key=lambda p: (p[0], str(p[1])))
    ]
