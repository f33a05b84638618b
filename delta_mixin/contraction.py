"""Contract: one base row in place of each run of rows that are kept for replay alone. Pure.

1. A run is a chain of parents in which every row but the lowest has one kept child, the next row
   of the run. Rows above a branch, and rows above a root, are in other runs.
2. All readers that pass a run enter it at its lowest row. So, per channel, they all collect the
   same: the writes from the nearest row up where it is populated, that row's own included. What
   is above that row does not count for the channel, though it may for another.
3. A stored `None` ends the walk of some readers and not of others. It can only be at the top of a
   run: there, as a seed of the base row, it reads to both as before.
4. A run is worth it if it has two rows or more, or one that must go.
5. In doubt rows stay as they are: in a loop of parents, and where no id sorts as it has to.

A base row's id sorts below those of its children, as some readers look no further, and above its
parent's where there is room between.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from delta_mixin._ids import checkpoint_time, id_below
from delta_mixin._view import NamespaceView
from delta_mixin.base_rows import SQUASHED, BaseRow, BaseSeed, BaseWrites
from delta_mixin.channels import COUNTERS
from delta_mixin.model import CheckpointRow, Planning, Reason

_TASK_IDS = uuid.UUID("6f1d3c1e-58d3-4a53-9d5b-6a1f0f0a7c11")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Replayed = Mapping[str, frozenset[str]]
"""The channels that are rebuilt from a row, by row, of rows kept for nothing else."""


@dataclass(frozen=True)
class _Run:
    """Rows to replace, oldest first, and the kept rows below the lowest."""

    rows: tuple[str, ...]
    children: tuple[str, ...]

    @property
    def top(self) -> str:
        return self.rows[0]

    @property
    def lowest(self) -> str:
        return self.rows[-1]


def contract(
    view: NamespaceView,
    kept: Mapping[str, Sequence[Reason]],
    *,
    must_go: Collection[str] = (),
    broken: Collection[str] = (),
    plain_seeds: bool = True,
) -> Planning[list[BaseRow]]:
    """The base rows for what is kept for replay alone, oldest first.

    Args:
        view: The namespace.
        kept: Its rows that stay so far, each with all its reasons.
        must_go: Rows to replace even where they are a run of one.
        broken: Rows whose parent a reader misses: the pointer to it stays.
        plain_seeds: Whether readers replay the writes of a row that holds a plain value of their
            channel; else such rows stay as they are.
    """
    replayed = {
        row_id: frozenset(str(reason.channel) for reason in reasons)
        for row_id, reasons in kept.items()
        if all(reason.kind == "replay" for reason in reasons)
        and (plain_seeds or not _plain(view[row_id]).intersection(r.channel for r in reasons))
    }
    runs = [run for run in _runs(view, kept, replayed) if len(run.rows) > 1 or run.top in must_go]
    yield from _read(view, runs, replayed)
    used = set(view.ids)
    ids: dict[str, str] = {}  # of the base row, by the rows at both ends of what it replaces
    found: list[tuple[_Run, str]] = []
    for run in _children_first(runs):
        below = min(ids.get(child, child) for child in run.children)
        base_id = id_below(below, view[run.top].parent_id, used)
        if base_id is not None:
            used.add(base_id)
            # Other base rows below name their parent themselves.
            hung = tuple(child for child in run.children if child not in ids)
            ids[run.top] = ids[run.lowest] = base_id
            found.append((replace(run, children=hung), base_id))
    bases = []
    for run, base_id in reversed(found):
        parent = view[run.top].parent_id
        if parent is not None and parent not in kept and run.top not in broken:
            parent = None
        base = _base_row(view, run, base_id, replayed[run.lowest])
        bases.append(replace(base, parent_id=None if parent is None else ids.get(parent, parent)))
    return bases


def _read(view: NamespaceView, runs: Sequence[_Run], replayed: Replayed) -> Planning[None]:
    """What a base row tells of the rows at its ends; its seeds have been looked at on the walk."""
    yield from view.need([run.lowest for run in runs], "metadata")
    unseeded = [
        run.top
        for run in runs
        if replayed[run.lowest].difference(*(_stored(view[row_id]) for row_id in run.rows))
    ]
    yield from view.need(unseeded, "checkpoint")


def _stored(row: CheckpointRow) -> frozenset[str]:
    """Channels with a value at the row, `None` included."""
    return (row.populated or frozenset()) | (row.nones or frozenset())


def _plain(row: CheckpointRow) -> frozenset[str]:
    return (row.populated or frozenset()) - (row.snapshots or frozenset())


def _runs(
    view: NamespaceView, kept: Mapping[str, Sequence[Reason]], replayed: Replayed
) -> Iterator[_Run]:
    """The maximal runs; a loop of parents without a way in has none."""
    children: dict[str, list[str]] = {}
    for row_id in kept:
        parent = view[row_id].parent_id
        if parent is not None:
            children.setdefault(parent, []).append(row_id)

    def continues(row_id: str) -> bool:
        """Whether the row belongs to the run of its child."""
        below = children.get(row_id, [])
        return (
            len(below) == 1
            and below[0] in replayed
            and not replayed[below[0]] & (view[below[0]].nones or frozenset())
        )

    for lowest in replayed:
        if continues(lowest) or lowest not in children:
            continue
        rows = [lowest]
        above = view[lowest].parent_id
        while above is not None and above in replayed and continues(above):
            rows.append(above)
            above = view[above].parent_id
        if above not in rows:
            yield _Run(tuple(reversed(rows)), tuple(sorted(children[lowest])))


def _children_first(runs: Iterable[_Run]) -> list[_Run]:
    """Every run after those that hang below it."""
    by_top = {run.top: run for run in runs}
    ordered: dict[str, _Run] = {}
    entered: set[str] = set()
    for run in by_top.values():
        stack = [run]
        while stack:
            entered.add(stack[-1].top)
            below = [c for c in stack[-1].children if c in by_top and c not in entered]
            if below:
                stack += [by_top[c] for c in below]
            else:
                done = stack.pop()
                ordered.setdefault(done.top, done)
    return list(ordered.values())


def _base_row(view: NamespaceView, run: _Run, base_id: str, channels: frozenset[str]) -> BaseRow:
    """The base row, but for its parent.

    Args:
        view: The namespace.
        run: The rows to replace.
        base_id: Its id.
        channels: What readers rebuild from the lowest of the rows.
    """
    lowest = view[run.lowest]
    seeds: list[BaseSeed] = []
    parts: list[tuple[str, list[str]]] = []
    unseeded = set(channels)
    for row_id in reversed(run.rows):
        row = view[row_id]
        parts.append((row_id, sorted(unseeded)))
        seeded = unseeded & _stored(row)
        seeds += [BaseSeed(c, row_id, (row.channel_versions or {}).get(c)) for c in sorted(seeded)]
        unseeded -= seeded
    # Its own writes not counted, it reads as the top row does, and so may share its versions.
    top = view[run.top].channel_versions or {}
    versions = {c: v for c, v in top.items() if c in channels}
    versions.update({s.channel: s.version for s in seeds if s.version is not None})
    return BaseRow(
        checkpoint_ns=view.checkpoint_ns,
        checkpoint_id=base_id,
        parent_id=None,
        children=run.children,
        replaces=run.rows,
        seeds=tuple(seeds),
        writes=tuple(
            BaseWrites(row_id, tuple(names), _task_id(view.checkpoint_ns, base_id, n), f"{n:010d}")
            for n, (row_id, names) in enumerate(reversed(parts))
            if names
        ),
        channel_versions=versions,
        metadata={
            "source": "fork",
            "step": (lowest.metadata or {}).get("step", -1),
            "parents": {},
            # Zero, so that readers of counters look at the row; all channels, so that they are
            # known to be delta when no other row tells any more.
            COUNTERS: {channel: [0, 0] for channel in sorted(channels)},
            SQUASHED: run.lowest,
        },
        ts=(checkpoint_time(base_id) or _EPOCH).isoformat(),
    )


def _task_id(checkpoint_ns: str, base_id: str, number: int) -> str:
    """A UUID that sorts by number: hosts that know no task path order writes by it."""
    unique = str(uuid.uuid5(_TASK_IDS, f"{checkpoint_ns}|{base_id}|{number}"))
    return f"{number:08x}{unique[8:]}"
