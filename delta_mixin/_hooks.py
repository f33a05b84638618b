"""The hooks a saver writes, the ones it may write, and their defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, ClassVar

from delta_mixin import _defaults, _rewriting
from delta_mixin._batch_hooks import BatchHooks
from delta_mixin._drive import Steps, adrive, drive, twin
from delta_mixin.errors import MissingHookError
from delta_mixin.findings import HistoryEnd, Orphans
from delta_mixin.model import CheckpointRow, CleanupPlan, Reads, T

HOOKS = (
    "_list_checkpoint_rows",
    "_delete_checkpoint_rows",
    "_squash_checkpoint_rows",
    "_copy_checkpoint_rows",
    "_list_run_threads",
    "_list_namespaces",
    "_read_checkpoint_rows",
    "_read_batch_rows",
    "_cleanup_scope",
    "_rewrite_checkpoint",
)


class CleanupHooks(BatchHooks):
    """What both mixins ask of a saver. Not used on its own.

    One hook has no default: `_delete_checkpoint_rows`. Every hook has an async twin with `_a`
    in front. Write the sync hooks, and async methods run the whole operation in a worker
    thread; write the async ones, and sync methods raise and name the async one; write both, and
    each side uses its own. A sync hook without a twin beside async ones runs in a worker thread.
    """

    DELTA_CHANNELS: ClassVar[Collection[str]] = ()
    """Channels known to be delta. They are added to the ones detected, never trusted alone."""

    CLEANUP_BATCH_SIZE: ClassVar[int] = 1
    """How many threads go through the hooks together."""

    CLEANUP_BATCH_ROWS: ClassVar[int | None] = None
    """At how many checkpoints a batch is closed early, with `_count_checkpoint_rows` written;
    `None` looks at the number of threads only."""

    LISTS_ALL_THREADS: ClassVar[bool] = False
    """Whether `list(None, filter=...)` finds the rows of a `run_id` in all threads."""

    NEWEST_ID_IS_HEAD: ClassVar[bool] = False
    """Whether `get_tuple` without an id always returns the greatest id of the namespace.
    Saves one read per namespace; leave it `False` if the saver keeps a pointer."""

    VERSIONED_BLOBS: ClassVar[bool] = False
    """Whether channel values are stored apart, keyed by channel and version. Plans then list
    the blobs that nothing references any more in `dead_blobs`."""

    VALUES_BY_VERSION: ClassVar[bool] = True
    """Whether checkpoints with the same version of a channel may share what is stored of it. `True`
    costs compaction a look at the other checkpoints; `False` suits stores of whole checkpoints."""

    READS_IN_SCOPE: ClassVar[bool] = False
    """Whether the public methods that read can be called inside `_cleanup_scope`, and see there
    what it has changed. Compaction of a thread is one scope only if so."""
    REPLAYS_PLAIN_SEEDS: ClassVar[bool] = True
    """Whether the saver's reader replays the writes of a checkpoint that holds a plain value of
    their delta channel. If not, a squash leaves such checkpoints as they are."""

    # -- the hooks ---------------------------------------------------------------------------

    def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> Iterable[CheckpointRow]:
        """All rows of the threads, every namespace, in any order.

        Every stored checkpoint must be listed, once or more often; rows of other threads are
        ignored. Rows may be lean. No cursor may stay open when the result is exhausted. The
        default is built on `list()`, namespace by namespace.
        """
        return self._default(
            "_list_checkpoint_rows", _defaults.list_checkpoint_rows(self, thread_ids)
        )

    async def _alist_checkpoint_rows(self, thread_ids: Sequence[str]) -> Iterable[CheckpointRow]:
        """Async twin of `_list_checkpoint_rows`."""
        if (steps := self._sync_hook("_list_checkpoint_rows", thread_ids)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.list_checkpoint_rows(self, thread_ids))

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        """Carry out the plans: the one hook every saver writes.

        For each plan, in one transaction where the backend has them: delete the checkpoints in
        `doomed` and the writes stored under exactly these; clear the parent pointer of
        `detached` rows; delete `dead_blobs`; delete all that is stored under
        `dropped_namespaces`; point the heads to `heads` if the saver keeps such pointers. Match
        ids exactly. Deleting what is already gone is not an error. Without transactions,
        delete writes before their checkpoints and detach last, so that an interrupted cleanup
        can be repeated. Errors of the backend pass through to the caller.
        """
        raise self._missing("_delete_checkpoint_rows")

    async def _adelete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        """Async twin of `_delete_checkpoint_rows`."""
        if (steps := self._sync_hook("_delete_checkpoint_rows", plans)) is not None:
            return await steps  # type: ignore[no-any-return]
        raise self._missing("_adelete_checkpoint_rows")

    def _squash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        """Store the base rows of the plans; needed for `delta="squash"` only.

        For each `BaseRow` of `plan.bases`, in order: store the checkpoint
        `base.checkpoint(values)` with `base.metadata` under `base.parent_id`, where `values` are
        what the rows named by `base.seeds` hold for these channels (where values are stored apart
        by version, `base.channel_versions` refers to them already); store the writes that the
        rows named by `base.writes` have for these channels, in the order in which readers see
        them, under the task id and path given; then let `base.children` name the base row as
        their parent, all else of them unchanged. A row's metadata is stored as it is, without
        adding what a config says.

        Called in the same scope as, and just before, `_delete_checkpoint_rows` with the same
        plans, which deletes the rows that base rows stand for. Without transactions, keep that
        order: a cleanup that is cut off reads as before, and can be repeated.
        """
        raise self._missing("_squash_checkpoint_rows")

    async def _asquash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        """Async twin of `_squash_checkpoint_rows`."""
        if (steps := self._sync_hook("_squash_checkpoint_rows", plans)) is not None:
            return await steps  # type: ignore[no-any-return]
        raise self._missing("_asquash_checkpoint_rows")

    def _copy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        """Copy the rows, their writes and blobs to a thread that holds nothing yet.

        Ids, metadata, values and the order of writes stay as they are, parents as the rows name
        them: a row whose parent is not copied names none. Nothing of the source changes; after
        an error nothing of the target is left. The default reads and puts
        row by row, oldest first. It cannot see the task paths of the stored writes and numbers
        them instead: writes added to a copied checkpoint later on sort behind them.
        """
        self._default(
            "_copy_checkpoint_rows",
            _defaults.copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows),
        )

    async def _acopy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        """Async twin of `_copy_checkpoint_rows`."""
        args = (source_thread_id, target_thread_id, rows)
        if (steps := self._sync_hook("_copy_checkpoint_rows", *args)) is not None:
            await steps
        else:
            await adrive(self, _defaults.copy_checkpoint_rows(self, *args))

    def _list_run_threads(self, run_ids: Sequence[str]) -> Iterable[str]:
        """Ids of the threads that hold rows whose metadata `run_id` is one of these.

        May name more threads than that: every row's run is checked again. Must not miss one.
        The default uses `list(None, filter=...)` if `LISTS_ALL_THREADS` says that it works.
        """
        return self._default("_list_run_threads", _defaults.list_run_threads(self, run_ids))

    async def _alist_run_threads(self, run_ids: Sequence[str]) -> Iterable[str]:
        """Async twin of `_list_run_threads`."""
        if (steps := self._sync_hook("_list_run_threads", run_ids)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.list_run_threads(self, run_ids))

    def _rewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        """Store channel values in a checkpoint that is there already, for compaction.

        Args:
            config: Names the checkpoint.
            values: By channel, what a reader must find there from now on, of the type given;
                `None` takes what is stored away again. Every channel has a version there.
            metadata: Replaces the checkpoint's.

        All else of the row stays: id, parent, versions, other values, and pending writes with
        those that a run adds meanwhile. One row changes whole or not at all. Repeating is not an
        error. A `CompactionError` says why this one thread cannot be rewritten. The default puts
        the checkpoint again, once it has seen on a thread of its own that this is safe.
        """
        steps = _rewriting.rewrite_checkpoint(self, config, values, metadata)
        self._default("_rewrite_checkpoint", steps)

    async def _arewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        """Async twin of `_rewrite_checkpoint`."""
        args = (config, values, metadata)
        if (steps := self._sync_hook("_rewrite_checkpoint", *args)) is not None:
            await steps
        else:
            await adrive(self, _rewriting.rewrite_checkpoint(self, *args))

    # -- accommodations ----------------------------------------------------------------------

    def _checkpoint_config(
        self, thread_id: str, checkpoint_ns: str | None, checkpoint_id: str | None
    ) -> Any:
        """The config that addresses a thread, a namespace or a checkpoint; `None` leaves out.

        Override where the saver needs further keys, such as `actor_id`.
        """
        conf = {"thread_id": thread_id}
        if checkpoint_ns is not None:
            conf["checkpoint_ns"] = checkpoint_ns
        if checkpoint_id is not None:
            conf["checkpoint_id"] = checkpoint_id
        return {"configurable": conf}

    def _list_namespaces(self, thread_id: str) -> Iterable[str]:
        """All namespaces of a thread.

        Override where `list()` without a namespace shows the root namespace only: rows of a
        namespace that is not named here are never cleaned, nor copied.
        """
        return self._default("_list_namespaces", _defaults.list_namespaces(self, thread_id))

    async def _alist_namespaces(self, thread_id: str) -> Iterable[str]:
        """Async twin of `_list_namespaces`."""
        if (steps := self._sync_hook("_list_namespaces", thread_id)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.list_namespaces(self, thread_id))

    def _read_checkpoint_rows(self, thread_id: str, keys: Reads) -> Iterable[CheckpointRow]:
        """Fill in lean rows.

        Args:
            thread_id: The thread.
            keys: The `(namespace, id)` pairs to read; as a mapping it also tells which parts
                (`"metadata"`, `"checkpoint"`, `"writes"`) are lacking. Reading more is fine.

        Returns:
            A row per key with at least these parts. The default reads through `get_tuple`.
        """
        return self._default(
            "_read_checkpoint_rows", _defaults.read_checkpoint_rows(self, thread_id, keys)
        )

    async def _aread_checkpoint_rows(self, thread_id: str, keys: Reads) -> Iterable[CheckpointRow]:
        """Async twin of `_read_checkpoint_rows`."""
        if (steps := self._sync_hook("_read_checkpoint_rows", thread_id, keys)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.read_checkpoint_rows(self, thread_id, keys))

    def _list_orphans(self, thread_id: str) -> Orphans | None:
        """What is stored of a thread without belonging to a checkpoint, for `verify_thread`.

        Called in `_read_scope`. The default knows nothing of the store and says so: `None`.
        """
        return self._default("_list_orphans", _defaults.list_orphans())

    async def _alist_orphans(self, thread_id: str) -> Orphans | None:
        """Async twin of `_list_orphans`."""
        if (steps := self._sync_hook("_list_orphans", thread_id)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.list_orphans())

    def _read_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        """Where a walk from a checkpoint up its parents ends, for `StrictDeltaHistoryMixin`.

        Called after reads that found no value to start from, outside any scope; `None` for the id
        means the newest checkpoint. Returns `None` if the checkpoint is not stored. The default
        takes one `list` of the namespace.
        """
        steps = _defaults.read_history_end(self, thread_id, checkpoint_ns, checkpoint_id)
        return self._default("_read_history_end", steps)

    async def _aread_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        """Async twin of `_read_history_end`."""
        args = (thread_id, checkpoint_ns, checkpoint_id)
        if (steps := self._sync_hook("_read_history_end", *args)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.read_history_end(self, *args))

    def _retry_after(self, error: Exception) -> bool:
        """Whether an operation that failed in its scope with this error is worth repeating.

        Override where other transactions can get in the way. The scope has been rolled back;
        the batch is planned anew, then its threads one by one, and those that still fail are
        named in a `CleanupFailedError` once the others are done. The default says no.
        """
        return False

    def _cleanup_scope(self, thread_ids: Sequence[str]) -> AbstractContextManager[Any]:
        """A context around reading, planning and deleting of a batch: transaction and lock.

        Inside, all reads see one snapshot; leaving it commits, an exception rolls back. The
        default does nothing: the backend then has no transactions, or needs none.
        """
        if self._writes_hook("_acleanup_scope"):
            raise self._one_sided("_cleanup_scope", "_acleanup_scope")
        return nullcontext()

    def _acleanup_scope(self, thread_ids: Sequence[str]) -> AbstractAsyncContextManager[Any]:
        """Async twin of `_cleanup_scope`."""
        if self._writes_hook("_cleanup_scope"):
            raise self._one_sided("_acleanup_scope", "_cleanup_scope")
        return nullcontext()

    def _read_scope(self, thread_ids: Sequence[str]) -> AbstractContextManager[Any]:
        """A context around reads that nothing follows, as plans and keep-sets make them.

        The default is `_cleanup_scope`; override where reading needs less, such as no lock.
        """
        return self._cleanup_scope(thread_ids)

    def _aread_scope(self, thread_ids: Sequence[str]) -> AbstractAsyncContextManager[Any]:
        """Async twin of `_read_scope`."""
        return self._acleanup_scope(thread_ids)

    # -- which side ---------------------------------------------------------------------------

    def _run(self, name: str, steps: Steps[T]) -> T:
        """Run an operation for its sync method `name`."""
        if self._has_hooks(sync=False) and not self._has_hooks(sync=True):
            steps.close()
            raise MissingHookError(
                f"{type(self).__name__} has async hooks only: use `await {twin(name)}(...)`"
            )
        return drive(self, steps)

    async def _arun(self, name: str, steps: Steps[T]) -> T:
        """Run an operation for its async method `name`."""
        if self._has_hooks(sync=True) and not self._has_hooks(sync=False):
            import asyncio

            return await asyncio.to_thread(self._run, name, steps)
        return await adrive(self, steps)

    @classmethod
    def _writes_hook(cls, name: str) -> bool:
        return getattr(cls, name) is not getattr(CleanupHooks, name)

    @classmethod
    def _has_hooks(cls, *, sync: bool) -> bool:
        return any(cls._writes_hook(hook if sync else twin(hook)) for hook in HOOKS)

    def _require_hooks(self, *names: str) -> None:
        for name in names:
            if not (self._writes_hook(name) or self._writes_hook(twin(name))):
                raise self._missing(name)

    def _default(self, name: str, steps: Steps[T]) -> T:
        """Run a sync default, unless the saver does differently on its async side."""
        if self._writes_hook(twin(name)):
            steps.close()
            raise self._one_sided(name, twin(name))
        return drive(self, steps)

    def _sync_hook(self, name: str, *args: Any) -> Awaitable[Any] | None:
        """A worker thread's run of the sync hook, if only that one is written."""
        if not self._writes_hook(name):
            return None
        import asyncio

        return asyncio.to_thread(getattr(self, name), *args)

    def _one_sided(self, name: str, written: str) -> MissingHookError:
        return MissingHookError(
            f"{type(self).__name__} writes the hook {written} but not {name}: "
            f"write {name} as well, or use the side of the API that has it"
        )

    def _missing(self, name: str) -> MissingHookError:
        squash = "; use delta='keep_history', or write it" if "squash" in name else ""
        return MissingHookError(
            f"{type(self).__name__} does not write the hook {name}: nothing was deleted. "
            f"It has no default; its docstring says what it has to do{squash}"
        )
