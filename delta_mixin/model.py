"""The values that planning works on: rows of a thread in, a plan out.

A *row* is one stored checkpoint. It may be *lean*: everything but thread, namespace, id
and parent can be `None`, meaning "not read yet". The planner asks for the few parts it
must know (see `Reads`), so a backend can list a long thread without opening its blobs.

A *plan* says what a cleanup keeps and why, what it deletes, and what it mends. Everything
here is immutable and free of I/O.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from delta_mixin.base_rows import BaseRow

__all__ = [
    "BlobKey",
    "Break",
    "CheckpointRow",
    "CleanupPlan",
    "KnownChannels",
    "Part",
    "Reads",
    "Reason",
    "RowKey",
]

T = TypeVar("T")

Operation = Literal["prune", "delete", "delete_for_runs", "copy"]
LeftAlone = Literal["severed", "delta thread", "unknown delta channels"]

Part = Literal["metadata", "checkpoint", "writes"]
"""What can be missing on a lean row: its metadata; what its checkpoint says of channels
(`v`, versions, populated channels, snapshots); the channels its stored writes go to."""

ALL_PARTS: frozenset[Part] = frozenset(("metadata", "checkpoint", "writes"))


class RowKey(NamedTuple):
    """Which row of a thread: namespace and checkpoint id. Compares equal to the plain pair."""

    checkpoint_ns: str
    checkpoint_id: str


class BlobKey(NamedTuple):
    """Which blob of a thread, in stores that keep channel values apart by version."""

    checkpoint_ns: str
    channel: str
    version: str | int | float


Reads = Mapping[RowKey, frozenset[Part]]
"""Rows to read, each with the parts the planner lacks. Iterates as `(namespace, id)` pairs."""


class KnownChannels(NamedTuple):
    """Asks which rows of a namespace know more channels than these.

    That is every row whose checkpoint names a version of a channel in neither set, or of none at
    all, or whose metadata counts updates of a channel in `unless_counted` (see `COUNTERS` and
    `EARLY_COUNTERS` in `delta_mixin.channels`).

    Attributes:
        checkpoint_ns: The namespace.
        channels: Channels that may be delta.
        unless_counted: Channels that are none, as long as no counter names them.
    """

    checkpoint_ns: str
    channels: frozenset[str]
    unless_counted: frozenset[str]


Planning = Generator["Reads | KnownChannels", Any, T]
"""A pure computation that asks for rows and is sent what was found: for `KnownChannels` ids, or
`None` where nobody can tell."""


def _is_delta_snapshot(value: object) -> bool:
    # By name: the class is private to the host, and this module imports nothing of it.
    return type(value).__name__ == "_DeltaSnapshot"


class CheckpointRow(NamedTuple):
    """One stored checkpoint, as far as it has been read.

    A tuple, as a cleanup builds one for each checkpoint of its threads, and a frozen data class
    takes six times as long. Use it by its names.

    Attributes:
        thread_id: Thread the row belongs to, spelt as `str`.
        checkpoint_ns: Namespace; `""` is the root graph.
        checkpoint_id: Id of the checkpoint.
        parent_id: Id of its parent in the same namespace, or `None`.
        metadata: The checkpoint's metadata; `None` if not read.
        v: Version of the checkpoint format; `None` if not read.
        channel_versions: Version of each channel at this row; `None` if not read.
        populated: Channels whose value a reader finds at this row (a stored `None` does not
            count: readers disagree on it); `None` if not read.
        snapshots: The populated channels that hold a `_DeltaSnapshot`; `None` if not read.
        write_channels: Channels that have writes stored at this row; `None` if not read.
        nones: Channels that hold a stored `None` at which a reader may end its walk; `None` if
            not read.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    v: int | None = None
    channel_versions: Mapping[str, str | int | float] | None = None
    populated: frozenset[str] | None = None
    snapshots: frozenset[str] | None = None
    write_channels: frozenset[str] | None = None
    nones: frozenset[str] | None = None

    @property
    def key(self) -> RowKey:
        """Namespace and id of the row."""
        return RowKey(self.checkpoint_ns, self.checkpoint_id)

    def has(self, part: Part) -> bool:
        """Whether `part` has been read."""
        if part == "metadata":
            return self.metadata is not None
        if part == "writes":
            return self.write_channels is not None
        return None not in (self.channel_versions, self.populated, self.snapshots)

    def with_checkpoint(self, checkpoint: Mapping[str, Any]) -> CheckpointRow:
        """The row with its checkpoint part filled from a loaded `Checkpoint`.

        Args:
            checkpoint: With `channel_values` as a reader gets them.
        """
        values = checkpoint.get("channel_values") or {}
        return self._replace(
            v=checkpoint.get("v", 1),
            channel_versions=dict(checkpoint.get("channel_versions") or {}),
            populated=frozenset(c for c, value in values.items() if value is not None),
            snapshots=frozenset(c for c, value in values.items() if _is_delta_snapshot(value)),
            nones=frozenset(c for c, value in values.items() if value is None),
        )

    def merged(self, other: CheckpointRow) -> CheckpointRow:
        """The row with what `other`, a later reading of the same row, knows in addition."""
        # Spelt out: it runs for every row that is read, and a loop takes twice as long.
        return CheckpointRow(
            self.thread_id,
            self.checkpoint_ns,
            self.checkpoint_id,
            self.parent_id,
            self.metadata if other.metadata is None else other.metadata,
            self.v if other.v is None else other.v,
            self.channel_versions if other.channel_versions is None else other.channel_versions,
            self.populated if other.populated is None else other.populated,
            self.snapshots if other.snapshots is None else other.snapshots,
            self.write_channels if other.write_channels is None else other.write_channels,
            self.nones if other.nones is None else other.nones,
        )

    @classmethod
    def from_tuple(cls, saved: Any) -> CheckpointRow:
        """Build a complete row from a `CheckpointTuple`.

        Writes stay unread where `pending_writes` is `None`, as some savers list them.

        Args:
            saved: As `get_tuple` or `list` of a saver return it.

        Raises:
            KeyError: If the tuple's config names no thread.
        """
        conf = saved.config["configurable"]
        parent = saved.parent_config["configurable"] if saved.parent_config else {}
        writes = saved.pending_writes
        return cls(
            thread_id=str(conf["thread_id"]),
            checkpoint_ns=conf.get("checkpoint_ns", ""),
            checkpoint_id=saved.checkpoint["id"],
            parent_id=parent.get("checkpoint_id") or None,
            metadata=saved.metadata or {},
            write_channels=None if writes is None else frozenset(w[1] for w in writes),
        ).with_checkpoint(saved.checkpoint)


