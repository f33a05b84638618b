"""The hooks that save reads and round trips, for backends that can look at many rows at once."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta_mixin import _defaults
from delta_mixin._drive import Steps, adrive
from delta_mixin.model import CheckpointRow, KnownChannels, Reads, T

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    _Saver = BaseCheckpointSaver[Any]
else:
    _Saver = object


class BatchHooks(_Saver):
    """A part of `CleanupHooks`, which has the methods below."""

    if TYPE_CHECKING:

        def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> Iterable[CheckpointRow]: ...

        async def _alist_checkpoint_rows(
            self, thread_ids: Sequence[str]
        ) -> Iterable[CheckpointRow]: ...

        def _default(self, name: str, steps: Steps[T]) -> T: ...

        def _sync_hook(self, name: str, *args: Any) -> Awaitable[Any] | None: ...

    def _list_rows_with_runs(self, thread_ids: Sequence[str]) -> Iterable[CheckpointRow]:
        """As `_list_checkpoint_rows`, for a deletion of runs, which has to know each row's run.

        Override where a listing can tell `run_id` at less cost than reading metadata: only where
        the metadata's `run_id` is a string, and the row is no base row (`is_base_row`). Rows that
        do not tell are read. The default is `_list_checkpoint_rows`.
        """
        return self._list_checkpoint_rows(thread_ids)

    async def _alist_rows_with_runs(self, thread_ids: Sequence[str]) -> Iterable[CheckpointRow]:
        """Async twin of `_list_rows_with_runs`."""
        if (steps := self._sync_hook("_list_rows_with_runs", thread_ids)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await self._alist_checkpoint_rows(thread_ids)

    def _read_batch_rows(
        self, requests: Mapping[str, Reads]
    ) -> Mapping[str, Iterable[CheckpointRow]]:
        """`_read_checkpoint_rows` for several threads at once, by thread id.

        Override where one round trip can serve a whole batch; the default takes them in turn.
        """
        return self._default("_read_batch_rows", _defaults.read_batch_rows(requests))

    async def _aread_batch_rows(
        self, requests: Mapping[str, Reads]
    ) -> Mapping[str, Iterable[CheckpointRow]]:
        """Async twin of `_read_batch_rows`."""
        if (steps := self._sync_hook("_read_batch_rows", requests)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.read_batch_rows(requests))

    def _count_checkpoint_rows(self, thread_ids: Sequence[str]) -> Mapping[str, int]:
        """About how many checkpoints each thread holds, for `CLEANUP_BATCH_ROWS`.

        Called outside any scope. Threads may be left out, which counts as none; the default
        leaves out all.
        """
        return self._default("_count_checkpoint_rows", _defaults.count_checkpoint_rows())

    async def _acount_checkpoint_rows(self, thread_ids: Sequence[str]) -> Mapping[str, int]:
        """Async twin of `_count_checkpoint_rows`."""
        if (steps := self._sync_hook("_count_checkpoint_rows", thread_ids)) is not None:
            return await steps  # type: ignore[no-any-return]
        return await adrive(self, _defaults.count_checkpoint_rows())

    def _list_rows_beyond(
        self, requests: Mapping[str, KnownChannels]
    ) -> Mapping[str, Collection[str]]:
        """Ids of the rows that know more channels than these, by thread id.

        For run deletion, called in its scope, where rows below a deleted run end at a value stored
        after it unless they know more channels. May name more rows than `KnownChannels` asks for;
        must not miss one. All rows are read of a thread that is left out; the default leaves out
        all. Not called where the class lists or reads rows by a hook that it passes over.
        """
        return {}

    async def _alist_rows_beyond(
        self, requests: Mapping[str, KnownChannels]
    ) -> Mapping[str, Collection[str]]:
        """Async twin of `_list_rows_beyond`."""
        if (steps := self._sync_hook("_list_rows_beyond", requests)) is not None:
            return await steps  # type: ignore[no-any-return]
        return {}

    def _prune_settled_threads(self, thread_ids: Sequence[str]) -> Collection[str]:
        """Prune to their heads those of the threads that the backend itself can tell need no plan.

        For fleets: called in `_cleanup_scope`, before anything is listed, where a prune keeps only
        heads and what their readers need, and nobody asks for its plans. Returns the ids of the
        threads that it has pruned just as a plan would; the others are planned. The default
        returns none. Not called where the class overrides one of the hooks that it passes over.
        """
        return ()

    async def _aprune_settled_threads(self, thread_ids: Sequence[str]) -> Collection[str]:
        """Async twin of `_prune_settled_threads`."""
        if (steps := self._sync_hook("_prune_settled_threads", thread_ids)) is not None:
            return await steps  # type: ignore[no-any-return]
        return ()
