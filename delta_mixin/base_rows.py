"""Base rows: what a squash leaves in place of rows that were kept for replay alone. Pure.

1. A base row holds, per delta channel, the seed of the rows it replaces, where one of them had it,
   and the writes from that seed down to them, in the order in which a reader collects them.
2. It is no checkpoint of a run: there is nothing but these channels in it, no node has seen any
   version, and its metadata says what it is. No cleanup takes it for a root.
3. It refers to seeds and writes by the rows that hold them. A saver moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["SQUASHED", "BaseRow", "BaseSeed", "BaseWrites", "is_base_row"]

SQUASHED = "delta_mixin_squashed"
"""Key of the metadata that marks a base row; it tells the id of the lowest row it stands for."""

CHECKPOINT_FORMAT = 4
"""The format that hosts with delta channels write; readers change older ones on the way."""


def is_base_row(metadata: Mapping[str, Any] | None) -> bool:
    """Whether a row with this metadata stands for others, squashed into it."""
    return bool((metadata or {}).get(SQUASHED))


class BaseSeed(NamedTuple):
    """The stored value that a channel is rebuilt from.

    Attributes:
        channel: The channel.
        checkpoint_id: Row of the same namespace at which it is populated.
        version: Its version there: that of the blob, where values are stored apart. `None` if
            the row names no version.
    """

    channel: str
    checkpoint_id: str
    version: str | int | float | None


class BaseWrites(NamedTuple):
    """The writes of one replaced row that go on counting.

    Attributes:
        checkpoint_id: Row of the same namespace that they are stored at.
        channels: Only writes to these channels.
        task_id: Task id to store them under, a UUID. Their order at the row becomes their `idx`,
            from 0.
        task_path: Task path to store them under. Both sort as the rows follow each other.
    """

    checkpoint_id: str
    channels: tuple[str, ...]
    task_id: str
    task_path: str


@dataclass(frozen=True)
class BaseRow:
    """A row to store in place of a run of rows that are needed for replay alone.

    Attributes:
        checkpoint_ns: Namespace.
        checkpoint_id: Its id: not in use, and below those of the rows that hang below it.
        parent_id: Parent of the topmost row replaced, or its base row; `None` if that is not kept.
        children: The stored rows to hang below it: kept ones whose parent is the lowest replaced.
        replaces: The rows it stands for, oldest first. They are doomed.
        seeds: Where its values come from.
        writes: Where its writes come from, oldest first.
        channel_versions: Its `channel_versions`: of all channels that are replayed from it.
        metadata: Its metadata.
        ts: Its `ts`.
    """

    checkpoint_ns: str
    checkpoint_id: str
    parent_id: str | None
    children: tuple[str, ...]
    replaces: tuple[str, ...]
    seeds: tuple[BaseSeed, ...]
    writes: tuple[BaseWrites, ...]
    channel_versions: Mapping[str, str | int | float]
    metadata: Mapping[str, Any]
    ts: str

    def checkpoint(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The `Checkpoint` to store.

        Args:
            values: Its `channel_values`: those of `seeds`, or what stands for them in the store.
        """
        return {
            "v": CHECKPOINT_FORMAT,
            "id": self.checkpoint_id,
            "ts": self.ts,
            "channel_values": dict(values),
            "channel_versions": dict(self.channel_versions),
            "versions_seen": {},
            "updated_channels": None,
        }

    def __str__(self) -> str:
        seeds = ", ".join(f"{s.channel} of {s.checkpoint_id}" for s in self.seeds)
        channels = sorted({channel for part in self.writes for channel in part.channels})
        return (
            f"base row {self.checkpoint_id} for {len(self.replaces)} row(s), "
            f"seeds: {seeds or 'none'}, writes: {', '.join(channels) or 'none'}"
        )
