"""Look for damage in one namespace of a thread. Pure: no I/O, no saver.

No false alarm counts for more than finding everything. What can be told from rows alone:

1. Readers are judged at the *leaves*, checkpoints without a child: after every cleanup a leaf is
   a root. Rows kept only for replay may lawfully not read back themselves.
2. A channel is *firmly* delta where it is declared, counted by a row, or snapshot by one. Only
   such channels are held to what counters and versions promise.
3. A parent that is not stored is damage where a reader passes it: a channel that has a version at
   the child was written above. A child without versions says nothing, so it counts. Where only
   the planner's weaker evidence makes the channel delta, it is a warning.
4. A row without a parent is a start, or was detached. Where a channel has a version but no value at
   it, the channel began before it: a start gets versions only with what it stores.
   One start does: the first `update_state` of langgraph before 1.2.5, which lost its write.
5. A counter `[updates, supersteps]` rises by one update with each superstep that wrote the channel,
   and its writes lie at the parent. So the parent holds at least as many writes as updates were
   added, provided that supersteps rose exactly with `step`: then counting began or went on there.
   Runs of exit durability add many supersteps at once, with their writes at one parent.
6. A channel with a new version but no value, at a row whose parent holds no write of it, has lost
   one: rule 5 for rows of langgraph before 1.2.9, where `update_state` did not count.
7. Rows that the host did not write (neither its `source` nor its stub's step, or base rows of a
   squash) prove nothing.

Source of 4 to 6: langgraph `pregel/_loop.py` (`_put_checkpoint`, `_put_exit_delta_writes`),
`pregel/_checkpoint.py`, `pregel/main.py` (`update_state`), releases 1.2.0 to 1.2.24.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import Any, Literal, NamedTuple

from delta_mixin._view import NamespaceView
from delta_mixin.base_rows import is_base_row
from delta_mixin.channels import UnknownChannelsError, channels_to_replay, counters, is_hosts_own
from delta_mixin.findings import ADVICE, Finding, HistoryEnd, Kind, Orphans, Severity
from delta_mixin.model import CheckpointRow, Planning, RowKey

HOST_SOURCES = ("loop", "input", "update", "fork")
STUB_STEP = -2
"""Step of the row without metadata of a run that holds a thread's first writes."""


class Fate(NamedTuple):
    """How a walk up from a checkpoint ends, and at which row."""

    kind: Literal["seed", "start", "cut off", "severed", "loop"]
    at: str


class Promise(NamedTuple):
    """A row at which at least so many writes of a channel must be stored."""

    row: RowKey
    channel: str
    least: int
    severity: Severity


@dataclass
class Inspection:
    """What the rows of a namespace tell.

    Attributes:
        findings: What is wrong.
        promises: Of more than one write: their number has to be looked up.
        firm: The channels that are delta beyond doubt.
    """

    findings: list[Finding] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    firm: frozenset[str] = frozenset()


def inspect(thread_id: str, view: NamespaceView, declared: Collection[str]) -> Planning[Inspection]:
    """Look at every row of a namespace.

    Args:
        thread_id: The thread.
        view: Its rows of the namespace.
        declared: Channels known to be delta.
    """
    yield from view.need(view.ids, "metadata", "checkpoint", "writes")
    found = Inspection(firm=firm_channels(view, declared))
    leaves = _leaves(view)
    try:
        replayed = yield from channels_to_replay(view, leaves, declared)
    except UnknownChannelsError:
        replayed = {}
        what = "the thread is marked as using delta channels, but nothing stored names them"
        found.findings.append(_finding(thread_id, view, None, None, "unknown channels", what))
    firm = {i: open_channels(view[i]) & found.firm for i in view.ids}
    readers = {i: firm[i] | replayed.get(i, frozenset()) for i in leaves}
    fates = Fates(view)
    found.findings += _loops(thread_id, view)
    found.findings += _severed(thread_id, view, fates, readers, firm)
    found.findings += _cut_off(thread_id, view, fates, {i: firm[i] for i in leaves})
    for promise in _promises(view, found.firm, _passed(view, readers)):
        if promise.channel not in (view[promise.row.checkpoint_id].write_channels or ()):
            found.findings.append(too_few_writes(thread_id, promise, 0))
        elif promise.least > 1:
            found.promises.append(promise)
    return found


