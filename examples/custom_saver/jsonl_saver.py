"""`JsonLinesSaver`: a LangGraph checkpoint saver over JSON-lines files, without cleanup.

The plain half of the example: what any saver has. The cleanup is in `delta_jsonl_saver.py`.

Checkpoints are stored whole, with their channel values inline. What a reader of a
`DeltaChannel` relies on is in `_tuple`: the parent, and the writes in the order in which the
run applied them.
"""

from __future__ import annotations

import asyncio
import base64
import builtins
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from thread_files import RowKey, Thread, ThreadFiles
from typing_extensions import Self

Filter = dict[str, Any] | None


class JsonLinesSaver(BaseCheckpointSaver[int]):
    """Keeps each thread in a file of its own; safe to use from several threads."""

    def __init__(self, files: ThreadFiles) -> None:
        super().__init__()
        self.files = files

    @classmethod
    @contextmanager
    def open(cls, folder: str | os.PathLike[str]) -> Iterator[Self]:
        """A saver over a folder, which is made if it does not exist."""
        files = ThreadFiles(folder)
        try:
            yield cls(files)
        finally:
            files.close()

    # -- writing ------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, ns, parent_id = _address(config)
        record = {
            "ns": ns,
            "id": checkpoint["id"],
            "parent": parent_id,
            "checkpoint": self._dump(checkpoint),
            # Brings in the config's own metadata, and with it the run id.
            "metadata": self._dump(get_checkpoint_metadata(config, metadata)),
        }
        self.files.append(thread_id, record)
        return _config(thread_id, ns, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread_id, ns, checkpoint_id = _address(config)
        stored = [
            {
                "task_id": task_id,
                "task_path": task_path,
                "idx": WRITES_IDX_MAP.get(channel, position),
                "channel": channel,
                "value": self._dump(value),
            }
            for position, (channel, value) in enumerate(writes)
        ]
        # One record, so that a kill never stores half of a task's writes.
        self.files.append(thread_id, {"ns": ns, "id": checkpoint_id, "writes": stored})

    def delete_thread(self, thread_id: str) -> None:
        self.files.replace(str(thread_id), Thread())

    # -- reading ------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns, checkpoint_id = _address(config)
        with self.files.lock:
            thread = self.files.read(thread_id)
            if checkpoint_id is None:
                checkpoint_id = max((i for n, i in thread.checkpoints if n == ns), default="")
            if (ns, checkpoint_id) not in thread.checkpoints:
                return None
            return self._tuple(thread_id, thread, (ns, checkpoint_id))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: Filter = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        for thread_id in [_address(config)[0]] if config else self.files.thread_ids():
            for saved in self._list_thread(thread_id, config, filter, before):
                if limit is not None and limit <= 0:
                    return
                limit = None if limit is None else limit - 1
                yield saved

    def _list_thread(
        self,
        thread_id: str,
        config: RunnableConfig | None,
        filter: Filter,
        before: RunnableConfig | None,
    ) -> builtins.list[CheckpointTuple]:
        # Complete before the first is handed out: nothing is locked between two of them.
        wanted = (config or {}).get("configurable", {})
        until = get_checkpoint_id(before) if before else None
        found = []
        with self.files.lock:
            thread = self.files.read(thread_id)
            for ns, checkpoint_id in sorted(thread.checkpoints, key=lambda k: k[1], reverse=True):
                if wanted.get("checkpoint_ns", ns) != ns:
                    continue
                if (wanted.get("checkpoint_id") or checkpoint_id) != checkpoint_id:
                    continue
                if until and checkpoint_id >= until:
                    continue
                saved = self._tuple(thread_id, thread, (ns, checkpoint_id))
                if all(saved.metadata.get(k) == v for k, v in (filter or {}).items()):
                    found.append(saved)
        return found

    def _tuple(self, thread_id: str, thread: Thread, key: RowKey) -> CheckpointTuple:
        record, (ns, checkpoint_id) = thread.checkpoints[key], key
        writes = sorted(
            thread.writes.get(key, {}).values(),
            # The order in which live execution applies them. Task ids alone are hashes: sorted
            # by these, parallel tasks would replay in another order than they ran in.
            key=lambda w: (w["task_path"], w["task_id"], w["idx"]),
        )
        return CheckpointTuple(
            config=_config(thread_id, ns, checkpoint_id),
            checkpoint=self._load(record["checkpoint"]),
            metadata=self._load(record["metadata"]),
            parent_config=_config(thread_id, ns, record["parent"]) if record["parent"] else None,
            pending_writes=[(w["task_id"], w["channel"], self._load(w["value"])) for w in writes],
        )

    # The serializer knows every type a graph stores, snapshots of delta channels included;
    # plain JSON would turn those into lists.

    def _dump(self, value: Any) -> tuple[str, str]:
        kind, data = self.serde.dumps_typed(value)
        return kind, base64.b64encode(data).decode("ascii")

    def _load(self, stored: Sequence[str]) -> Any:
        return self.serde.loads_typed((stored[0], base64.b64decode(stored[1])))

    # -- the async side: the same in a worker thread ------------------------------------------

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: Filter = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        def found() -> builtins.list[CheckpointTuple]:
            return builtins.list(self.list(config, filter=filter, before=before, limit=limit))

        for saved in await asyncio.to_thread(found):
            yield saved


def _address(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint id (in `put` the parent's) that a config names."""
    configurable = config["configurable"]
    ns = configurable.get("checkpoint_ns", "")
    return str(configurable["thread_id"]), ns, get_checkpoint_id(config)


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }
