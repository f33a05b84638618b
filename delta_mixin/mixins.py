"""The two mixins: cleanup that never loses what a reader needs.

Put them before the saver in the bases and write the hooks:

    class MySaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, TheirSaver):
        def _delete_checkpoint_rows(self, plans):
            ...

Each public method is one call of a driver on the body in `_steps`, for the sync side and for
its `a...` twin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from delta_mixin import _arguments, _steps
from delta_mixin._bases import refuse_shadowed
from delta_mixin._drive import Steps
from delta_mixin._hooks import CleanupHooks
from delta_mixin.model import CleanupPlan

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = ["CopyAndDeleteForRunsMixin", "DeltaChannelAwarePruneMixin"]

Ids = Sequence["str | int | UUID"]
Delta = Literal["keep_history", "refuse", "skip", "squash"]
Squash = Literal["keep_history", "squash"]
Severed = Literal["refuse", "ignore"]
OnPlan = Callable[[CleanupPlan], object]


class DeltaChannelAwarePruneMixin(CleanupHooks):
    """`prune` that keeps what delta channels are rebuilt from, and the keep-set behind it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_shadowed(
            cls,
            DeltaChannelAwarePruneMixin,
            ("prune", "aprune", "get_delta_channel_keepset", "aget_delta_channel_keepset"),
        )

    def prune(
        self,
        thread_ids: Ids,
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
        older_than: timedelta | datetime | None = None,
        pinned: Sequence[str] = (),
        delta: Delta = "keep_history",
        severed: Severed = "refuse",
        on_plan: OnPlan | None = None,
    ) -> None:
        """Delete the checkpoints of threads that nothing needs any more.

        Kept per namespace: the newest `keep_last` checkpoints, the one `get_tuple` without an
        id returns, those younger than `older_than`, those in `pinned`, and every ancestor that
        a delta channel of these is rebuilt from. All of them read back exactly as before, with
        their pending writes. A subgraph call goes with the checkpoint it started from.

        Args:
            thread_ids: Threads to clean; unknown ones are passed over.
            strategy: `"keep_latest"`, or `"delete"` to remove the threads.
            keep_last: How many of the newest checkpoints by id to keep per namespace.
            older_than: Keep checkpoints younger than this, by the time in their uuid6 id, and
                those whose id holds no time. A `timedelta` counts back from now.
            pinned: Ids of checkpoints to keep, in any namespace.
            delta: For threads that use a `DeltaChannel`: `"keep_history"` keeps what they are
                rebuilt from, `"squash"` keeps that without the checkpoints around it (the saver
                must write the hook `_squash_checkpoint_rows`), `"skip"` leaves them alone,
                `"refuse"` raises before anything is deleted.
            severed: For threads whose history breaks off already: `"refuse"` leaves them alone
                and raises at the end, `"ignore"` cleans them like any other.
            on_plan: Called with each executed plan, once its changes are stored.

        Raises:
            TypeError, ValueError: For unusable arguments, before anything is read.
            DeltaThreadRefusedError: With `delta="refuse"`; nothing was deleted.
            SeveredHistoryError: After all other threads are done.
            UnknownDeltaChannelsError: After all other threads are done.
            MissingHookError: If the saver does not write a hook that is needed; nothing was read.
        """
        self._run("prune", self._prune(thread_ids, **_options(locals())))

    async def aprune(
        self,
        thread_ids: Ids,
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
        older_than: timedelta | datetime | None = None,
        pinned: Sequence[str] = (),
        delta: Delta = "keep_history",
        severed: Severed = "refuse",
        on_plan: OnPlan | None = None,
    ) -> None:
        """Async twin of `prune`; `on_plan` may return an awaitable."""
        await self._arun("prune", self._prune(thread_ids, **_options(locals())))

    def plan_prune(
        self,
        thread_ids: Ids,
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
        older_than: timedelta | datetime | None = None,
        pinned: Sequence[str] = (),
        delta: Delta = "keep_history",
        severed: Severed = "refuse",
    ) -> list[CleanupPlan]:
        """What `prune` with these arguments would do now; touches nothing.

        Returns:
            A plan per thread that has rows, in the order given. Threads that `prune` would
            leave alone or refuse say so in `left_alone`.

        Raises:
            TypeError, ValueError: For unusable arguments, before anything is read.
        """
        return self._run("plan_prune", self._plan_prune(thread_ids, **_options(locals())))

    async def aplan_prune(
        self,
        thread_ids: Ids,
        *,
        strategy: str = "keep_latest",
        keep_last: int = 1,
        older_than: timedelta | datetime | None = None,
        pinned: Sequence[str] = (),
        delta: Delta = "keep_history",
        severed: Severed = "refuse",
    ) -> list[CleanupPlan]:
        """Async twin of `plan_prune`."""
        return await self._arun("plan_prune", self._plan_prune(thread_ids, **_options(locals())))

    def get_delta_channel_keepset(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> set[str]:
        """Ids that must stay for channels of one checkpoint to read back.

        These are the checkpoint itself and every ancestor back to the nearest one where each
        channel is populated, or to the first if none is. The walk takes the channels as given,
        whether or not they have ever been written.

        Args:
            config: Names thread, namespace and checkpoint; without a checkpoint id the newest.
            channels: Names of the channels; `[]` gives the checkpoint alone.

        Returns:
            Checkpoint ids; empty for a checkpoint that is not stored.

        Raises:
            TypeError: If `channels` is a single string.
        """
        return self._run("get_delta_channel_keepset", self._keepset(config, channels))

    async def aget_delta_channel_keepset(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> set[str]:
        """Async twin of `get_delta_channel_keepset`."""
        return await self._arun("get_delta_channel_keepset", self._keepset(config, channels))

    def _prune(self, thread_ids: Any, on_plan: OnPlan | None, **options: Any) -> Steps[None]:
        threads, strategy, rules = self._prune_arguments(thread_ids, **options)
        self._require_hooks("_delete_checkpoint_rows")
        return _steps.prune(self, threads, strategy, rules, on_plan)

    def _plan_prune(self, thread_ids: Any, **options: Any) -> Steps[list[CleanupPlan]]:
        threads, strategy, rules = self._prune_arguments(thread_ids, **options)
        return _steps.plan(self, threads, _steps.prune_planner(self, strategy, rules))

    def _prune_arguments(self, thread_ids: Any, **options: Any) -> tuple[list[str], str, Any]:
        rules = _arguments.prune_rules(**options)
        if rules.delta == "squash":
            self._require_hooks("_squash_checkpoint_rows")
        return _arguments.id_list(thread_ids, "thread_id"), options["strategy"], rules

    def _keepset(self, config: RunnableConfig, channels: Any) -> Steps[set[str]]:
        return _steps.keepset(self, config, _arguments.id_list(channels, "channel"))


class CopyAndDeleteForRunsMixin(CleanupHooks):
    """`copy_thread` and `delete_for_runs` that leave every reader what it needs."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_shadowed(
            cls,
            CopyAndDeleteForRunsMixin,
            ("copy_thread", "acopy_thread", "delete_for_runs", "adelete_for_runs"),
        )

    def copy_thread(
        self,
        source_thread_id: str | int | UUID,
        target_thread_id: str | int | UUID,
        *,
        checkpoint_id: str | None = None,
        delta: Squash = "keep_history",
    ) -> None:
        """Copy a thread to an unused id, whole or as of one of its checkpoints.

        Ids, order, metadata, pending writes and histories stay as they are; so do run ids, which
        lets a later `delete_for_runs` reach the copy as well.

        Args:
            source_thread_id: Thread to copy.
            target_thread_id: Id of the copy; must hold no rows.
            checkpoint_id: Copy only what this checkpoint of the root namespace needs, the
                subgraph calls that started from it, and the state that `checkpointer=True`
                subgraphs had then.
            delta: `"squash"` copies what these are rebuilt from without the checkpoints around
                it, as `prune` does. Without `checkpoint_id` it changes nothing.

        Raises:
            TypeError, ValueError: For unusable ids, or a source equal to the target.
            ThreadNotFoundError: If the source holds no checkpoint.
            TargetThreadExistsError: If the target holds rows already.
            CheckpointNotFoundError: If `checkpoint_id` is not in the source's root namespace.
            SeveredHistoryError: If the history of `checkpoint_id` breaks off.
            UnknownDeltaChannelsError: If nothing stored says which channels `checkpoint_id` needs.
            MissingHookError: If `delta="squash"` needs a hook that the saver does not write.
        """
        steps = self._copy(source_thread_id, target_thread_id, checkpoint_id, delta)
        self._run("copy_thread", steps)

    async def acopy_thread(
        self,
        source_thread_id: str | int | UUID,
        target_thread_id: str | int | UUID,
        *,
        checkpoint_id: str | None = None,
        delta: Squash = "keep_history",
    ) -> None:
        """Async twin of `copy_thread`."""
        steps = self._copy(source_thread_id, target_thread_id, checkpoint_id, delta)
        await self._arun("copy_thread", steps)

    def delete_for_runs(
        self,
        run_ids: Ids,
        *,
        thread_ids: Ids | None = None,
        delta: Squash = "keep_history",
        on_plan: OnPlan | None = None,
    ) -> None:
        """Delete the checkpoints of runs, as far as no other checkpoint needs them.

        No checkpoint of another run changes its value: rows of the runs from which one is still
        rebuilt stay. The run of a checkpoint is the `run_id` in its metadata, which a graph
        stores when it is passed as `config["metadata"]["run_id"]`; the top-level `run_id` of a
        config is not stored.

        Args:
            run_ids: Runs to delete; unknown ones are passed over.
            thread_ids: Look only at these threads. Otherwise at all that hold rows of the runs,
                copies of threads included.
            delta: `"keep_history"` keeps rows of the runs from which a checkpoint of another run
                is rebuilt; `"squash"` replaces them by base rows that name no run, so no row of
                the runs is left. What runs have written stays in the state that rests on it.
            on_plan: Called with each executed plan, once its changes are stored.

        Raises:
            TypeError, ValueError: For unusable arguments, before anything is read.
            SeveredHistoryError: After all other threads are done.
            UnknownDeltaChannelsError: After all other threads are done.
            MissingHookError: If a hook that is needed is not written.
        """
        steps = self._delete_for_runs(run_ids, thread_ids, delta, on_plan)
        self._run("delete_for_runs", steps)

    async def adelete_for_runs(
        self,
        run_ids: Ids,
        *,
        thread_ids: Ids | None = None,
        delta: Squash = "keep_history",
        on_plan: OnPlan | None = None,
    ) -> None:
        """Async twin of `delete_for_runs`; `on_plan` may return an awaitable."""
        steps = self._delete_for_runs(run_ids, thread_ids, delta, on_plan)
        await self._arun("delete_for_runs", steps)

    def plan_delete_for_runs(
        self, run_ids: Ids, *, thread_ids: Ids | None = None, delta: Squash = "keep_history"
    ) -> list[CleanupPlan]:
        """What `delete_for_runs` with these arguments would do now; touches nothing.

        Returns:
            A plan per thread looked at. Threads that would be left alone say so in
            `left_alone`.
        """
        return self._run("plan_delete_for_runs", self._plan_runs(run_ids, thread_ids, delta))

    async def aplan_delete_for_runs(
        self, run_ids: Ids, *, thread_ids: Ids | None = None, delta: Squash = "keep_history"
    ) -> list[CleanupPlan]:
        """Async twin of `plan_delete_for_runs`."""
        steps = self._plan_runs(run_ids, thread_ids, delta)
        return await self._arun("plan_delete_for_runs", steps)

    def _copy(self, source: Any, target: Any, checkpoint_id: Any, delta: Any) -> Steps[None]:
        source = _arguments.one_id(source, "source_thread_id")
        target = _arguments.one_id(target, "target_thread_id")
        if source == target:
            raise ValueError(
                f"source and target are the same thread {source!r}; choose an unused target id"
            )
        if checkpoint_id is not None:
            checkpoint_id = _arguments.one_id(checkpoint_id, "checkpoint_id")
        squashing = self._is_squashing(delta)
        if squashing:
            self._require_hooks("_delete_checkpoint_rows")
        return _steps.copy_thread(self, source, target, checkpoint_id, squashing)

    def _delete_for_runs(
        self, run_ids: Any, thread_ids: Any, delta: Any, on_plan: OnPlan | None
    ) -> Steps[None]:
        runs, threads, squashing = self._run_arguments(run_ids, thread_ids, delta)
        self._require_hooks("_delete_checkpoint_rows")
        return _steps.delete_for_runs(self, runs, threads, squashing, on_plan)

    def _plan_runs(self, run_ids: Any, thread_ids: Any, delta: Any) -> Steps[list[CleanupPlan]]:
        return _steps.plan_delete_for_runs(self, *self._run_arguments(run_ids, thread_ids, delta))

    def _run_arguments(
        self, run_ids: Any, thread_ids: Any, delta: Any
    ) -> tuple[list[str], list[str] | None, bool]:
        runs = _arguments.id_list(run_ids, "run_id")
        threads = None if thread_ids is None else _arguments.id_list(thread_ids, "thread_id")
        return runs, threads, self._is_squashing(delta)

    def _is_squashing(self, delta: Any) -> bool:
        squashing = _arguments.is_squashing(delta)
        if squashing:
            self._require_hooks("_squash_checkpoint_rows")
        return squashing


def _options(arguments: dict[str, Any]) -> dict[str, Any]:
    """A method's keyword arguments, from its `locals()`."""
    return {k: v for k, v in arguments.items() if k not in ("self", "thread_ids")}
