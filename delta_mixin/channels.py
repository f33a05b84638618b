"""Which channels of a namespace are delta channels, and which of them a root must replay.

1. Declared channels count always; a declaration is never the whole truth.
2. Detected, over all rows of the namespace: the keys of the update counters in metadata,
   channels that hold a `_DeltaSnapshot`, and channels that a row's writes gave a new version but
   no value, where no row stores a value of theirs: any other kind would. Over *all* rows,
   because a channel changed back to a plain reducer, or left out of the graph, leaves the
   head's counters while its value still rests on older writes.
3. Evidence, for rows that langgraph before 1.2.9 wrote through `update_state` with neither: at
   a root that the loop did not write, a channel with a version and no stored value, with
   writes or a value in the namespace, counts as delta - unless a loop row has it like that and
   leaves it out of its counters, which only an ephemeral channel is. The value alone tells of a
   channel that was a plain reducer, with no later write, or none that a cleanup has left.
4. A channel without an entry in a root's non-empty `channel_versions` was never written there.
5. Where a root's own counters settle every channel that it has a version but no value for,
   no other row is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import filterfalse
from typing import Any

from delta_mixin._view import NamespaceView
from delta_mixin.model import CheckpointRow, Planning

COUNTERS = "counters_since_delta_snapshot"
EARLY_COUNTERS = "delta_updates_since_snapshot"
JS_MARKER = "delta_writes_versioned"
"""Set by LangGraph.js on threads with delta channels; it does not say which."""


def counters(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Counters since the last snapshot by channel, under the current or the early name."""
    found: dict[str, Any] = {}
    for name in (EARLY_COUNTERS, COUNTERS):
        stored = (metadata or {}).get(name)
        if isinstance(stored, (dict, Mapping)):  # the first answers at once
            found.update(stored)
    return found


def without_counters(metadata: Mapping[str, Any], channels: Collection[str]) -> dict[str, Any]:
    """Metadata whose counters of these channels are as after a snapshot: not there.

    Source: `_put_checkpoint` of langgraph 1.2 stores counters that are not zero, if any.
    """
    changed = dict(metadata)
    for name in (EARLY_COUNTERS, COUNTERS):
        stored = changed.get(name)
        if isinstance(stored, Mapping):
            if kept := {c: n for c, n in stored.items() if c not in channels}:
                changed[name] = kept
            else:
                del changed[name]
    return changed


def is_counting(counter: Any) -> bool:
    """Whether a counter is not zero, so that its row cannot hold the channel's snapshot.

    Anything that is not a counter says nothing, so the row gets looked at.
    """
    values = counter if isinstance(counter, (list, tuple)) else (counter,)
    return any(isinstance(n, int) and n > 0 for n in values)


def supersteps(counter: Any) -> int:
    """Supersteps since the last snapshot as a counter tells them; 0 where it does not."""
    if isinstance(counter, (list, tuple)) and len(counter) == 2 and isinstance(counter[1], int):
        return counter[1]
    return 0


PENDING_SENDS = "__pregel_tasks"
"""Channel that checkpoint formats before 4 kept a head's sends in, at its parent."""

HOSTS_OWN = frozenset(("__start__", PENDING_SENDS))


def is_hosts_own(channel: str) -> bool:
    """Whether the host itself makes the channel, to hold a value for one superstep."""
    return channel in HOSTS_OWN or channel.startswith("branch:")


class UnknownChannelsError(Exception):
    """The namespace uses delta channels that nothing stored names."""


def all_delta_channels(view: NamespaceView, declared: Collection[str]) -> Planning[frozenset[str]]:
    """Every channel of the namespace that is delta at some row; reads every row.

    Raises:
        UnknownChannelsError: If only the LangGraph.js marker says that there are any.
    """
    yield from view.need(view.ids, "metadata", "checkpoint", "writes")
    evident = _evidence(view)
    return _detected(view, declared).union(
        declared, *(_open_channels(row) & evident for row in view if not _from_loop(row))
    )


def channels_to_replay(
    view: NamespaceView, roots: Sequence[str], declared: Collection[str]
) -> Planning[dict[str, frozenset[str]]]:
    """The channels each root's reader rebuilds by walking up from it.

    Args:
        view: The namespace.
        roots: Ids of the rows that must read back; each must be stored and have a parent.
        declared: Channels known to be delta.

    Returns:
        Channel names by root.

    Raises:
        UnknownChannelsError: If only the LangGraph.js marker says that there are any.
    """
    yield from view.need(roots, "metadata", "checkpoint")
    replayed: dict[str, frozenset[str]] = {}
    doubtful = []
    for root in roots:
        replayed[root], complete = told_by_itself(view[root], declared)
        if not complete:
            doubtful.append(root)
    if not doubtful:
        return replayed
    yield from view.need(view.ids, "metadata", "checkpoint", "writes")
    detected = _detected(view, declared).union(declared)
    evident = _evidence(view)
    for root in doubtful:
        row = view[root]
        if not row.channel_versions:
            replayed[root] = detected - _populated(row)
            continue
        delta = detected if _from_loop(row) else detected | evident
        replayed[root] = _open_channels(row) & delta
    return replayed


def told_by_itself(row: CheckpointRow, declared: Collection[str]) -> tuple[frozenset[str], bool]:
    """The channels that a row itself names for its reader to rebuild, and whether these are all.

    From its metadata, its versions and what it holds.
    """
    unheld = _open_channels(row)
    replayed = unheld & (counters(row.metadata).keys() | declared)
    return replayed, bool(row.channel_versions) and all(map(is_hosts_own, unheld - replayed))


def _open_channels(row: CheckpointRow) -> frozenset[str]:
    """Channels with a version but no value at the row."""
    return frozenset(row.channel_versions or ()) - _populated(row)


def _populated(row: CheckpointRow) -> frozenset[str]:
    return row.populated or frozenset()


def _from_loop(row: CheckpointRow) -> bool:
    return (row.metadata or {}).get("source") == "loop"


def _detected(view: NamespaceView, declared: Collection[str]) -> frozenset[str]:
    counted = {c for row in view for c in counters(row.metadata)}
    marked = any(JS_MARKER in (row.metadata or {}) for row in view)
    if marked and not counted and not declared:
        raise UnknownChannelsError(view.checkpoint_ns)
    snapshots = (row.snapshots or () for row in view)
    return frozenset(counted.union(*snapshots, _written_without_value(view)))


def _written_without_value(view: NamespaceView) -> frozenset[str]:
    """Channels that got a new version at a row, from writes at its parent, but no value."""
    found: set[str] = set()
    for row in view:
        if (parent := view.get(row.parent_id)) is not None:
            versions, before = row.channel_versions or {}, parent.channel_versions or {}
            written = _open_channels(row) & (parent.write_channels or frozenset())
            found.update(c for c in written if versions[c] != before.get(c))
    # An ephemeral channel looks like this where a fork clears what another branch was to read.
    stored = {c for row in view for c in _populated(row) - (row.snapshots or frozenset())}
    return frozenset(filterfalse(is_hosts_own, found - stored - view.fleeting))


def _evidence(view: NamespaceView) -> frozenset[str]:
    """Channels that count as delta where a root that the loop did not write has them open."""
    used = {c for row in view for c in (row.write_channels or frozenset()) | _populated(row)}
    ephemeral = {
        c
        for row in view
        if _from_loop(row)
        for c in _open_channels(row) - counters(row.metadata).keys()
    }
    return frozenset(filterfalse(is_hosts_own, used - ephemeral - view.fleeting))