class Reason(NamedTuple):
    """Why a row is kept.

    Attributes:
        kind: `"latest"`, `"head"` (what `get_tuple` without an id returns), `"pinned"`,
            `"recent"`, `"unknown age"`, `"survivor"` (not of the runs to delete),
            `"pending sends"`, `"replay"`, `"selected"` (of a copy) or `"left alone"`.
        channel: For `"replay"`, the channel that is rebuilt from this row.
        root: For `"replay"` and `"pending sends"`, the checkpoint whose reader needs it.
    """

    kind: Literal[
        "latest",
        "head",
        "pinned",
        "recent",
        "unknown age",
        "survivor",
        "pending sends",
        "replay",
        "selected",
        "left alone",
    ]
    channel: str | None = None
    root: str | None = None

    def __str__(self) -> str:
        if self.kind == "replay":
            return f"replays {self.channel} for {self.root}"
        if self.kind == "pending sends":
            return f"pending sends of {self.root}"
        return self.kind


@dataclass(frozen=True, slots=True)
class Break:
    """A parent that is not stored although a channel still needs it.

    Attributes:
        child: The row that names the missing parent.
        missing_id: Id of the missing parent.
        channel: A channel whose history runs through it.
        root: Checkpoint whose reader is affected.
    """

    child: RowKey
    missing_id: str
    channel: str
    root: str

    def __str__(self) -> str:
        where = f" in namespace {self.child.checkpoint_ns!r}" if self.child.checkpoint_ns else ""
        return (
            f"checkpoint {self.child.checkpoint_id}{where} needs parent {self.missing_id}, "
            f"which is not stored, for channel {self.channel!r}"
        )


@dataclass(frozen=True)
class CleanupPlan:
    """What a cleanup of one thread keeps, deletes and mends.

    Rows kept only for replay may not read back fully themselves: another channel's chain
    can be cut above them. `replay_only` lists them.

    Attributes:
        thread_id: The thread.
        operation: `"prune"`, `"delete"` (the whole thread), `"delete_for_runs"`, or `"copy"` for
            what is squashed in a copy.
        kept: Rows that stay, each with its reasons, sorted by key.
        doomed: Rows to delete together with their writes, sorted by key.
        detached: Kept rows whose parent is swept or, with no reader that needs it, not
            stored: clear their parent pointer.
        dead_blobs: Blobs that a doomed row references and no kept one does (only for
            savers with `VERSIONED_BLOBS`).
        dropped_namespaces: Namespaces that go whole, with everything stored under them.
        heads: Per namespace that had rows, the id that `get_tuple` without an id must return
            now: the head of before where it stays, else the newest row kept; `None` where
            none is left. Savers that keep a head pointer set it from here.
        delta_channels: Channels found to be delta, by namespace, as far as the plan had
            to know them.
        severed: Where histories break off already.
        left_alone: Why the thread is not touched (`"severed"`, `"delta thread"`,
            `"unknown delta channels"`), or `None`.
        bases: With `delta="squash"`, the base rows to store in place of doomed ones, oldest
            first. Their children hang below them then, so those are not detached.
    """

    thread_id: str
    operation: Operation
    kept: Mapping[RowKey, tuple[Reason, ...]] = field(default_factory=dict)
    doomed: tuple[RowKey, ...] = ()
    detached: tuple[RowKey, ...] = ()
    dead_blobs: tuple[BlobKey, ...] = ()
    dropped_namespaces: tuple[str, ...] = ()
    heads: Mapping[str, str | None] = field(default_factory=dict)
    delta_channels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    severed: tuple[Break, ...] = ()
    left_alone: LeftAlone | None = None
    bases: tuple[BaseRow, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether executing the plan changes anything."""
        return bool(self.doomed or self.detached)

    @property
    def replay_only(self) -> tuple[RowKey, ...]:
        """Kept rows that are no root and stay only because a root's reader passes them."""
        return tuple(
            key
            for key, reasons in self.kept.items()
            if all(r.kind in ("replay", "pending sends") for r in reasons)
        )

    def doomed_ids(self) -> dict[str, list[str]]:
        """Doomed checkpoint ids by namespace."""
        return by_namespace(self.doomed)

    def detached_ids(self) -> dict[str, list[str]]:
        """Ids of the rows to detach by namespace."""
        return by_namespace(self.detached)


def by_namespace(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The ids of rows by namespace, in the order given."""
    grouped: dict[str, list[str]] = {}
    for ns, checkpoint_id in keys:
        grouped.setdefault(ns, []).append(checkpoint_id)
    return grouped
