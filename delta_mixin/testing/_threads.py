"""Threads written by hand through a saver's public API, and what is expected of them.

Rows look like the ones a LangGraph run leaves: uuid6 ids, versions from `get_next_version`,
counters since the last snapshot, writes under the checkpoint whose tasks made them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._pictures import draw_calls
from delta_mixin.testing.oracle import Key, Reading
from delta_mixin.testing.writing import Put, PutWrites

Row = str | Sequence[str]
"""Which row: its id in the root namespace, or namespace and id."""

NEWEST = "newest"
"""As a parent: the row that was put last in the namespace."""

_UUID_EPOCH = datetime(1582, 10, 15, tzinfo=timezone.utc)


def id_at(moment: datetime, number: int = 0) -> str:
    """A checkpoint id whose uuid6 timestamp is `moment` (RFC 9562, section 5.6)."""
    since = moment - _UUID_EPOCH
    ticks = (since.days * 86_400 + since.seconds) * 10_000_000 + since.microseconds * 10 + number
    return str(uuid.UUID(int=ticks >> 12 << 80 | 6 << 76 | (ticks & 0xFFF) << 64 | 2 << 62))


@dataclass
class _Row:
    """What a hand-made row passes on to its children."""

    versions: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, list[int]] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    written: list[tuple[str, Any]] = field(default_factory=list)
    step: int = -2
    parent: str | None = None


class HandMadeThread:
    """A thread under construction.

    Args:
        view: The saver to write to.
        thread_id: Its id.
        delta: Its delta channels, in every namespace. The plain channel `"step"` comes on top.

    Attributes:
        steps: What was done to it, for failure messages.
    """

    def __init__(
        self, view: SyncView, thread_id: Any = "thread", *, delta: Sequence[str] = ("log",)
    ) -> None:
        self.view = view
        self.thread_id = thread_id
        self.delta = tuple(delta)
        self.steps: list[str] = []
        self._rows: dict[Key, _Row] = {}
        self._newest: dict[str, str] = {}
        self._tasks = 0
        self._calls: list[Put | PutWrites] = []
        view.threads.append(self)

    # -- writing -----------------------------------------------------------------------------

    def put(
        self,
        *,
        ns: str = "",
        parent: str | None = NEWEST,
        checkpoint_id: str | None = None,
        snapshot: Iterable[str] = (),
        plain: Mapping[str, Any] | None = None,
        shares_versions: bool = False,
        run_id: str | None = None,
        parents: Mapping[str, str] | None = None,
        v: int = 4,
        config_metadata: Mapping[str, Any] | None = None,
        **metadata: Any,
    ) -> str:
        """Put a checkpoint after `parent` and return its id.

        Args:
            ns: Namespace.
            parent: Id of its parent, `None` for none, `NEWEST` for the last one put.
            checkpoint_id: Its id; by default one that sorts above all before.
            snapshot: Delta channels stored here as a `_DeltaSnapshot` of their value.
            plain: Values stored here as they are, as before a migration to `DeltaChannel`.
            shares_versions: Change no channel, so that the row shares its parent's values.
            run_id: Run in its metadata.
            parents: Its root checkpoint by namespace, for subgraphs.
            v: Version of the checkpoint format.
            config_metadata: Metadata of the config, as runs pass it.
            metadata: Further metadata.
        """
        if parent == NEWEST:
            parent = self._newest.get(ns)
        before = self._rows[ns, parent] if parent is not None else _Row()
        wrote = {channel for channel, _ in before.written}
        row = _Row(dict(before.versions), step=before.step + 1, parent=parent)
        for channel in self.delta:
            written = [value for c, value in before.written if c == channel]
            row.values[channel] = before.values.get(channel, []) + written
            updates, supersteps = before.counters.get(channel, [0, 0])
            row.counters[channel] = [updates + (channel in wrote), supersteps + 1]
        if shares_versions:
            row.stored = dict(before.stored)
        else:
            row.stored = {"step": row.step, **(plain or {})}
            for channel in snapshot:
                row.stored[channel] = _DeltaSnapshot(list(row.values[channel]))
                row.counters[channel] = [0, 0]
            for channel, value in (plain or {}).items():
                row.values[channel] = list(value) if isinstance(value, list) else [value]
                row.counters.pop(channel, None)  # a plain channel has none
        changed = set() if shares_versions else {c for c in wrote if c[:2] != "__"} | {*row.stored}
        new_versions = {}
        for channel in sorted(changed):
            current = row.versions.get(channel)
            row.versions[channel] = self.view.saver.get_next_version(current, None)
            new_versions[channel] = row.versions[channel]
        checkpoint_id = checkpoint_id or str(uuid6(clock_seq=-2))
        checkpoint = {
            "v": v,
            "id": checkpoint_id,
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": dict(row.stored),
            "channel_versions": dict(row.versions),
            "versions_seen": {},
            "updated_channels": sorted(changed),
        }
        stored_metadata: dict[str, Any] = {"source": "loop", "step": row.step}
        stored_metadata["parents"] = dict(parents or {})
        if self.delta:
            stored_metadata["counters_since_delta_snapshot"] = row.counters
        if run_id is not None:
            stored_metadata["run_id"] = run_id
        stored_metadata.update(metadata)
        self._make(Put(ns, parent, checkpoint, stored_metadata, new_versions, config_metadata))
        self._rows[ns, checkpoint_id] = row
        self._newest[ns] = checkpoint_id
        self.steps.append(
            f"put {checkpoint_id} after {parent}"
            + (f" in {ns!r}" if ns else "")
            + (f", run {run_id}" if run_id else "")
            + (f", holds {sorted(row.stored)}" if len(row.stored) > 1 else "")
        )
        return checkpoint_id

    def write(
        self,
        checkpoint_id: str,
        *writes: tuple[str, Any],
        ns: str = "",
        task_id: str | None = None,
        task_path: str | None = None,
    ) -> None:
        """Put the writes of one task under a checkpoint.

        By default tasks sort in the order they are written, by path as well as by id.
        """
        self._tasks += 1
        task_id = task_id or f"{self._tasks:08x}-0000-4000-8000-000000000000"
        task_path = f"~__pregel_pull, n{self._tasks:08}" if task_path is None else task_path
        self._make(PutWrites(ns, checkpoint_id, list(writes), task_id, task_path))
        self._rows[ns, checkpoint_id].written.extend(writes)
        self.steps.append(f"write {list(writes)!r} at {checkpoint_id}, task {task_id}")

    def write_early(self, checkpoint_id: str, *writes: tuple[str, Any], ns: str = "") -> None:
        """Put writes of a checkpoint that is not stored yet, as runs save in the background."""
        self._rows.setdefault((ns, checkpoint_id), _Row())
        self.write(checkpoint_id, *writes, ns=ns)

    def superstep(
        self,
        *writes: tuple[str, Any],
        ns: str = "",
        parent: str | None = NEWEST,
        **options: Any,
    ) -> str:
        """Let one task write at `parent` and put the checkpoint that follows from it."""
        parent = self._newest[ns] if parent == NEWEST else parent
        if parent is not None and writes:
            self.write(parent, *writes, ns=ns)
        return self.put(ns=ns, parent=parent, **options)

    def grow(
        self,
        count: int,
        *,
        ns: str = "",
        parent: str | None = NEWEST,
        snapshot_at: Iterable[int] = (),
        **options: Any,
    ) -> list[str]:
        """Add `count` checkpoints, each after a write to every delta channel.

        Args:
            count: How many.
            ns: Namespace.
            parent: As for `put`; a thread's first row has no parent and nothing to write at.
            snapshot_at: Positions, from 0, that hold snapshots of all delta channels.
            options: For `put`.
        """
        added: list[str] = []
        for position in range(count):
            if parent == NEWEST:
                parent = self._newest.get(ns)
            writes = [(c, f"{c}{len(self._rows)}") for c in self.delta] if parent else []
            snapshot = self.delta if position in set(snapshot_at) else ()
            parent = self.superstep(*writes, ns=ns, parent=parent, snapshot=snapshot, **options)
            added.append(parent)
        return added

    def repeated(self, thread_id: Any) -> HandMadeThread:
        """Another thread, written with the very same rows and writes."""
        other = HandMadeThread(self.view, thread_id, delta=self.delta)
        for call in self._calls:
            other._make(call)
        other.steps = list(self.steps)
        other._rows, other._newest, other._tasks = dict(self._rows), dict(self._newest), self._tasks
        return other

    def _make(self, call: Put | PutWrites) -> None:
        self._calls.append(call)
        call.perform(self.view, self.thread_id)

    def missing(self, checkpoint_id: str) -> str:
        """Take this id for a parent that some other tool has deleted."""
        self._rows["", checkpoint_id] = _Row(
            counters={channel: [1, 1] for channel in self.delta},
            written=[(channel, "lost") for channel in self.delta],
        )
        return checkpoint_id

    def adopt(self, other: HandMadeThread, checkpoint_id: str) -> None:
        """Go on from a root checkpoint that was copied from another thread."""
        self._rows["", checkpoint_id] = other._rows["", checkpoint_id]
        self._newest[""] = checkpoint_id
        self._tasks = other._tasks

    def value(self, checkpoint_id: str, channel: str = "log", ns: str = "") -> list[Any]:
        """What a delta channel is worth at a checkpoint, with a reducer that appends."""
        return self._rows[ns, checkpoint_id].values[channel]

    def did(self, what: str) -> None:
        """Note an operation, for failure messages."""
        self.steps.append(what)

    # -- looking -----------------------------------------------------------------------------

    @property
    def namespaces(self) -> list[str]:
        """Every namespace written to."""
        return list(self._newest)

    def read(self, view: SyncView | None = None, thread_id: Any = None) -> dict[Key, Reading]:
        """All its checkpoints as the oracle reads them, or those of a copy of it."""
        thread_id = self.thread_id if thread_id is None else thread_id
        return oracle.read_thread(view or self.view, thread_id, self.delta, self.namespaces)

    def saved(self, checkpoint_id: str, ns: str = "") -> Any:
        """The tuple that `get_tuple` returns for a checkpoint, which must be there."""
        saved = self.view.get_tuple(self.view.config(self.thread_id, ns, checkpoint_id))
        assert saved is not None, f"get_tuple of {checkpoint_id} read nothing{self.story()}"
        return saved

    def stored_parent(self, checkpoint_id: str, ns: str = "") -> str | None:
        """The parent that a checkpoint is stored with."""
        parent = self.saved(checkpoint_id, ns).parent_config or {}
        return parent.get("configurable", {}).get("checkpoint_id") or None

    def needed(self, *roots: Row) -> set[Key]:
        """Roots and every row that a delta channel of theirs is rebuilt from, by oracle."""
        found: set[Key] = set()
        for ns, root in map(_key, roots):
            written = self._rows[ns, root].versions.keys() & set(self.delta)
            kept = oracle.kept_by_walk(self.view, self.thread_id, ns, root, written)
            found.update((ns, row) for row in kept)
        return found

    def story(self, thread_id: Any = None) -> str:
        """What was done, and the thread it made, for a failure message."""
        lines = "\n".join(f"  {n}. {step}" for n, step in enumerate(self.steps, 1))
        looked_at = "" if thread_id is None else f", looked at as {thread_id!r}"
        told = f"\nthread {self.thread_id!r}{looked_at}, through {self.view!r}:\n{lines}"
        where = self.thread_id if thread_id is None else thread_id
        drawn = draw_calls(self.view, where, self._calls, without=("step",))
        return f"{told}\n{drawn}" if drawn else told

    def expect_rows(self, after: Mapping[Key, Reading], rows: Iterable[Row]) -> None:
        """Exactly these rows are stored."""
        expected = {_key(row) for row in rows}
        lost, extra = sorted(expected - after.keys()), sorted(after.keys() - expected)
        assert not lost, f"rows that must stay are gone: {lost}{self.story()}"
        assert not extra, f"rows that must go are still there: {extra}{self.story()}"

    def expect_unchanged(
        self,
        before: Mapping[Key, Reading],
        after: Mapping[Key, Reading],
        rows: Iterable[Row] | None = None,
    ) -> None:
        """These rows, or all, read back exactly as before."""
        for key in map(_key, before if rows is None else rows):
            assert key in after, f"checkpoint {key} is gone{self.story()}"
            if differences := before[key].differences(after[key]):
                told = "\n  ".join(differences)
                raise AssertionError(
                    f"checkpoint {key} does not read as before:\n  {told}{self.story()}"
                )
        if rows is None:
            self.expect_rows(after, before)

    def expect_parents_stored(self, after: Mapping[Key, Reading]) -> None:
        """Every stored row points to the parent it had, which is stored, or to none."""
        for ns, checkpoint_id in after:
            parent = self.stored_parent(checkpoint_id, ns)
            assert not parent or (ns, parent) in after, (
                f"checkpoint {checkpoint_id} in namespace {ns!r} points to parent {parent}, "
                f"which is gone{self.story()}"
            )
            was = self._rows[ns, checkpoint_id].parent
            assert parent in (was, None, ""), (
                f"checkpoint {checkpoint_id} in namespace {ns!r} points to {parent}, which never "
                f"was its parent: that is {was}{self.story()}"
            )


def _key(row: Row) -> Key:
    if isinstance(row, str):
        return ("", row)
    ns, checkpoint_id = row
    return (ns, checkpoint_id)
