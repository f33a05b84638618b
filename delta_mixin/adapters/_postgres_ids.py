"""The host's Postgres savers with one spelling of thread ids: their `str`, wherever they come in.

The host stores an int or UUID as text but compares it as what it is, which Postgres refuses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

MaybeConfig = TypeVar("MaybeConfig", RunnableConfig, "RunnableConfig | None")


def text_id(thread_id: Any) -> str:
    """The thread id as it is stored.

    Raises:
        ValueError: If it holds a NUL character, which Postgres cannot store.
    """
    if "\0" in (text := str(thread_id)):
        raise ValueError(f"thread_id must not hold a NUL character, got {thread_id!r}")
    return text


def spelled(config: MaybeConfig) -> MaybeConfig:
    """The config with its thread id as it is stored."""
    conf = (config or {}).get("configurable", {})
    if config is None or "thread_id" not in conf:
        return config
    return {**config, "configurable": {**conf, "thread_id": text_id(conf["thread_id"])}}


class TextIdPostgresSaver(PostgresSaver):
    """`PostgresSaver` that takes `str`, `int` and `UUID` thread ids."""

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get a checkpoint."""
        return super().get_tuple(spelled(config))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        return super().put(spelled(config), checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save writes of a task."""
        super().put_writes(spelled(config), writes, task_id, task_path)

    def delete_thread(self, thread_id: Any) -> None:
        """Delete everything stored under a thread id."""
        super().delete_thread(text_id(thread_id))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What channels are rebuilt from."""
        return super().get_delta_channel_history(config=spelled(config), channels=channels)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest first."""
        return super().list(spelled(config), filter=filter, before=before, limit=limit)


class AsyncTextIdPostgresSaver(AsyncPostgresSaver):
    """`AsyncPostgresSaver` that takes `str`, `int` and `UUID` thread ids.

    The host's sync methods call these.
    """

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Get a checkpoint."""
        return await super().aget_tuple(spelled(config))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        return await super().aput(spelled(config), checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save writes of a task."""
        await super().aput_writes(spelled(config), writes, task_id, task_path)

    async def adelete_thread(self, thread_id: Any) -> None:
        """Delete everything stored under a thread id."""
        await super().adelete_thread(text_id(thread_id))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What channels are rebuilt from."""
        config = spelled(config)
        return await super().aget_delta_channel_history(config=config, channels=channels)

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, newest first."""
        return super().alist(spelled(config), filter=filter, before=before, limit=limit)
