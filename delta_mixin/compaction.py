"""Compaction: with the graph's reducers, one checkpoint per namespace is enough.

Walk-to-boundary keeps the checkpoints that a channel is rebuilt from. `compact` builds the value
once and stores it in the checkpoint that was to be read, as the graph itself does every so many
updates; from then on nothing above it is needed.

1. What to keep is planned as for `prune`, `delete_for_runs` or `copy_thread`. Each root above
   which a row is kept only for replay gets the values of the channels replayed there.
2. All values of a thread are built before any is stored. Each is built twice, from two readings,
   all writes at once and one by one: a difference stops the thread with `CompactionError`.
3. What is stored keeps id, parent, versions and pending writes; the channels' counters start
   anew. It is read back and compared before anything is deleted, else taken back.
4. Where the saver allows, a thread is one transaction. Elsewhere the order makes up for it:
   a checkpoint that was rewritten reads as before, so a killed compaction can be repeated.
5. What cannot be resolved keeps its history, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from delta_mixin import _arguments, _compacting_steps, _steps
from delta_mixin._compacting_values import CompactionReport, LeftChannel
from delta_mixin._drive import Steps
from delta_mixin._hooks import CleanupHooks
from delta_mixin._resolving import GraphChannels

if TYPE_CHECKING:
    from langgraph.channels import DeltaChannel
    from langgraph.pregel import Pregel

    Graph = Pregel[Any, Any, Any, Any]

__all__ = [
    "CompactionReport",
    "LeftChannel",
    "acompact",
    "acopy_thread",
    "adelete_for_runs",
    "compact",
    "copy_thread",
    "delete_for_runs",
]

Ids = Sequence["str | int | UUID"]
Named = Mapping[str, "DeltaChannel[Any]"]
OnReport = Callable[[CompactionReport], object]


def compact(
    graph: Graph,
    thread_ids: Ids,
    *,
    saver: Any = None,
    channels: Named | None = None,
    prune: bool = False,
    keep_last: int = 1,
    older_than: timedelta | datetime | None = None,
    pinned: Sequence[str] = (),
    on_report: OnReport | None = None,
) -> list[CompactionReport]:
    """Store the values of delta channels where `prune` would keep older checkpoints for them.

    Args:
        graph: The compiled graph whose threads they are; its reducers rebuild the values.
        thread_ids: Threads to compact; unknown ones are passed over.
        saver: A saver with the mixins; by default the graph's.
        channels: A `DeltaChannel` for each channel that the graph no longer has as one.
        prune: Delete in the same go what is not needed any more. `keep_last`, `older_than` and
            `pinned` say what to keep as they do for `prune`.
        keep_last: Compact so that the newest so many checkpoints need nothing else.
        older_than: The same for checkpoints younger than this.
        pinned: The same for these checkpoints.
        on_report: Called with the report of each thread, once its changes are stored.

    Returns:
        A report per thread that has rows, in the order given, but those that failed.

    Raises:
        TypeError, ValueError: For unusable arguments, before anything is read.
        CompactionError: After all other threads are done, for threads with a value that could
            not be stored safely; nothing of them was changed.
        SeveredHistoryError: After all other threads are done.
        UnknownDeltaChannelsError: After all other threads are done.
        RewriteUnsafeError: If the saver turns out not to rewrite checkpoints safely; this thread
            and the ones behind it are unchanged.
    """
    subject = _saver_of(graph, saver)
    steps = _compact(subject, graph, thread_ids, channels, **_options(locals()))
    return subject._run("compact", steps)


async def acompact(
    graph: Graph,
    thread_ids: Ids,
    *,
    saver: Any = None,
    channels: Named | None = None,
    prune: bool = False,
    keep_last: int = 1,
    older_than: timedelta | datetime | None = None,
    pinned: Sequence[str] = (),
    on_report: OnReport | None = None,
) -> list[CompactionReport]:
    """Async twin of `compact`; `on_report` may return an awaitable."""
    subject = _saver_of(graph, saver)
    steps = _compact(subject, graph, thread_ids, channels, **_options(locals()))
    return await subject._arun("compact", steps)


def delete_for_runs(
    graph: Graph,
    run_ids: Ids,
    *,
    thread_ids: Ids | None = None,
    saver: Any = None,
    channels: Named | None = None,
    on_report: OnReport | None = None,
) -> list[CompactionReport]:
    """Delete all checkpoints of runs: what others were rebuilt from them is stored first.

    Args:
        graph: As for `compact`.
        run_ids: Runs to delete; unknown ones are passed over.
        thread_ids: Look only at these threads, otherwise at all that hold rows of the runs.
        saver: As for `compact`.
        channels: As for `compact`.
        on_report: As for `compact`.

    Returns, raises: As `compact`.
    """
    subject = _saver_of(graph, saver)
    steps = _delete_for_runs(subject, graph, run_ids, thread_ids, channels, on_report)
    return subject._run("delete_for_runs", steps)


async def adelete_for_runs(
    graph: Graph,
    run_ids: Ids,
    *,
    thread_ids: Ids | None = None,
    saver: Any = None,
    channels: Named | None = None,
    on_report: OnReport | None = None,
) -> list[CompactionReport]:
    """Async twin of `delete_for_runs`; `on_report` may return an awaitable."""
    subject = _saver_of(graph, saver)
    steps = _delete_for_runs(subject, graph, run_ids, thread_ids, channels, on_report)
    return await subject._arun("delete_for_runs", steps)


def copy_thread(
    graph: Graph,
    source_thread_id: str | int | UUID,
    target_thread_id: str | int | UUID,
    *,
    checkpoint_id: str,
    saver: Any = None,
    channels: Named | None = None,
) -> CompactionReport:
    """Branch a thread off at a checkpoint, without the history behind it.

    The copy holds that checkpoint of the root namespace, the subgraph calls that started from it
    and the state that `checkpointer=True` subgraphs had then; the source stays as it is.

    Args:
        graph: As for `compact`.
        source_thread_id: Thread to copy from.
        target_thread_id: Id of the copy; must hold no rows.
        checkpoint_id: A checkpoint of the source's root namespace.
        saver: As for `compact`.
        channels: As for `compact`.

    Returns:
        The report on the copy.

    Raises:
        As the saver's `copy_thread` and `compact`; the target then holds no rows.
    """
    subject = _saver_of(graph, saver)
    steps = _copy(subject, graph, source_thread_id, target_thread_id, checkpoint_id, channels)
    return subject._run("copy_thread", steps)


async def acopy_thread(
    graph: Graph,
    source_thread_id: str | int | UUID,
    target_thread_id: str | int | UUID,
    *,
    checkpoint_id: str,
    saver: Any = None,
    channels: Named | None = None,
) -> CompactionReport:
    """Async twin of `copy_thread`."""
    subject = _saver_of(graph, saver)
    steps = _copy(subject, graph, source_thread_id, target_thread_id, checkpoint_id, channels)
    return await subject._arun("copy_thread", steps)


def _compact(
    saver: CleanupHooks,
    graph: Graph,
    thread_ids: Any,
    channels: Named | None,
    prune: bool,
    on_report: OnReport | None,
    **options: Any,
) -> Steps[list[CompactionReport]]:
    known = _channels_of(graph, channels)
    rules = _arguments.prune_rules(
        strategy="keep_latest", delta="keep_history", severed="refuse", **options
    )
    threads = _arguments.id_list(thread_ids, "thread_id")
    if prune:
        saver._require_hooks("_delete_checkpoint_rows")
    planned = _steps.prune_planner(saver, "keep_latest", rules)
    return _compacting_steps.compact(saver, known, threads, planned, prune, on_report)


def _delete_for_runs(
    saver: CleanupHooks,
    graph: Graph,
    run_ids: Any,
    thread_ids: Any,
    channels: Named | None,
    on_report: OnReport | None,
) -> Steps[list[CompactionReport]]:
    known = _channels_of(graph, channels)
    runs = _arguments.id_list(run_ids, "run_id")
    threads = None if thread_ids is None else _arguments.id_list(thread_ids, "thread_id")
    saver._require_hooks("_delete_checkpoint_rows")
    return _compacting_steps.delete_for_runs(saver, known, runs, threads, on_report)


def _copy(
    saver: CleanupHooks,
    graph: Graph,
    source: Any,
    target: Any,
    checkpoint_id: Any,
    channels: Named | None,
) -> Steps[CompactionReport]:
    known = _channels_of(graph, channels)
    source = _arguments.one_id(source, "source_thread_id")
    target = _arguments.one_id(target, "target_thread_id")
    if source == target:
        raise ValueError(
            f"source and target are the same thread {source!r}; choose an unused target id"
        )
    checkpoint_id = _arguments.one_id(checkpoint_id, "checkpoint_id")
    saver._require_hooks("_delete_checkpoint_rows")
    return _compacting_steps.copy_thread(saver, known, source, target, checkpoint_id)


def _saver_of(graph: Any, saver: Any) -> CleanupHooks:
    try:
        from langgraph.pregel import Pregel
    except ImportError:
        raise ImportError("compaction needs the graphs themselves: pip install langgraph") from None
    if not isinstance(graph, Pregel):
        hint = "; call compile() on it first" if hasattr(graph, "compile") else ""
        raise TypeError(f"graph must be a compiled graph, got {type(graph).__name__}{hint}")
    found = graph.checkpointer if saver is None else saver
    if not isinstance(found, CleanupHooks):
        raise TypeError(
            f"compaction needs a saver with DeltaChannelAwarePruneMixin, got {found!r}; "
            "compile the graph with one, or pass saver="
        )
    return found


def _channels_of(graph: Any, channels: Named | None) -> GraphChannels:
    from langgraph.channels import DeltaChannel

    named = dict(channels or {})
    for name, spec in named.items():
        if not isinstance(spec, DeltaChannel):
            raise TypeError(f"channels[{name!r}] must be a DeltaChannel, got {spec!r}")
    return GraphChannels(graph, named)


def _options(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of `compact`, from its `locals()`."""
    names = ("prune", "keep_last", "older_than", "pinned", "on_report")
    return {name: arguments[name] for name in names}
