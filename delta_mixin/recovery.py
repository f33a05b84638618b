"""Branch off what is left of a damaged thread: `recover`.

1. Nothing is changed in place. What can be rebuilt goes into a new checkpoint, a child of the one
   recovered, which holds a snapshot of every delta channel and is the newest from then on.
2. A value is rebuilt by the channel itself, from the nearest value left and the writes found since.
3. Where rows are missing in the middle, the walk goes on at the newest checkpoint above the gap
   that leads nowhere else. This is an assumption, and told as one.
4. What is known to be lost is told, by the steps and counters on both sides of a gap.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from delta_mixin import _arguments
from delta_mixin._drive import Call, Steps
from delta_mixin._view import NamespaceView
from delta_mixin.channels import COUNTERS, counters
from delta_mixin.errors import NothingToRecoverError, RecoveryFailedError, ThreadNotFoundError
from delta_mixin.findings import Finding
from delta_mixin.inspection import Fates
from delta_mixin.model import CheckpointRow
from delta_mixin.verification import Look, hooks_of, look

if TYPE_CHECKING:
    from langgraph.channels.delta import DeltaChannel
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.pregel import Pregel

__all__ = ["RecoveredChannel", "Recovery", "arecover", "recover"]


@dataclass(frozen=True)
class RecoveredChannel:
    """What can be rebuilt of one channel.

    Attributes:
        channel: Its name.
        value: The value, as the channel rebuilds it.
        seed_id: The checkpoint whose stored value it starts from; `None` if it starts empty.
        writes: How many writes were found and replayed.
        lost: What is known to be lost, in sentences; empty for a channel that is whole.
    """

    channel: str
    value: Any
    seed_id: str | None
    writes: int
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recovery:
    """What `recover` can restore of a checkpoint, and what it has stored.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint recovered, the newest of the namespace.
        channels: Its delta channels, those that lost something first.
        fork_id: The new checkpoint; `None` if nothing was stored.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    channels: tuple[RecoveredChannel, ...]
    fork_id: str | None = None

    def __str__(self) -> str:
        ns = f" in namespace {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        stored = f"stored as {self.fork_id}" if self.fork_id else "nothing stored yet"
        lines = [f"thread {self.thread_id!r}, checkpoint {self.checkpoint_id}{ns}: {stored}"]
        for found in self.channels:
            start = f"the value at {found.seed_id}" if found.seed_id else "empty"
            lines.append(f"  {found.channel}: {found.writes} write(s) on {start}")
            lines += [f"    lost: {sentence}" for sentence in found.lost or ("nothing known",)]
        return "\n".join(lines)


def recover(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int | UUID,
    channels: Pregel[Any, Any, Any, Any] | Mapping[str, DeltaChannel[Any]],
    *,
    checkpoint_ns: str = "",
    apply: bool = False,
) -> Recovery:
    """Show what is left of the newest checkpoint's delta channels and, on request, store it.

    Args:
        saver: Any saver, strict or not.
        thread_id: The thread; no run should be active on it.
        channels: The compiled graph whose checkpoints these are, or its delta channels by name. For
            a subgraph's namespace, the subgraph or its channels.
        checkpoint_ns: The namespace; `""` is the root graph.
        apply: Store a new checkpoint with the values, as a child of the newest. The tasks pending
            at that one are not carried over: they run again from the new one.

    Returns:
        What was rebuilt and what is known to be lost; with `apply` also the new checkpoint's id.

    Raises:
        TypeError, ValueError: For unusable arguments, and for a namespace that the thread lacks.
        ThreadNotFoundError: If the thread holds no checkpoint.
        NothingToRecoverError: If nothing of the newest checkpoint is known to be lost.
        RecoveryFailedError: If the saver does not give back what was stored.
    """
    asked = hooks_of(saver)
    steps = _prepared(asked, thread_id, channels, checkpoint_ns, apply)
    return asked._run("recover", steps)  # type: ignore[no-any-return]


async def arecover(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int | UUID,
    channels: Pregel[Any, Any, Any, Any] | Mapping[str, DeltaChannel[Any]],
    *,
    checkpoint_ns: str = "",
    apply: bool = False,
) -> Recovery:
    """Async twin of `recover`."""
    asked = hooks_of(saver)
    steps = _prepared(asked, thread_id, channels, checkpoint_ns, apply)
    return await asked._arun("recover", steps)  # type: ignore[no-any-return]


def _prepared(
    asked: Any, thread_id: Any, channels: Any, checkpoint_ns: str, apply: bool
) -> Steps[Recovery]:
    thread = _arguments.one_id(thread_id, "thread_id")
    return _recover(asked, thread, checkpoint_ns, _delta_channels(channels), apply)


