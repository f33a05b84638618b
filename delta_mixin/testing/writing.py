"""Stores thread histories: `write_history` for a whole one, `HistoryBuilder` step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing.histories import (
    ROOT,
    START,
    Channel,
    Step,
    ThreadHistory,
    checkpoint_id_at,
)

NULL_TASK_ID = str(UUID(int=0))
STARTED = "__start__"
BRANCH = "branch:to:node"

NextVersion = Callable[[Any, None], Any]
Key = tuple[str, str]


class PutWrites(NamedTuple):
    """A call of `put_writes`, for any thread."""

    ns: str
    checkpoint_id: str
    writes: Sequence[tuple[str, Any]]
    task_id: str
    task_path: str = ""

    def perform(self, view: SyncView, thread_id: Any) -> None:
        """Make the call."""
        config = view.config(thread_id, self.ns, self.checkpoint_id)
        view.put_writes(config, self.writes, self.task_id, self.task_path)


class Put(NamedTuple):
    """A call of `put`, for any thread; runs also pass metadata in the config."""

    ns: str
    parent_id: str | None
    checkpoint: Any
    metadata: Any
    new_versions: Mapping[str, Any]
    config_metadata: Mapping[str, Any] | None = None

    def perform(self, view: SyncView, thread_id: Any) -> None:
        """Make the call."""
        config = view.config(thread_id, self.ns, self.parent_id)
        if self.config_metadata is not None:
            config = {**config, "metadata": dict(self.config_metadata)}
        view.put(config, self.checkpoint, self.metadata, self.new_versions)


@dataclass(frozen=True)
class WrittenRow:
    """A checkpoint of a history, with all that the next one follows from.

    Attributes:
        root_id: In a subgraph's namespace, the root checkpoint its metadata names.
        position: How many checkpoints its namespace held before it.
    """

    ns: str
    checkpoint_id: str
    parent_id: str | None = None
    run: str | None = None
    root_id: str | None = None
    position: int = 0
    versions: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class HistoryBuilder:
    """Turns steps into calls, one by one, knowing what it has written so far.

    Args:
        channels: Channels of the graph, in every namespace.
        next_version: The saver's `get_next_version`.

    Attributes:
        log: The calls that `write_history` has made.
    """

    def __init__(self, channels: Iterable[Channel], next_version: NextVersion) -> None:
        self.channels = {c.name: c for c in channels}
        self.rows: dict[Key, WrittenRow] = {}
        self.log: list[Put | PutWrites] = []
        self._next_version = next_version
        self._writes: dict[Key, list[str]] = {}
        self._children: dict[tuple[str, str | None], list[WrittenRow]] = {}
        self._moments: dict[str, datetime] = {}
        self._serial = 0

    def branch(self, kept: Iterable[Key]) -> HistoryBuilder:
        """A builder that goes on from here on its own, knowing only the `kept` rows."""
        other = HistoryBuilder(self.channels.values(), self._next_version)
        other.rows = {key: self.rows[key] for key in self.rows if key in set(kept)}
        other._writes = {key: list(writes) for key, writes in self._writes.items()}
        other._children = {key: list(rows) for key, rows in self._children.items()}
        other._moments = dict(self._moments)
        other._serial = self._serial
        return other

    def forget(self, keys: Iterable[Key]) -> None:
        """Go on from none of these rows any more."""
        for key in keys:
            self.rows.pop(key, None)

    def reserve(self, ns: str, channels: Sequence[str]) -> tuple[str, list[PutWrites]]:
        """Writes for a checkpoint that is not stored yet, as runs save in the background.

        Returns:
            The id of that checkpoint, for `calls`, and the calls.
        """
        new_id = self._new_id(None)
        return new_id, self._put_writes(ns, new_id, (tuple(channels),), paths=True)

    def calls(self, step: Step, reserved: str | None = None) -> list[Put | PutWrites]:
        """The calls that store a step.

        Args:
            step: The step.
            reserved: The id of the new checkpoint, from `reserve`; it is not used where the parent
                is younger, as a run makes ids after the checkpoint it goes on from.
        """
        calls: list[Put | PutWrites] = []
        parent = self._counted_back(step.ns, step.back)
        if parent is None and (step.old or not step.commit):
            parent = self._stub(step, calls)
        tasks, branches = step.tasks, False
        if parent is not None and (
            children := self._children.get((parent.ns, parent.checkpoint_id))
        ):
            # New releases store snapshots instead of adding to what the base holds, old ones add;
            # a branch that has never written a channel then gets to see another one's writes as
            # soon as it does, which no cleanup can or should preserve: leave that case out.
            branches = not step.old
            if step.old:
                tasks = _only(tasks, set.intersection(*(set(c.versions) for c in children)))
            elif not step.commit:
                fork = replace(step, tasks=(), source="fork")
                calls.append(self._checkpoint(fork, parent, True, None))
                parent, branches = self._counted_back(step.ns, 0), False
        if parent is not None and not branches:
            paths = step.source == "loop"
            calls += self._put_writes(step.ns, parent.checkpoint_id, tasks, paths=paths)
            if step.interrupt:
                calls += self._interrupt(parent)
        if step.commit:
            step = replace(step, tasks=tasks)
            if parent is not None and reserved is not None and reserved < parent.checkpoint_id:
                reserved = None
            calls.append(self._checkpoint(step, parent, branches, reserved))
        return calls

    def _counted_back(self, ns: str, back: int) -> WrittenRow | None:
        rows = [row for row in self.rows.values() if row.ns == ns]
        return rows[-1 - min(back, len(rows) - 1)] if rows else None

    def _stub(self, step: Step, calls: list[Put | PutWrites]) -> WrittenRow:
        row = WrittenRow(step.ns, self._new_id(None), run=step.run, root_id=self._root(step))
        calls.append(self._put(row, {"step": -2}))
        return row

    def _checkpoint(
        self, step: Step, parent: WrittenRow | None, branches: bool, reserved: str | None
    ) -> Put:
        before = parent or WrittenRow(step.ns, "")
        position = before.position + 1 if parent else 0
        written = {c for task in step.tasks for c in task}
        left_at_base = set(self._writes.get((step.ns, before.checkpoint_id), ()))
        delta = {name for name, c in self.channels.items() if c.is_delta_at(position)}
        # A branch of new releases snapshots what others have left at its base. Before a channel
        # was delta nothing did; there it gets a value, for the reason that `calls` tells.
        not_yet = self._named("delta") - delta
        committed = written | (left_at_base & not_yet if branches else left_at_base)
        counters = {
            c: (updates + (c in committed), supersteps + 1)
            for c in delta
            for updates, supersteps in [before.counters.get(c, (0, 0))]
        }
        snapshots = {
            c
            for c in delta & (before.versions.keys() | committed)
            if counters[c][0] >= self.channels[c].snapshot_every
        }
        if parent is None:
            snapshots |= committed & delta
        elif branches:
            snapshots |= (committed | left_at_base) & delta
        if step.old and step.source in ("update", "fork"):
            counters, snapshots = {}, set()
        fleeting = {STARTED} if step.source == "input" else {BRANCH}
        values = self._values(before, committed, snapshots, delta, fleeting)
        cleared = {STARTED, *self._named("ephemeral")} & before.values.keys()
        moved = (committed & self.channels.keys()) | snapshots | fleeting | cleared
        newest = self._next_version(max(before.versions.values(), default=None), None)
        row = WrittenRow(
            step.ns,
            reserved or self._new_id(before.checkpoint_id if step.skewed and parent else None),
            parent.checkpoint_id if parent else None,
            step.run,
            self._root(step),
            position,
            {**before.versions, **dict.fromkeys(sorted(moved), newest)},
            values,
            {c: counts for c, counts in sorted(counters.items()) if c not in snapshots},
        )
        metadata: dict[str, Any] = {"source": step.source, "step": position - 1}
        if row.counters:
            metadata["counters_since_delta_snapshot"] = dict(row.counters)
        return self._put(row, metadata, {c: row.versions[c] for c in moved})

    def _values(
        self,
        before: WrittenRow,
        committed: set[str],
        snapshots: set[str],
        delta: set[str],
        fleeting: set[str],
    ) -> dict[str, Any]:
        kept = self._named("plain") | self._named("delta") - delta
        values = {
            c: v
            for c, v in before.values.items()
            if c in kept and not isinstance(v, _DeltaSnapshot)
        }
        for channel in sorted(committed & (kept | self._named("ephemeral"))):
            values[channel] = [self._value(f"{channel} as of")]
        for channel in sorted(snapshots):
            values[channel] = _DeltaSnapshot([self._value(f"{channel} up to")])
        # The host stores None for a trigger, and the input for a start.
        return values | {c: None if c == BRANCH else self._value(c) for c in fleeting}

    def _named(self, kind: str) -> set[str]:
        return {c.name for c in self.channels.values() if c.kind == kind}

    def _put(
        self, row: WrittenRow, metadata: dict[str, Any], new_versions: Mapping[str, Any] = {}
    ) -> Put:
        self.rows[(row.ns, row.checkpoint_id)] = row
        self._children.setdefault((row.ns, row.parent_id), []).append(row)
        metadata["parents"] = {} if row.root_id is None else {ROOT: row.root_id}
        if row.run is not None:
            metadata["run_id"] = row.run
        checkpoint = {
            "v": 4,
            "id": row.checkpoint_id,
            "ts": self._moments[row.checkpoint_id].isoformat(),
            "channel_values": dict(row.values),
            "channel_versions": dict(row.versions),
            "versions_seen": {},
            "updated_channels": sorted(new_versions),
        }
        return Put(row.ns, row.parent_id, checkpoint, metadata, dict(new_versions))

    def _put_writes(
        self, ns: str, checkpoint_id: str, tasks: Sequence[Sequence[str]], *, paths: bool
    ) -> list[PutWrites]:
        calls = []
        for position, channels in enumerate(tasks):
            path = f"~__pregel_pull, node{position}" if paths else ""
            writes = [(c, self._value(c)) for c in channels]
            calls.append(PutWrites(ns, checkpoint_id, writes, self._task_id(), path))
            self._writes.setdefault((ns, checkpoint_id), []).extend(channels)
        return calls

    def _interrupt(self, row: WrittenRow) -> list[PutWrites]:
        asked, answered = self._value("question"), self._value("answer")
        return [
            PutWrites(row.ns, row.checkpoint_id, [("__interrupt__", [asked])], self._task_id()),
            PutWrites(row.ns, row.checkpoint_id, [("__resume__", [answered])], NULL_TASK_ID),
        ]

    def _root(self, step: Step) -> str | None:
        if step.ns == ROOT:
            return None
        root = self._counted_back(ROOT, step.root_back)
        # A call can be stored before its root checkpoint is.
        return root.checkpoint_id if root else checkpoint_id_at(START - timedelta(days=1), 0)

    def _new_id(self, above: str | None) -> str:
        self._serial += 1
        moment = START + timedelta(minutes=self._serial)
        if above is not None:
            moment = self._moments[above] - timedelta(seconds=1)
        new_id = checkpoint_id_at(moment, self._serial)
        self._moments[new_id] = moment
        return new_id

    def _value(self, of: str) -> str:
        self._serial += 1
        return f"{of} {self._serial}"

    def _task_id(self) -> str:
        # Falling ids: tasks must be ordered by their paths, which rise.
        self._serial += 1
        return str(UUID(int=(0xFFFF_FFFF - self._serial) << 96 | 4 << 76 | 2 << 62 | self._serial))


def write_history(view: SyncView, history: ThreadHistory, thread_id: str) -> HistoryBuilder:
    """Store a history under a thread id.

    Args:
        view: The saver.
        history: What to store.
        thread_id: Where to; should hold nothing yet.

    Returns:
        The builder, which knows the rows and can go on.
    """
    builder = HistoryBuilder(history.channels, view.saver.get_next_version)
    for step in history.steps:
        for call in builder.calls(step):
            call.perform(view, thread_id)
            builder.log.append(call)
    return builder


def _only(tasks: Iterable[Sequence[str]], allowed: set[str]) -> tuple[tuple[str, ...], ...]:
    cut = (tuple(c for c in task if c in allowed) for task in tasks)
    return tuple(filter(None, cut))
