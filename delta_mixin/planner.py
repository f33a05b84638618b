"""Plan a cleanup of one thread: roots, mark, sweep. Pure: no I/O, no clock, no saver.

Every operation is the same garbage collection; they differ in their roots, the checkpoints
that must read back exactly as before:

1. `plan_prune`: per namespace the newest rows, the head, pinned and recent rows. A subgraph
   call's namespace (a task id after ":") goes whole with the root checkpoint it started from,
   once that one is stored and not kept; a `checkpointer=True` subgraph's outlives calls.
2. `plan_delete_for_runs`: every row that is not of those runs; only rows of the runs go.
3. `_copying.select_for_copy`: one checkpoint, and what stood beside it in the other namespaces.

Base rows, which a squash has left (see `base_rows`), serve the rows below them and are roots only
where they are pinned or the newest. With `delta="squash"` what is kept for replay alone is
contracted to base rows after marking (see `contraction`).

A kept head of a format before version 4 keeps its parent where that holds its pending sends.
In doubt a row is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from delta_mixin._ids import checkpoint_time
from delta_mixin._sealing import exposed
from delta_mixin._sweeping import SaverTraits, Sweep, finish, left_alone, squash
from delta_mixin._view import NamespaceView
from delta_mixin.base_rows import CHECKPOINT_FORMAT, SQUASHED, is_base_row
from delta_mixin.channels import (
    PENDING_SENDS,
    UnknownChannelsError,
    all_delta_channels,
    channels_to_replay,
)
from delta_mixin.listing import Listing, Outline
from delta_mixin.marking import mark
from delta_mixin.model import CheckpointRow, CleanupPlan, Part, Planning, Reason, RowKey

ROOT_PARTS: tuple[Part, ...] = ("metadata", "checkpoint")

SURVIVED = (Reason("survivor"),)


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

    @property
    def keeps_heads(self) -> bool:
        """Whether only heads, and what their readers need, are kept."""
        heads_only = self.keep_last == 1 and self.cutoff is None and not self.pinned
        return heads_only and self.delta in ("keep_history", "squash")


def group_rows(rows: Iterable[CheckpointRow]) -> dict[str, NamespaceView]:
    """One thread's rows as views by namespace, the root namespace first."""
    return views_of(Listing.of(rows).outlines)