def _delta_channels(channels: Any) -> dict[str, Any]:
    """The delta channels of a graph or a mapping."""
    of_graph = getattr(channels, "channels", None)
    given = of_graph if of_graph is not None else channels
    if not isinstance(given, Mapping):
        raise TypeError(
            f"channels must be a compiled graph or a mapping of names to DeltaChannels, "
            f"got {channels!r}"
        )
    found = {name: c for name, c in given.items() if hasattr(c, "replay_writes")}
    if of_graph is None and (wrong := sorted(given.keys() - found.keys())):
        raise TypeError(f"channel {wrong[0]!r} is no DeltaChannel: {given[wrong[0]]!r}")
    if not found:
        raise ValueError("no DeltaChannel given; pass the graph that wrote the thread")
    return found


def _recover(
    saver: Any, thread_id: str, ns: str, channels: Mapping[str, Any], apply: bool
) -> Steps[Recovery]:
    seen = yield from look(saver, thread_id, frozenset(channels))
    if not seen.views:
        raise ThreadNotFoundError(thread_id)
    if ns not in seen.views:
        known = ", ".join(map(repr, seen.views))
        raise ValueError(f"thread {thread_id!r} has no namespace {ns!r}; it has {known}")
    view = seen.views[ns]
    saved = yield Call("get_tuple", (saver._checkpoint_config(thread_id, ns, None),))
    head = saved.checkpoint["id"]
    found: list[RecoveredChannel] = []
    for name in sorted(channels.keys() & (view[head].channel_versions or {}).keys()):
        rebuilt = yield from _rebuild(saver, seen, view, head, name, channels[name])
        found.append(rebuilt)
    if not any(channel.lost for channel in found):
        raise NothingToRecoverError(
            f"thread {thread_id!r}: nothing of checkpoint {head} in namespace {ns!r} is known to "
            "be lost, so there is nothing to recover. verify_thread looks at all checkpoints"
        )
    found.sort(key=lambda channel: not channel.lost)
    recovery = Recovery(thread_id, ns, head, tuple(found))
    if not apply:
        return recovery
    return (yield from _store(saver, view, saved, recovery))


def _rebuild(
    saver: Any, seen: Look, view: NamespaceView, head: str, name: str, channel: Any
) -> Steps[RecoveredChannel]:
    gone = {blob[0].checkpoint_id for blob in seen.missing_blobs if blob[1].channel == name}
    short = {
        f.checkpoint_id: f
        for f in seen.findings
        if f.kind == "dropped writes"
        and f.channel == name
        and f.checkpoint_ns == view.checkpoint_ns
    }
    walk = _Walk(view, head, name, gone)
    lost: list[str] = []
    if head in gone:
        lost.append(f"the value stored at checkpoint {head} itself")
    # There is a channel, so langgraph is there. Its older releases take None for a value.
    from langgraph._internal._typing import MISSING

    writes: list[Any] = []
    seed: Any = MISSING
    for checkpoint_id in walk:
        config = saver._checkpoint_config(seen.thread_id, view.checkpoint_ns, checkpoint_id)
        saved = yield Call("get_tuple", (config,))
        if checkpoint_id == walk.seed_id:
            seed = saved.checkpoint["channel_values"][name]
        if checkpoint_id == head:
            break  # its own value; its writes belong to what comes after it
        here = [write for write in saved.pending_writes or () if write[1] == name]
        writes = [*here, *writes]
        lost += _told_of(short.get(checkpoint_id))
    lost += walk.lost
    rebuilt = channel.from_checkpoint(seed)
    rebuilt.replay_writes(writes)
    return RecoveredChannel(name, rebuilt.get(), walk.seed_id, len(writes), tuple(lost))