def firm_channels(view: NamespaceView, declared: Collection[str]) -> frozenset[str]:
    """Channels that are delta beyond doubt, of rows that have been read."""
    # A base row names what a squash took for delta, on weaker evidence too.
    counted = (counters(row.metadata) for row in view if not is_base_row(row.metadata))
    return frozenset(declared).union(*counted, *(row.snapshots or () for row in view))


def open_channels(row: CheckpointRow) -> frozenset[str]:
    """Channels with a version but no value at the row."""
    return frozenset(row.channel_versions or ()) - (row.populated or frozenset())


def began_before(row: CheckpointRow, channel: str) -> bool:
    """Whether a channel was written before a row that has no parent, or none that is stored."""
    if channel not in open_channels(row):
        return False
    metadata = row.metadata or {}
    step = metadata.get("step")
    lost_by_the_host = (
        row.parent_id is None
        and metadata.get("source") == "update"
        and isinstance(step, int)
        and step <= 0
        and not counters(metadata)
        # What a first superstep writes gets one version; another one's row has older ones as well.
        and len(set((row.channel_versions or {}).values())) == 1
    )
    return is_of_host(row) and not lost_by_the_host


def lost_channels(end: HistoryEnd, channels: Iterable[str]) -> list[str]:
    """Those of the channels, for which no value was found on the way, that began further up."""
    row = end.row
    if end.why == "start":
        return [c for c in channels if began_before(row, c)]
    return [c for c in channels if not row.channel_versions or c in open_channels(row)]


def is_of_host(row: CheckpointRow) -> bool:
    """Whether the host library wrote the row, not a tool that makes rows of its own."""
    metadata = row.metadata or {}
    if is_base_row(metadata):
        return False
    return metadata.get("source") in HOST_SOURCES or metadata.get("step") == STUB_STEP


def too_few_writes(thread_id: str, promise: Promise, stored: int) -> Finding:
    """The finding for a promise that is not kept."""
    ns, checkpoint_id = promise.row
    what = (
        f"its child promises at least {promise.least} write(s) of the channel here, "
        f"{stored} are stored"
    )
    return Finding(
        thread_id,
        ns,
        checkpoint_id,
        promise.channel,
        "dropped writes",
        promise.severity,
        what,
        ADVICE["dropped writes"],
    )


def orphan_findings(
    thread_id: str, orphans: Orphans, views: Mapping[str, NamespaceView]
) -> Iterator[Finding]:
    """What a saver tells of its stores, as findings."""
    for ns, checkpoint_id in orphans.writes:
        what = "writes are stored for it, the checkpoint itself is not"
        yield Finding(
            thread_id,
            ns,
            checkpoint_id,
            None,
            "orphaned writes",
            "note",
            what,
            ADVICE["orphaned writes"],
        )
    for ns, channel, version in orphans.blobs:
        what = f"version {version} is stored, no checkpoint references it"
        yield Finding(
            thread_id, ns, None, channel, "orphaned blob", "note", what, ADVICE["orphaned blob"]
        )
    told = set()
    for key, blob in sorted(orphans.missing_blobs, key=str):
        if blob not in told and key.checkpoint_id in views.get(key.checkpoint_ns, ()):
            told.add(blob)
            yield Finding(
                thread_id,
                key.checkpoint_ns,
                key.checkpoint_id,
                blob.channel,
                "missing blob",
                "error",
                f"version {blob.version} of the channel is referenced but not stored",
                ADVICE["missing blob"],
            )


