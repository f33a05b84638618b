"""Find threads that are damaged already: `verify_thread` over any saver.

It reads every checkpoint of the thread, so it is for the odd look and the nightly job, not for each
request. Verify threads at rest: while a run is active, its writes may lie ahead of their
checkpoint. What the judgement rests on is told in `delta_mixin.inspection`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from delta_mixin import _arguments, _steps, planner
from delta_mixin._drive import Call, Steps
from delta_mixin._hooks import CleanupHooks
from delta_mixin._planning_steps import answer_one, rows_of
from delta_mixin._view import NamespaceView
from delta_mixin.channels import counters
from delta_mixin.findings import Finding, Orphans, ThreadReport, ordered
from delta_mixin.inspection import (
    Inspection,
    Promise,
    inspect,
    orphan_findings,
    too_few_writes,
)
from delta_mixin.model import BlobKey, Planning, RowKey

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

__all__ = ["Finding", "Orphans", "ThreadReport", "averify_thread", "verify_thread"]


def verify_thread(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int | UUID,
    *,
    channels: Sequence[str] = (),
) -> ThreadReport:
    """Look for damage in a thread; changes nothing.

    Args:
        saver: Any saver. One with the mixins is asked through its hooks, which can also tell of
            orphaned writes and blobs; another one through `list` and `get_tuple`, so namespaces
            that its `list` does not show are not looked at.
        thread_id: The thread. One without checkpoints is reported as such.
        channels: Channels known to be delta, besides those detected and `DELTA_CHANNELS`.

    Returns:
        The report; its `findings` are empty for a healthy thread, and `str` of it is a table.

    Raises:
        TypeError, ValueError: For an unusable id, before anything is read.
        MissingHookError: If the saver has async hooks only.
    """
    asked, steps = _prepared(saver, thread_id, channels)
    return asked._run("verify_thread", steps)  # type: ignore[no-any-return]


async def averify_thread(
    saver: BaseCheckpointSaver[Any],
    thread_id: str | int | UUID,
    *,
    channels: Sequence[str] = (),
) -> ThreadReport:
    """Async twin of `verify_thread`."""
    asked, steps = _prepared(saver, thread_id, channels)
    return await asked._arun("verify_thread", steps)  # type: ignore[no-any-return]


class OutsideHooks(CleanupHooks):
    """The default hooks for a saver that has none: all goes through its public methods."""

    def __init__(self, saver: Any) -> None:
        self.outside = saver

    def list(self, config: Any, **options: Any) -> Iterator[Any]:
        """The saver's `list`."""
        return self.outside.list(config, **options)  # type: ignore[no-any-return]

    def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        """The saver's `alist`."""
        return self.outside.alist(config, **options)  # type: ignore[no-any-return]

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The saver's `get_next_version`."""
        return self.outside.get_next_version(current, channel)

    def put(self, *args: Any) -> Any:
        """The saver's `put`."""
        return self.outside.put(*args)

    async def aput(self, *args: Any) -> Any:
        """The saver's `aput`."""
        return await self.outside.aput(*args)

    def get_tuple(self, config: Any) -> Any:
        """The saver's `get_tuple`."""
        return self.outside.get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        """The saver's `aget_tuple`."""
        return await self.outside.aget_tuple(config)


def hooks_of(saver: Any) -> Any:
    """The saver itself if it has the hooks, else the default hooks around it."""
    return saver if isinstance(saver, CleanupHooks) else OutsideHooks(saver)


def _prepared(saver: Any, thread_id: Any, channels: Any) -> tuple[Any, Steps[ThreadReport]]:
    asked = hooks_of(saver)
    thread = _arguments.one_id(thread_id, "thread_id")
    declared = frozenset(_arguments.id_list(channels, "channel")).union(asked.DELTA_CHANNELS)
    return asked, verify(asked, thread, declared)


@dataclass(frozen=True)
class Look:
    """All that a verification has seen of a thread.

    Attributes:
        thread_id: The thread.
        views: Its namespaces, every row read.
        findings: What is wrong.
        missing_blobs: Values that checkpoints reference and that are not stored.
        orphans_checked: Whether the saver could tell of orphans.
    """

    thread_id: str
    views: Mapping[str, NamespaceView]
    findings: tuple[Finding, ...]
    missing_blobs: tuple[tuple[RowKey, BlobKey], ...]
    orphans_checked: bool


def verify(saver: Any, thread_id: str, declared: frozenset[str]) -> Steps[ThreadReport]:
    """Look at the thread and report."""
    seen = yield from look(saver, thread_id, declared)
    rows = sum(map(len, seen.views.values()))
    return ThreadReport(thread_id, rows, tuple(seen.views), seen.findings, seen.orphans_checked)


def look(saver: Any, thread_id: str, declared: frozenset[str]) -> Steps[Look]:
    """Read the thread in one scope and judge it."""

    def body() -> Steps[tuple[Mapping[str, NamespaceView], dict[str, Inspection], Any]]:
        rows = yield from rows_of(saver, [thread_id])
        views = planner.group_rows(rows[thread_id])

        def each() -> Planning[dict[str, Inspection]]:
            found = {}
            for ns, view in views.items():
                found[ns] = yield from inspect(thread_id, view, declared)
            return found

        inspected = yield from answer_one(saver, thread_id, each())
        orphans = yield Call("_list_orphans", (thread_id,))
        return views, inspected, orphans

    views, inspected, orphans = yield from _steps._attempt(saver, "_read_scope", (thread_id,), body)
    findings = [f for found in inspected.values() for f in found.findings]
    promises = [p for found in inspected.values() for p in found.promises]
    # Outside the scope, in which public methods of a saver may wait for its own lock.
    findings += yield from _kept_short(saver, thread_id, promises)
    known = Orphans() if orphans is None else _certain(orphans, views, inspected)
    findings += orphan_findings(thread_id, known, views)
    return Look(thread_id, views, ordered(findings), known.missing_blobs, orphans is not None)


def _kept_short(saver: Any, thread_id: str, promises: Sequence[Promise]) -> Steps[list[Finding]]:
    by_row: dict[RowKey, list[Promise]] = {}
    for promise in promises:
        by_row.setdefault(promise.row, []).append(promise)
    findings = []
    for key, of_row in by_row.items():
        saved = yield Call("get_tuple", (saver._checkpoint_config(thread_id, *key),))
        if saved is None or saved.pending_writes is None:
            continue  # gone meanwhile, or the saver does not say
        for promise in of_row:
            stored = sum(write[1] == promise.channel for write in saved.pending_writes)
            if stored < promise.least:
                findings.append(too_few_writes(thread_id, promise, stored))
    return findings


def _certain(
    orphans: Orphans, views: Mapping[str, NamespaceView], inspected: Mapping[str, Inspection]
) -> Orphans:
    """Without the missing blobs that may be a stored `True`, as hooks cannot tell that apart."""

    def certain(key: RowKey, blob: BlobKey) -> bool:
        view = views.get(key.checkpoint_ns)
        row = view.get(key.checkpoint_id) if view is not None else None
        if view is None or row is None:
            return False
        if blob.channel not in (row.populated or ()):
            return True
        # A plain `True` would be of a time before the channel became a delta channel.
        older = (r for r in view if r.checkpoint_id < row.checkpoint_id)
        counted = row.parent_id is None or any(blob.channel in counters(r.metadata) for r in older)
        return blob.channel in inspected[key.checkpoint_ns].firm and counted

    missing = tuple((key, blob) for key, blob in orphans.missing_blobs if certain(key, blob))
    return Orphans(orphans.writes, orphans.blobs, missing)