class _Walk:
    """The rows that a channel can be rebuilt from, nearest first, over gaps.

    Attributes:
        seed_id: The row whose value it starts from, once the walk has ended.
        lost: What the walk found missing.
    """

    def __init__(self, view: NamespaceView, head: str, channel: str, gone: Collection[str]) -> None:
        self.seed_id: str | None = None
        self.lost: list[str] = []
        self._view, self._head, self._channel, self._gone = view, head, channel, gone

    def __iter__(self) -> Iterator[str]:
        view, passed = self._view, {self._head}
        row = view[self._head]
        if self._holds(row):
            self.seed_id = row.checkpoint_id
            yield row.checkpoint_id
            return
        while True:
            above = view.get(row.parent_id)
            if above is None or above.checkpoint_id in passed:
                fate = Fates(view).of(row.checkpoint_id, self._channel)
                if fate.kind == "start":
                    return
                above = self._over_the_gap(row, passed)
                if above is None:
                    return
            row = above
            passed.add(row.checkpoint_id)
            if self._holds(row):
                self.seed_id = row.checkpoint_id
            yield row.checkpoint_id
            if self.seed_id:
                return

    def _holds(self, row: CheckpointRow) -> bool:
        if row.checkpoint_id in self._gone:
            if row.checkpoint_id != self._head:
                self.lost.append(f"the value stored at checkpoint {row.checkpoint_id}")
            return False
        return self._channel in (row.populated or ())

    def _over_the_gap(self, below: CheckpointRow, passed: Collection[str]) -> CheckpointRow | None:
        view = self._view
        parents = {row.parent_id for row in view}
        ends = [
            row
            for row in view
            if row.checkpoint_id not in parents
            and row.checkpoint_id not in passed
            and row.checkpoint_id < below.checkpoint_id
            and _step(row) < _step(below)
        ]
        counted = _updates(below, self._channel)
        if not ends:
            updates = f", {counted} update(s) since then among it" if counted else ""
            self.lost.append(
                f"everything up to checkpoint {below.checkpoint_id}, step {_step(below)}: the "
                f"value it was built on{updates}"
            )
            return None
        above = max(ends, key=operator.attrgetter("checkpoint_id"))
        between = max(0, _step(below) - _step(above) - 1)
        others = f", of {len(ends)} that could be" if len(ends) > 1 else ""
        self.lost.append(
            f"the writes of {between or 'some'} checkpoint(s) between {above.checkpoint_id} and "
            f"{below.checkpoint_id}, steps {_step(above)} and {_step(below)}. That the first leads "
            f"to the second is assumed{others}"
        )
        return above


def _store(saver: Any, view: NamespaceView, saved: Any, recovery: Recovery) -> Steps[Recovery]:
    from langgraph.checkpoint.base.id import uuid6
    from langgraph.checkpoint.serde.types import _DeltaSnapshot

    head = view[recovery.checkpoint_id]
    step = _step(head) + 1
    fork_id = str(uuid6(clock_seq=step))
    if fork_id <= view.newest.checkpoint_id:
        raise RecoveryFailedError(
            f"the new checkpoint's id {fork_id} would sort below {view.newest.checkpoint_id}; the "
            "clock of this machine is behind. Nothing was stored"
        )
    checkpoint = dict(saved.checkpoint)
    versions = dict(checkpoint["channel_versions"])
    newest = max(versions.values(), default=None)
    values = {c.channel: _DeltaSnapshot(c.value) for c in recovery.channels}
    bumped = {name: saver.get_next_version(newest, None) for name in values}
    checkpoint |= {
        "id": fork_id,
        "channel_values": {**checkpoint["channel_values"], **values},
        "channel_versions": {**versions, **bumped},
        # A snapshot is no write: nobody is to run because of it.
        "versions_seen": {
            node: {c: bumped.get(c, v) if v == versions.get(c) else v for c, v in seen.items()}
            for node, seen in checkpoint["versions_seen"].items()
        },
        "updated_channels": None,
    }
    metadata: dict[str, Any] = {"source": "fork", "step": step}
    metadata["parents"] = (saved.metadata or {}).get("parents", {})
    left = {c: v for c, v in counters(head.metadata).items() if c not in values}
    if left:
        metadata[COUNTERS] = left
    config = saver._checkpoint_config(recovery.thread_id, view.checkpoint_ns, head.checkpoint_id)
    yield Call("put", (config, checkpoint, metadata, bumped))
    config = saver._checkpoint_config(recovery.thread_id, view.checkpoint_ns, fork_id)
    stored = yield Call("get_tuple", (config,))
    back = {} if stored is None else stored.checkpoint["channel_values"]
    for name, snapshot in values.items():
        if not isinstance(back.get(name), _DeltaSnapshot) or back[name].value != snapshot.value:
            raise RecoveryFailedError(
                f"the saver gives back {back.get(name)!r} for channel {name!r} of the new "
                f"checkpoint {fork_id}, not what was stored; the older checkpoints are unchanged"
            )
    return replace(recovery, fork_id=fork_id)


def _told_of(finding: Finding | None) -> list[str]:
    return [] if finding is None else [f"at checkpoint {finding.checkpoint_id}, {finding.what}"]


def _step(row: CheckpointRow) -> int:
    step = (row.metadata or {}).get("step")
    return step if isinstance(step, int) else -1


def _updates(row: CheckpointRow, channel: str) -> int:
    counter = counters(row.metadata).get(channel)
    first = counter[0] if isinstance(counter, (list, tuple)) and counter else 0
    return first if isinstance(first, int) else 0