class Fates:
    """How the walks of readers end, each stretch of a chain walked once per channel."""

    def __init__(self, view: NamespaceView) -> None:
        self._view = view
        self._known: dict[str, dict[str, Fate]] = {}

    def of(self, start: str, channel: str) -> Fate:
        """How a reader of the channel at `start`, where it has no value, fares above it."""
        known = self._known.setdefault(channel, {})
        path: dict[str, None] = {}
        row = self._view[start]
        while (fate := self._ends(row, channel, known, path)) is None:
            path[row.checkpoint_id] = None
            row = self._view[str(row.parent_id)]
        known.update(dict.fromkeys((*path, row.checkpoint_id), fate))
        return fate

    def _ends(
        self, row: CheckpointRow, channel: str, known: Mapping[str, Fate], path: Collection[str]
    ) -> Fate | None:
        if row.checkpoint_id in known:
            return known[row.checkpoint_id]
        if row.checkpoint_id in path:
            return Fate("loop", row.checkpoint_id)
        if row.parent_id is None:
            cut = began_before(row, channel)
            return Fate("cut off" if cut else "start", row.checkpoint_id)
        parent = self._view.get(row.parent_id)
        if parent is None:
            unwritten = row.channel_versions and channel not in row.channel_versions
            return Fate("start" if unwritten else "severed", row.checkpoint_id)
        if channel in (parent.populated or ()):
            return Fate("seed", parent.checkpoint_id)
        return None


def _leaves(view: NamespaceView) -> list[str]:
    parents = {row.parent_id for row in view}
    return [i for i in reversed(view.ids) if i not in parents]


def _severed(
    thread_id: str,
    view: NamespaceView,
    fates: Fates,
    leaves: Mapping[str, frozenset[str]],
    others: Mapping[str, frozenset[str]],
) -> Iterator[Finding]:
    """Parents that are not stored: needed by a leaf, by another row, or by none."""
    affected: dict[tuple[str, str], list[str]] = {}
    for readers in (leaves, others):
        for reader, channels in readers.items():
            for channel in sorted(channels):
                fate = fates.of(reader, channel)
                if fate.kind == "severed":
                    affected.setdefault((fate.at, channel), []).append(reader)
    for (child, channel), readers_of in affected.items():
        what = (
            f"its parent {view[child].parent_id} is not stored, so {channel!r} cannot be rebuilt "
            f"at {_some(dict.fromkeys(readers_of))}"
        )
        certain = channel in others[child] and leaves.keys() & set(readers_of)
        severity: Severity = "error" if certain else "warning"
        yield _finding(thread_id, view, child, channel, "severed", what, severity)
    needed = {child for child, _ in affected}
    for row in view:
        if row.checkpoint_id in needed or row.parent_id is None or row.parent_id in view:
            continue
        # Of a channel that is not known to be delta, its own rows may have gone with the parent.
        unsure = sorted(filterfalse(is_hosts_own, open_channels(row)))
        told = f"unless {_some(unsure)} is a delta channel" if unsure else "as far as can be told"
        what = f"its parent {row.parent_id} is not stored, which no reader needs, {told}"
        severity = "warning" if unsure else "note"
        yield _finding(thread_id, view, row.checkpoint_id, None, "dangling parent", what, severity)


