"""What readers of a thread see, worked out from a saver's public API alone.

This is the judge of every cleanup, so it shares nothing with planning: it reads with
`get_tuple`, `list` and `get_delta_channel_history`, walks parents itself, and holds the two
against each other.

1. A channel that is populated at a checkpoint is read there. Any other that has a version is
   rebuilt: start at the parent, collect the channel's writes, stop at the nearest checkpoint
   where it is populated, that one's writes included.
2. The walk ends at a `"seed"`, at the `"start"` of the thread, or `"severed at"` a parent that
   is not stored. A repeated id ends it too, as `"loop at"` that id.
3. The parent pointer itself is no part of a reading: cleanup may clear it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langgraph.checkpoint import base as host

from delta_mixin.testing._bridge import SyncView

Key = tuple[str, str]
"""Namespace and id of a checkpoint."""

Write = tuple[str, str, "Stored"]

SETTLED_HOST = hasattr(host, "writes_sort_key")
"""Whether the installed host's readers follow parents rather than ids, order writes by task path
and replay a plain seed's own writes. Earlier releases differ; where it matters there, the oracle
takes the reader's word."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A value that equals another of the same type and content only.

    Plain `==` takes a `_DeltaSnapshot` for a tuple, and `True` for `1`.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and _same(self.value, other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Rebuilt:
    """What a reader rebuilds one channel from.

    Attributes:
        seed: The value it starts from, or `None` to start empty.
        writes: Task id, channel and value, oldest first.
        ended: How the walk ended: `"seed"`, `"start"`, `"severed at <id>"`, `"loop at <id>"`.
    """

    seed: Stored | None
    writes: tuple[Write, ...]
    ended: str


@dataclass(frozen=True)
class Reading:
    """One checkpoint as its readers see it; equal readings are indistinguishable.

    Attributes:
        values: The channel values stored at it.
        metadata: Its metadata.
        writes: Its own pending writes, in order.
        v: Version of the checkpoint format.
        rest: The checkpoint's other parts, such as channel versions.
        rebuilt: For each delta channel that is not populated here, what it is rebuilt from.
    """

    values: Mapping[str, Stored]
    metadata: Stored
    writes: tuple[Write, ...]
    v: int
    rest: Stored
    rebuilt: Mapping[str, Rebuilt]

    def by_value(self) -> Reading:
        """The reading without the task ids of the writes that channels are rebuilt from.

        A squash stores these writes under other ids, which no channel looks at.
        """
        rebuilt = {
            channel: replace(r, writes=tuple(("", *write[1:]) for write in r.writes))
            for channel, r in self.rebuilt.items()
        }
        return replace(self, rebuilt=rebuilt)

    @property
    def is_base_row(self) -> bool:
        """Whether the metadata says that this is no checkpoint of a run, but left by a squash."""
        return bool((self.metadata.value or {}).get("delta_mixin_squashed"))

    def differences(self, other: Reading) -> list[str]:
        """One line per part in which `other` differs from this reading."""
        lines = []
        for name in ("values", "metadata", "writes", "v", "rest", "rebuilt"):
            expected, read = getattr(self, name), getattr(other, name)
            if expected != read:
                lines.append(f"{name}: expected {expected!r}\n{' ' * len(name)}      read {read!r}")
        return lines


def keys(view: SyncView, thread_id: Any, namespaces: Iterable[str] = ()) -> list[Key]:
    """Namespace and id of every checkpoint of a thread, sorted.

    Args:
        view: The saver.
        thread_id: The thread.
        namespaces: Namespaces to ask for by name besides, for savers whose `list` without a
            namespace does not show all.
    """
    found: set[Key] = set()
    for ns in (None, *namespaces):
        for saved in view.list(view.config(thread_id, ns)):
            conf = saved.config["configurable"]
            if str(conf["thread_id"]) == str(thread_id):
                found.add((conf.get("checkpoint_ns", ""), saved.checkpoint["id"]))
    return sorted(found)


def head(view: SyncView, thread_id: Any, checkpoint_ns: str = "") -> str | None:
    """Id of the checkpoint that `get_tuple` without an id returns."""
    saved = view.get_tuple(view.config(thread_id, checkpoint_ns))
    return None if saved is None else saved.checkpoint["id"]


def read(
    view: SyncView,
    thread_id: Any,
    checkpoint_ns: str,
    checkpoint_id: str | None,
    channels: Collection[str],
) -> Reading | None:
    """Read a checkpoint as its readers do.

    Args:
        view: The saver.
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint; `None` for the newest.
        channels: The delta channels. Those populated here, and those that other channels'
            versions show were never written, are not walked for.

    Returns:
        The reading, or `None` if the checkpoint is not stored.
    """
    return _Thread(view, thread_id).read(checkpoint_ns, checkpoint_id, channels)


def read_thread(
    view: SyncView,
    thread_id: Any,
    channels: Collection[str] | None = None,
    namespaces: Iterable[str] = (),
) -> dict[Key, Reading]:
    """Read every checkpoint of a thread.

    Args:
        view: The saver.
        thread_id: The thread.
        channels: The delta channels; by default `delta_channels` of each namespace.
        namespaces: As for `keys`.
    """
    thread = _Thread(view, thread_id)
    stored = keys(view, thread_id, namespaces)
    readings: dict[Key, Reading] = {}
    for ns in dict.fromkeys(ns for ns, _ in stored):
        ids = [i for n, i in stored if n == ns]
        walked = thread.delta_channels(ns, ids) if channels is None else channels
        for checkpoint_id in ids:
            reading = thread.read(ns, checkpoint_id, walked)
            assert reading is not None, (
                f"list() of thread {thread_id!r} shows checkpoint {checkpoint_id} in namespace "
                f"{ns!r}, but get_tuple() does not find it"
            )
            readings[ns, checkpoint_id] = reading
    return readings


def delta_channels(view: SyncView, thread_id: Any, checkpoint_ns: str) -> set[str]:
    """Channels of a namespace that its counters or snapshots show to be delta channels."""
    ids = [i for ns, i in keys(view, thread_id) if ns == checkpoint_ns]
    return _Thread(view, thread_id).delta_channels(checkpoint_ns, ids)


def kept_by_walk(
    view: SyncView,
    thread_id: Any,
    checkpoint_ns: str,
    checkpoint_id: str,
    channels: Collection[str],
) -> set[str]:
    """The checkpoint and every ancestor that these channels are rebuilt from, as given."""
    thread = _Thread(view, thread_id)
    target = thread.saved(checkpoint_ns, checkpoint_id)
    if target is None:
        return set()
    kept = {checkpoint_id}
    for channel in channels:
        if channel not in target.checkpoint["channel_values"]:
            chain, _ = thread.walk(target, checkpoint_ns, channel)
            kept.update(saved.checkpoint["id"] for saved in chain)
    return kept


class _Thread:
    """A thread's checkpoints, each read once."""

    def __init__(self, view: SyncView, thread_id: Any) -> None:
        self.view = view
        self.thread_id = thread_id
        self._saved: dict[tuple[str, str | None], Any] = {}

    def saved(self, ns: str, checkpoint_id: str | None) -> Any:
        key = (ns, checkpoint_id)
        if key not in self._saved:
            self._saved[key] = self.view.get_tuple(self.view.config(self.thread_id, *key))
        return self._saved[key]

    def delta_channels(self, ns: str, ids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for checkpoint_id in ids:
            saved = self.saved(ns, checkpoint_id)
            for name in ("counters_since_delta_snapshot", "delta_updates_since_snapshot"):
                found.update((saved.metadata or {}).get(name) or ())
            values = saved.checkpoint["channel_values"]
            found.update(c for c, v in values.items() if type(v).__name__ == "_DeltaSnapshot")
        return found

    def read(self, ns: str, checkpoint_id: str | None, channels: Collection[str]) -> Reading | None:
        saved = self.saved(ns, checkpoint_id)
        if saved is None:
            return None
        rest = {k: v for k, v in saved.checkpoint.items() if k != "channel_values"}
        values = saved.checkpoint["channel_values"]
        versions = saved.checkpoint.get("channel_versions") or {}
        walked = [
            c for c in sorted(channels) if c not in values and (not versions or c in versions)
        ]
        return Reading(
            values={c: Stored(v) for c, v in values.items()},
            metadata=Stored(saved.metadata),
            writes=_writes(saved.pending_writes or ()),
            v=saved.checkpoint.get("v", 1),
            rest=Stored(rest),
            rebuilt=self._rebuilt(saved, ns, walked),
        )

    def walk(self, target: Any, ns: str, channel: str) -> tuple[list[Any], str]:
        """The ancestors that the channel is rebuilt from, nearest first, and how it ended."""
        chain: list[Any] = []
        seen = {target.checkpoint["id"]}
        current = target
        while True:
            parent = (current.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            if not parent:
                return chain, "start"
            if parent in seen:
                return chain, f"loop at {parent}"
            seen.add(parent)
            current = self.saved(ns, parent)
            if current is None:
                return chain, f"severed at {parent}"
            chain.append(current)
            if channel in current.checkpoint["channel_values"]:
                return chain, "seed"

    def _rebuilt(self, target: Any, ns: str, channels: list[str]) -> dict[str, Rebuilt]:
        walks = {c: self.walk(target, ns, c) for c in channels}
        rebuilt = {c: _from_walk(c, *walk) for c, walk in walks.items()}
        # Readers of some releases follow a loop for ever, and differ on what a break leaves.
        complete = [c for c in channels if rebuilt[c].ended in ("seed", "start")]
        if not complete:
            return rebuilt
        target_id = target.checkpoint["id"]
        config = self.view.config(self.thread_id, ns, target_id)
        histories = self.view.get_delta_channel_history(config=config, channels=complete)
        for channel in complete:
            history = histories[channel]
            seed = Stored(history["seed"]) if "seed" in history else None
            by_reader = Rebuilt(seed, _writes(history["writes"]), rebuilt[channel].ended)
            if _must_agree(target_id, walks[channel][0], rebuilt[channel]):
                same = by_reader == rebuilt[channel]
                assert same or _differ_in_order_only(by_reader, rebuilt[channel]), (
                    f"get_delta_channel_history of channel {channel!r} at checkpoint {target_id} "
                    f"in namespace {ns!r} of thread {self.thread_id!r}\n"
                    f"        returned {by_reader!r}\n"
                    f"the parents give {rebuilt[channel]!r}"
                )
            rebuilt[channel] = by_reader
        return rebuilt


def _must_agree(target_id: str, chain: list[Any], walked: Rebuilt) -> bool:
    """Whether every reader of this release must rebuild the same as the walk."""
    if walked.seed is not None and walked.seed.value is None:
        # A stored `None` populates a channel for some readers and not for others.
        return False
    if SETTLED_HOST:
        return True
    ids = [target_id, *(saved.checkpoint["id"] for saved in chain)]
    plain = walked.seed is not None and type(walked.seed.value).__name__ != "_DeltaSnapshot"
    return not plain and ids == sorted(ids, reverse=True)


def _differ_in_order_only(one: Rebuilt, other: Rebuilt) -> bool:
    """Whether it is the order of one checkpoint's writes, on a host that leaves it open."""
    ordered = [sorted(each.writes, key=repr) for each in (one, other)]
    return not SETTLED_HOST and one.seed == other.seed and ordered[0] == ordered[1]


def _from_walk(channel: str, chain: list[Any], ended: str) -> Rebuilt:
    seed = Stored(chain[-1].checkpoint["channel_values"][channel]) if ended == "seed" else None
    writes = [
        write
        for saved in reversed(chain)
        for write in saved.pending_writes or ()
        if write[1] == channel
    ]
    return Rebuilt(seed, _writes(writes), ended)


def _writes(writes: Iterable[tuple[str, str, Any]]) -> tuple[Write, ...]:
    return tuple((task_id, channel, Stored(value)) for task_id, channel, value in writes)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
