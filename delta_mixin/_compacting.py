"""What to compact: the roots of a plan whose readers walk through rows kept only for that.

1. A root is rewritten for a channel if its own reader rebuilds it and the walk gets to a row kept
   only for replay. Populated there, it ends the walks of all roots below it.
2. Roots are taken from the top of each chain down. Where a root never wrote a channel that one
   below it did, the walk goes through and the lower one is rewritten.
3. In stores that keep values by version, rewriting a row populates every row of its namespace
   that has the channel at the same version. These must read the same: they do if both walks
   first meet the same row with a write or a value; else their values have to be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from delta_mixin._sweeping import SaverTraits, Sweep, finish, left_alone
from delta_mixin._view import NamespaceView
from delta_mixin.channels import UnknownChannelsError, channels_to_replay
from delta_mixin.model import CleanupPlan, Planning, Reason, RowKey, by_namespace
from delta_mixin.planner import keep_what_readers_need

Wanted = dict[RowKey, frozenset[str]]
"""By row, the channels to store a value of."""


def rows_to_rewrite(
    views: Mapping[str, NamespaceView], plan: CleanupPlan, declared: Collection[str]
) -> Planning[Wanted]:
    """The roots of a plan to rewrite, each with its channels; nearest the top first.

    Args:
        views: The thread's rows, as the plan was made from them.
        plan: Which rows stay and why.
        declared: Channels known to be delta.
    """
    wanted: Wanted = {}
    replay_only = by_namespace(plan.replay_only)
    kept_ids = by_namespace(plan.kept)
    for ns, view in views.items():
        kept = set(kept_ids.get(ns, ()))
        passed = {
            i
            for i in replay_only.get(ns, ())
            if any(r.kind == "replay" for r in plan.kept[RowKey(ns, i)])
        }
        order = [i for i in _top_down(view, kept - passed) if view[i].parent_id in kept]
        below = _below(view, order, passed)
        if not below:
            continue
        replayed = yield from channels_to_replay(view, below, declared)
        for row_id, channels in _cut(view, below, passed, replayed):
            wanted[RowKey(ns, row_id)] = channels
    return wanted


def plan_roots(
    thread_id: str,
    views: Mapping[str, NamespaceView],
    roots: Collection[RowKey],
    traits: SaverTraits,
    heads: Mapping[str, str | None],
) -> Planning[CleanupPlan]:
    """Keep exactly these roots and what their readers need; doom the rest.

    Args:
        thread_id: The thread.
        views: Its rows, from `group_rows`.
        roots: The rows that must read back.
        traits: What is known of the saver.
        heads: As for `plan_prune`.
    """
    sweeps = []
    for ns, view in views.items():
        chosen = [i for i in view.ids if RowKey(ns, i) in roots]
        sweep = Sweep(view, {i: [Reason("selected")] for i in chosen})
        try:
            yield from keep_what_readers_need(sweep, chosen[::-1], traits)
        except UnknownChannelsError:
            return left_alone(thread_id, "prune", views, "unknown delta channels")
        sweeps.append(sweep)
    return (yield from finish(thread_id, "prune", sweeps, traits, heads))


def sharing_rows(
    view: NamespaceView, wanted: Mapping[str, frozenset[str]], pool: Collection[str]
) -> Planning[dict[tuple[str, str], list[str]]]:
    """By rewritten row and channel, the rows that would be populated too and may read otherwise.

    Args:
        view: The namespace.
        wanted: By id of a row to rewrite, its channels.
        pool: Ids of the rows to look at.
    """
    pool = [i for i in pool if i in view]
    yield from view.need(pool, "checkpoint", "writes")
    found: dict[tuple[str, str], list[str]] = {}
    for channel in sorted(frozenset().union(*wanted.values())):
        origins = _Origins(view, channel, pool)
        by_version: dict[object, list[str]] = {}
        for row_id in pool:
            row = view[row_id]
            version = (row.channel_versions or {}).get(channel)
            if version is not None and channel not in (row.populated or ()):
                by_version.setdefault(version, []).append(row_id)
        for row_id in (i for i, channels in wanted.items() if channel in channels):
            own = (view[row_id].channel_versions or {}).get(channel)
            origin = origins.of(row_id)
            doubtful = [i for i in by_version.get(own, ()) if origins.of(i) != origin]
            if doubtful:
                found[row_id, channel] = doubtful
    return found


class _Origins:
    """Where the walks of a channel first meet a write or a value, each row looked at once."""

    def __init__(self, view: NamespaceView, channel: str, pool: Collection[str]) -> None:
        self._view = view
        self._channel = channel
        self._pool = frozenset(pool)
        self._known: dict[str, str | None] = {}

    def of(self, row_id: str) -> str | None:
        path: list[str] = []
        at: str | None = row_id
        while at is not None and at not in self._known and at not in path:
            path.append(at)
            parent = self._view.get(self._view[at].parent_id)
            if parent is None:
                at = self._view[at].parent_id
                break
            at = parent.checkpoint_id
            # Outside the pool nothing is read: the same row stands for the same walk.
            if at not in self._pool or self._channel in (
                (parent.write_channels or frozenset()) | (parent.populated or frozenset())
            ):
                break
        else:
            at = self._known.get(at) if at is not None else None
        self._known.update(dict.fromkeys(path, at))
        return at


def _top_down(view: NamespaceView, ids: Collection[str]) -> Iterator[str]:
    """The ids, each after those of them that it descends from."""
    done: set[str] = set()
    for start in ids:
        chain: list[str] = []
        at: str | None = start
        while at is not None and at in ids and at not in done and at in view:
            done.add(at)
            chain.append(at)
            at = view[at].parent_id
        yield from reversed(chain)


def _below(view: NamespaceView, order: Iterable[str], passed: Collection[str]) -> list[str]:
    """Those of the rows, given top down, whose walks can get to a row kept only for replay."""
    below: dict[str, None] = {}
    for row_id in order:
        if (parent := view[row_id].parent_id) in passed or parent in below:
            below[row_id] = None
    return list(below)


def _cut(
    view: NamespaceView,
    roots: Iterable[str],
    passed: Collection[str],
    replayed: Mapping[str, frozenset[str]],
) -> Iterator[tuple[str, frozenset[str]]]:
    """Where to populate which channels, so that no root's walk gets to one of `passed`."""
    everything = frozenset().union(*replayed.values())
    through: dict[str, frozenset[str]] = {}
    for row_id in roots:
        row = view[row_id]
        reaching = everything if row.parent_id in passed else through[row.parent_id or ""]
        if here := replayed[row_id] & reaching:
            yield row_id, here
        through[row_id] = reaching - here - (row.populated or frozenset())