def views_of(outlines: Iterable[Outline]) -> dict[str, NamespaceView]:
    """The same of one thread's outlines.

    Raises:
        ValueError: If a namespace has two; what is in one of them would count as lost.
    """
    views: dict[str, NamespaceView] = {}
    for outline in sorted(outlines, key=attrgetter("checkpoint_ns")):
        if (ns := outline.checkpoint_ns) in views:
            raise ValueError(
                f"the listing of thread {outline.thread_id!r} has two outlines of namespace "
                f"{ns!r}: put all rows of a namespace into one"
            )
        views[ns] = NamespaceView(outline)
    return views


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
            return left_alone(thread_id, "prune", views, "unknown delta channels")
        if found:
            return left_alone(thread_id, "prune", views, "delta thread", delta_channels=found)
    sweeps: list[Sweep] = []
    dropped: list[str] = []
    kept_roots: Collection[str] = ()
    for ns, view in views.items():
        roots = yield from _prune_roots(view, rules, heads.get(ns))
        if ":" in ns and (yield from _call_ended(views, view, kept_roots)):
            kinds = {reason.kind for reasons in roots.values() for reason in reasons}
            if not kinds & {"pinned", "recent", "unknown age"}:
                dropped.append(ns)
                sweeps.append(Sweep(view))
                continue
        sweep = Sweep(view, roots)
        try:
            yield from keep_what_readers_need(sweep, list(reversed(roots)), traits)
        except UnknownChannelsError:
            return left_alone(thread_id, "prune", views, "unknown delta channels")
        if rules.delta == "squash":
            yield from squash(sweep, traits)
        sweeps.append(sweep)
        if ns == "":
            kept_roots = sweep.kept.keys()
    return (
        yield from finish(
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
    *,
    squashing: bool = False,
) -> Planning[CleanupPlan]:
    """Doom the rows of the runs that no other row's reader needs.

    Args:
        thread_id: The thread.
        views: Its rows, from `group_rows`.
        run_ids: Ids as metadata `run_id` holds them, spelt as `str`.
        traits: What is known of the saver.
        heads: As for `plan_prune`.
        squashing: Replace the rows of the runs that readers need by base rows.
    """
    sweeps = []
    for view in views.values():
        unknown = [i for i in view.ids if i not in view.runs]
        yield from view.need(unknown, "metadata")
        of_runs = {i for i, run_id in view.runs.items() if run_id in run_ids}
        of_runs.update(i for i in unknown if _run_of(view[i]) in run_ids)
        bases = {i for i in unknown if is_base_row(view[i].metadata)} - of_runs
        survivors = [i for i in view.ids if i not in of_runs and i not in bases]
        standing = _ancestors(view, survivors) if bases else set()
        # Base rows serve the rows that stand on them. One on which none does any more stays, as it
        # is not of the runs, but for one that a squash has left which was cut off.
        parents = set(view.parents.values())
        survivors += [i for i in bases - standing if i in parents or not _is_torso(view, i)]
        sweep = Sweep(view, dict.fromkeys(survivors, SURVIVED))
        affected = _descendants(view, of_runs | (bases if squashing else set())) - of_runs
        roots = [i for i in sorted(survivors, reverse=True) if i in affected]
        roots = yield from exposed(view, roots, traits)
        try:
            yield from keep_what_readers_need(sweep, roots, traits)
        except UnknownChannelsError:
            return left_alone(thread_id, "delete_for_runs", views, "unknown delta channels")
        for row_id in bases & standing:
            sweep.kept.setdefault(row_id, SURVIVED)
        if squashing and of_runs:
            yield from squash(sweep, traits, must_go=of_runs)
        sweeps.append(sweep)
    return (yield from finish(thread_id, "delete_for_runs", sweeps, traits, heads))


def _prune_roots(
    view: NamespaceView, rules: PruneRules, head: str | None
) -> Planning[dict[str, Sequence[Reason]]]:
    roots: dict[str, Sequence[Reason]] = {}
    latest = yield from _latest(view, rules.keep_last)
    ids = view.ids
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
    by_age = [i for i, rs in roots.items() if {r.kind for r in rs} <= {"recent", "unknown age"}]
    for base_id in (yield from _base_rows(view, by_age)):
        del roots[base_id]
    return roots


def _latest(view: NamespaceView, keep_last: int) -> Planning[set[str]]:
    """The newest rows, base rows not counted; the newest of all is one in any case."""
    *older, newest = view.ids
    latest = {newest}
    while older and len(latest) < keep_last:
        missing = keep_last - len(latest)
        some, older = older[-missing:], older[:-missing]
        latest.update(some)
        latest -= yield from _base_rows(view, some)
    return latest


def _base_rows(view: NamespaceView, ids: Sequence[str]) -> Planning[set[str]]:
    """Which of these rows, to be kept otherwise, are base rows."""
    # What readers of a root with a parent need of it is read along.
    yield from view.need([i for i in ids if view.parents[i] is not None], *ROOT_PARTS)
    yield from view.need(ids, "metadata")
    return {i for i in ids if is_base_row(view[i].metadata)}


def root_of(row: CheckpointRow) -> str | None:
    """Id of the root checkpoint that a subgraph's row belongs to, as its metadata tells."""
    parents = (row.metadata or {}).get("parents")
    return parents.get("") if isinstance(parents, Mapping) else None


def _run_of(row: CheckpointRow) -> str | None:
    run_id = (row.metadata or {}).get("run_id")
    return None if run_id is None else str(run_id)


def _is_torso(view: NamespaceView, base_id: str) -> bool:
    """Whether a row that a base row stands for is still there."""
    return (view[base_id].metadata or {}).get(SQUASHED) in view


def _call_ended(
    views: Mapping[str, NamespaceView], call: NamespaceView, kept_roots: Collection[str]
) -> Planning[bool]:
    # A run saves in the background, so a call can be stored before its root checkpoint is.
    yield from call.need([call.newest.checkpoint_id], "metadata")
    root = root_of(call.newest)
    return "" in views and root in views[""] and root not in kept_roots


def keep_what_readers_need(sweep: Sweep, roots: list[str], traits: SaverTraits) -> Planning[None]:
    """Add to what a sweep keeps the rows that readers of these roots pass, nearest root first."""
    view = sweep.view
    # A row without a parent has nothing above it to need.
    roots = [i for i in roots if view.parents[i] is not None]
    sweep.replayed = yield from channels_to_replay(view, roots, traits.declared)
    sweep.marks = yield from mark(view, sweep.replayed)
    needed = dict(sweep.marks.needed)
    old = (i for i in roots if (view[i].v or 0) < CHECKPOINT_FORMAT)
    old_format = {i: p for i in old if (p := view.parents[i]) in view}
    yield from view.need(filter(None, old_format.values()), "writes")
    for root, parent in old_format.items():
        if parent is not None and PENDING_SENDS in (view[parent].write_channels or ()):
            needed.setdefault(parent, []).append(Reason("pending sends", root=root))
    for row_id, reasons in needed.items():
        sweep.kept[row_id] = (*sweep.kept.get(row_id, ()), *reasons)


def _descendants(view: NamespaceView, origins: Collection[str]) -> set[str]:
    """Rows whose chain of parents passes one of `origins`, and `origins` themselves."""
    found: set[str] = set()
    todo = list(origins)
    while todo:
        row_id = todo.pop()
        if row_id not in found:
            found.add(row_id)
            todo += view.children.get(row_id, ())
    return found


def _ancestors(view: NamespaceView, ids: Iterable[str]) -> set[str]:
    """The stored ancestors of these rows."""
    found: set[str] = set()
    for row_id in ids:
        parent = view.parents[row_id]
        while parent in view.parents and parent not in found:
            found.add(parent)
            parent = view.parents[parent]
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