def _cut_off(
    thread_id: str, view: NamespaceView, fates: Fates, leaves: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    affected: dict[tuple[str, str], list[str]] = {}
    for reader, channels in leaves.items():
        for channel in sorted(channels):
            fate = fates.of(reader, channel)
            if fate.kind == "cut off":
                affected.setdefault((fate.at, channel), []).append(reader)
    for (end, channel), readers in affected.items():
        row = view[end]
        counter = counters(row.metadata).get(channel)
        counted = f", counter {list(counter)}" if isinstance(counter, (list, tuple)) else ""
        what = (
            f"the history ends here, at step {(row.metadata or {}).get('step')}{counted}, "
            f"without a value to start from, for {_some(readers)}"
        )
        yield _finding(thread_id, view, end, channel, "cut off", what)


def _loops(thread_id: str, view: NamespaceView) -> Iterator[Finding]:
    done: set[str] = set()
    for start in view.ids:
        path: dict[str, None] = {}
        row = view.get(start)
        while row is not None and row.checkpoint_id not in done:
            if row.checkpoint_id in path:
                ids = [*path][[*path].index(row.checkpoint_id) :]
                # The row stored anew is the one whose parent is younger.
                again = next((i for i in ids if str(view[i].parent_id) >= i), min(ids))
                what = f"following its parents leads back to it, through {len(ids)} checkpoint(s)"
                yield _finding(thread_id, view, again, None, "loop", what)
                break
            path[row.checkpoint_id] = None
            row = view.get(row.parent_id)
        done.update(path)


def _passed(
    view: NamespaceView, readers: Mapping[str, frozenset[str]]
) -> Mapping[str, Collection[str]]:
    """Per channel, the rows that the readers collect writes from."""
    passed: dict[str, set[str]] = {}
    for reader, channels in readers.items():
        for channel in channels:
            rows = passed.setdefault(channel, set())
            row = view.get(view[reader].parent_id)
            while row is not None and row.checkpoint_id not in rows:
                rows.add(row.checkpoint_id)
                if channel in (row.populated or ()):
                    break
                row = view.get(row.parent_id)
    return passed


def _promises(
    view: NamespaceView, firm: Collection[str], passed: Mapping[str, Collection[str]]
) -> Iterator[Promise]:
    least: dict[tuple[str, str], int] = {}
    for row in view:
        parent = view.get(row.parent_id)
        if parent is None or not is_of_host(parent) or is_base_row(row.metadata):
            continue
        for channel in open_channels(row) & frozenset(firm):
            updates = _updates_between(parent, row, channel)
            if not updates:
                before = (parent.channel_versions or {}).get(channel)
                updates = int((row.channel_versions or {})[channel] != before)
            key = (parent.checkpoint_id, channel)
            least[key] = max(updates, least.get(key, 0))
    for (checkpoint_id, channel), updates in least.items():
        if updates:
            read = checkpoint_id in passed.get(channel, ())
            yield Promise(
                RowKey(view.checkpoint_ns, checkpoint_id),
                channel,
                updates,
                "error" if read else "warning",
            )


def _updates_between(parent: CheckpointRow, row: CheckpointRow, channel: str) -> int:
    """How many supersteps wrote the channel between two rows, as far as counters prove it."""
    after, before = _counter(row, channel), _counter(parent, channel)
    step, began = (row.metadata or {}).get("step"), (parent.metadata or {}).get("step")
    if after is None or before is None or not (isinstance(step, int) and isinstance(began, int)):
        return 0
    consistent = after[1] - before[1] == step - began
    return max(0, after[0] - before[0]) if consistent else 0


def _counter(row: CheckpointRow, channel: str) -> tuple[int, int] | None:
    stored: Any = counters(row.metadata).get(channel, (0, 0))
    if isinstance(stored, (list, tuple)) and len(stored) == 2:
        updates, supersteps = stored
        if isinstance(updates, int) and isinstance(supersteps, int):
            return updates, supersteps
    return None


def _some(ids: Iterable[str], shown: int = 3) -> str:
    listed: Sequence[str] = list(ids)
    more = f" and {len(listed) - shown} more" if len(listed) > shown else ""
    return ", ".join(listed[:shown]) + more


def _finding(
    thread_id: str,
    view: NamespaceView,
    checkpoint_id: str | None,
    channel: str | None,
    kind: Kind,
    what: str,
    severity: Severity | None = None,
) -> Finding:
    if severity is None:
        severity = "warning" if kind == "unknown channels" else "error"
    return Finding(
        thread_id, view.checkpoint_ns, checkpoint_id, channel, kind, severity, what, ADVICE[kind]
    )
