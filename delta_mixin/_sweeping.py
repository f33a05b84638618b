"""From what is kept of a namespace to the plan: what is doomed, detached, squashed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from delta_mixin._view import NamespaceView
from delta_mixin.base_rows import BaseRow
from delta_mixin.contraction import contract
from delta_mixin.marking import Marks
from delta_mixin.model import (
    BlobKey,
    Break,
    CleanupPlan,
    LeftAlone,
    Operation,
    Planning,
    Reason,
    RowKey,
)


@dataclass(frozen=True)
class SaverTraits:
    """What a plan has to know of the saver.

    Attributes:
        declared: Channels the author declares to be delta.
        versioned_blobs: Whether channel values are stored apart, by version.
        plain_seeds: Whether its reader replays the writes of a row that holds a plain value.
        tells_beyond: Whether it can tell which rows know more channels than others.
    """

    declared: frozenset[str] = frozenset()
    versioned_blobs: bool = False
    plain_seeds: bool = True
    tells_beyond: bool = False


@dataclass
class Sweep:
    """A namespace on its way to a plan.

    Attributes:
        view: The namespace.
        kept: Rows that stay, with their reasons.
        marks: What their readers pass.
        replayed: The channels of each root that are rebuilt.
        bases: Base rows for some of the doomed rows.
    """

    view: NamespaceView
    kept: dict[str, Sequence[Reason]] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    replayed: dict[str, frozenset[str]] = field(default_factory=dict)
    bases: list[BaseRow] = field(default_factory=list)

    @property
    def doomed(self) -> list[str]:
        return [i for i in self.view.parents if i not in self.kept]


def squash(sweep: Sweep, traits: SaverTraits, must_go: Collection[str] = ()) -> Planning[None]:
    """Replace rows that are kept for replay alone by base rows.

    Args:
        sweep: The namespace, marked.
        traits: What is known of the saver.
        must_go: Rows to replace even one by one.
    """
    sweep.bases = yield from contract(
        sweep.view,
        sweep.kept,
        must_go=must_go,
        broken={b.child.checkpoint_id for b in sweep.marks.severed},
        plain_seeds=traits.plain_seeds,
    )
    for base in sweep.bases:
        for row_id in base.replaces:
            del sweep.kept[row_id]


def left_alone(
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


def finish(
    thread_id: str,
    operation: Operation,
    sweeps: list[Sweep],
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
        return left_alone(thread_id, operation, views, "severed", delta_channels, severed)
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
        bases=tuple(base for s in sweeps for base in s.bases),
    )


def _new_head(sweep: Sweep, heads: Mapping[str, str | None]) -> str | None:
    head = heads.get(sweep.view.checkpoint_ns)
    return head if head in sweep.kept else max(sweep.kept, default=None)


def _detached(sweep: Sweep, operation: Operation) -> Iterator[str]:
    view = sweep.view
    broken = {b.child.checkpoint_id for b in sweep.marks.severed}
    hung = {child for base in sweep.bases for child in base.children}
    for row_id in sorted(sweep.kept):
        parent = view.parents[row_id]
        if parent is None or parent in sweep.kept or row_id in hung:
            continue
        # A pointer to nothing is tidied by a prune where no reader needs it, as upstream does.
        if parent in view or (operation == "prune" and row_id not in broken):
            yield row_id


def _dead_blobs(sweep: Sweep) -> Planning[list[BlobKey]]:
    doomed = sweep.doomed
    if not doomed:
        return []
    view = sweep.view
    yield from view.need(view.ids, "checkpoint")
    referenced = {pair for i in sweep.kept for pair in (view[i].channel_versions or {}).items()}
    referenced.update(pair for base in sweep.bases for pair in base.channel_versions.items())
    freed = {pair for i in doomed for pair in (view[i].channel_versions or {}).items()}
    return [
        BlobKey(view.checkpoint_ns, channel, version)
        for channel, version in sorted(freed - referenced, key=lambda p: (p[0], str(p[1])))
    ]
