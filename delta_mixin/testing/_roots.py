"""What a cleanup has to keep, worked out from readings alone: the judge of plans.

Roots are the checkpoints that must read back as before; what their readers pass is needed.
Shares nothing with planning.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing.histories import ROOT, checkpoint_id_at
from delta_mixin.testing.oracle import Key, Reading, kept_by_walk

Readings = Mapping[Key, Reading]


def needed_by(view: SyncView, thread_id: str, roots: Collection[Key], before: Readings) -> set[Key]:
    """The roots and every checkpoint that their readers pass.

    Args:
        view: The saver, with the thread as it was when `before` was read.
        thread_id: The thread.
        roots: Checkpoints of it.
        before: Its readings.
    """
    return {
        (ns, kept)
        for ns, checkpoint_id in roots
        for kept in kept_by_walk(
            view, thread_id, ns, checkpoint_id, before[ns, checkpoint_id].rebuilt
        )
    }


def roots_of_prune(
    view: SyncView,
    thread_id: str,
    before: Readings,
    *,
    keep_last: int = 1,
    older_than: datetime | None = None,
    pinned: Collection[str] = (),
    delta: str = "keep_history",
) -> set[Key]:
    """What `prune` with these arguments must keep readable: see its docstring."""
    roots: set[Key] = set()
    for ns in sorted({ns for ns, _ in before}):
        ids = sorted(i for n, i in before if n == ns)
        # What a squash has left is no checkpoint to go back to, unless it is all there is.
        real = [i for i in ids if not before[ns, i].is_base_row or i == ids[-1]]
        wanted = {i for i in ids if i in pinned}.union(
            i for i in real if _is_younger(i, older_than)
        )
        if ":" in ns and not wanted:
            started_from = _root_of(before[ns, ids[-1]])
            kept = {key for key in roots if key[0] == ROOT}
            if delta != "squash":
                # Else it goes, with the call, unless it is alone between two roots.
                kept = needed_by(view, thread_id, kept, before)
            if (ROOT, started_from) in before and (ROOT, started_from) not in kept:
                continue
        roots |= {(ns, i) for i in wanted.union(real[-keep_last:])}
    return roots


def roots_of_run_deletion(before: Readings, run_ids: Collection[str]) -> set[Key]:
    """What `delete_for_runs` must keep readable: every checkpoint of other runs."""
    return {
        key
        for key, reading in before.items()
        if _metadata(reading).get("run_id") not in run_ids and not reading.is_base_row
    }


def rows_of_runs(readings: Readings, run_ids: Collection[str]) -> set[Key]:
    """The checkpoints of these runs."""
    return {key for key, each in readings.items() if _metadata(each).get("run_id") in run_ids}


def base_rows(readings: Readings) -> set[Key]:
    """What a squash has left."""
    return {key for key, reading in readings.items() if reading.is_base_row}


def roots_of_copy(before: Readings, parents: Mapping[Key, str | None], start: str) -> set[Key]:
    """What `copy_thread(checkpoint_id=start)` must make readable in the copy.

    Args:
        before: Readings of the source.
        parents: Parent id of each of its checkpoints.
        start: A checkpoint of its root namespace.
    """
    lineage: list[str] = []
    above: str | None = start
    while above is not None and above not in lineage and (ROOT, above) in before:
        lineage.append(above)
        above = parents[ROOT, above]
    roots = {(ROOT, start)}
    for ns in {ns for ns, _ in before} - {ROOT}:
        ids = sorted(i for n, i in before if n == ns)
        if ":" in ns:
            if _root_of(before[ns, ids[-1]]) == start:
                roots |= {(ns, i) for i in ids if not before[ns, i].is_base_row}
        else:
            # What is older than the lineage can have been an ancestor that a cleanup cut off.
            started_from = {i: _root_of(before[ns, i]) for i in ids}
            within = [
                i
                for i, root in started_from.items()
                if root and (root in lineage or root < lineage[-1])
            ]
            roots |= {(ns, i) for i in within[-1:]}
    return roots


def parents_of(view: SyncView, thread_id: str, keys: Collection[Key]) -> dict[Key, str | None]:
    """Parent id of each of these checkpoints."""
    parents = {}
    for key in keys:
        saved = view.get_tuple(view.config(thread_id, *key))
        parent = (saved.parent_config or {}).get("configurable", {})
        parents[key] = parent.get("checkpoint_id") or None
    return parents


def _is_younger(checkpoint_id: str, than: datetime | None) -> bool:
    # Ids of histories are of version 6, so ones of a later time are greater.
    return than is not None and checkpoint_id[:18] > checkpoint_id_at(than, 0)[:18]


def _root_of(reading: Reading) -> str | None:
    root: str | None = _metadata(reading).get("parents", {}).get(ROOT)
    return root


def _metadata(reading: Reading) -> Mapping[str, Any]:
    return reading.metadata.value or {}
