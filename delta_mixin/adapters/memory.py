"""`DeltaInMemorySaver`: the host's in-memory saver with safe cleanup.

Blobs are kept by channel and version and can be shared between checkpoints, so a sweep takes
only the ones its plan names. Hooks of both sides run in the caller's thread, as upstream's
methods do, so that on an event loop nothing comes between planning and sweeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint import base
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin.base_rows import BaseRow
from delta_mixin.findings import HistoryEnd, Orphans
from delta_mixin.mixins import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin
from delta_mixin.model import BlobKey, CheckpointRow, CleanupPlan, RowKey

__all__ = ["DeltaInMemorySaver"]


class DeltaInMemorySaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver):
    """`InMemorySaver` with `prune`, `copy_thread` and `delete_for_runs`."""

    NEWEST_ID_IS_HEAD = True
    VERSIONED_BLOBS = True
    # Releases without this function leave the writes at a plain value out.
    REPLAYS_PLAIN_SEEDS = hasattr(base, "writes_sort_key")

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The host's, which never ends where re-putting an id has made the parents a loop."""
        conf = config["configurable"]
        thread_id, ns = conf["thread_id"], conf.get("checkpoint_ns", "")
        stored = self.storage.get(thread_id, {}).get(ns, {})
        checkpoint_id = conf.get("checkpoint_id") or max(stored, default="")
        chain: dict[str, None] = {}
        while checkpoint_id in stored and checkpoint_id not in chain:
            chain[checkpoint_id] = None
            checkpoint_id = stored[checkpoint_id][2] or ""
        if checkpoint_id not in chain:
            return super().get_delta_channel_history(config=config, channels=channels)
        walked = [self.get_tuple(self._checkpoint_config(thread_id, ns, i)) for i in chain][1:]
        return {channel: _read_history(channel, filter(None, walked)) for channel in channels}

    def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> list[CheckpointRow]:
        return [row for t in thread_ids for key in self._stored_as(t) for row in self._rows(t, key)]

    def _rows(self, thread_id: str, key: Any) -> Iterator[CheckpointRow]:
        loaded: dict[Any, Any] = {}
        for ns, saved in list(self.storage[key].items()):
            for checkpoint_id, (checkpoint, metadata, parent_id) in list(saved.items()):
                contents = self.serde.loads_typed(checkpoint)
                values = {}
                for channel, version in contents["channel_versions"].items():
                    blob = (key, ns, channel, version)
                    if blob in self.blobs and self.blobs[blob][0] != "empty":
                        if blob not in loaded:
                            loaded[blob] = self.serde.loads_typed(self.blobs[blob])
                        values[channel] = loaded[blob]
                writes = list(self.writes.get((key, ns, checkpoint_id), {}).values())
                yield CheckpointRow(
                    thread_id,
                    ns,
                    checkpoint_id,
                    parent_id,
                    metadata=self.serde.loads_typed(metadata),
                    write_channels=frozenset(channel for _, channel, _, _ in writes),
                ).with_checkpoint({**contents, "channel_values": values})

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            for key in self._stored_as(plan.thread_id):
                namespaces = self.storage[key]
                for ns, checkpoint_id in plan.doomed:
                    self.writes.pop((key, ns, checkpoint_id), None)
                    namespaces[ns].pop(checkpoint_id, None)
                for ns, checkpoint_id in plan.detached:
                    if row := namespaces[ns].get(checkpoint_id):
                        namespaces[ns][checkpoint_id] = (row[0], row[1], None)
                for ns, channel, version in plan.dead_blobs:
                    self.blobs.pop((key, ns, channel, version), None)
                for ns in plan.dropped_namespaces:
                    self._drop_namespace(key, ns)
                if not any(namespaces.values()):
                    self.storage.pop(key, None)

    def _squash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            for key in self._stored_as(plan.thread_id):
                for row in plan.bases:
                    self._store_base(key, row)

    def _store_base(self, key: Any, row: BaseRow) -> None:
        ns, stored = row.checkpoint_ns, self.storage[key][row.checkpoint_ns]
        for part in row.writes:
            order = self._in_order(self.writes.get((key, ns, part.checkpoint_id), {}))
            moved = [w for w in order if w[1] in part.channels]
            for idx, (_, channel, value, _) in enumerate(moved):
                self.writes[key, ns, row.checkpoint_id][part.task_id, idx] = (
                    part.task_id,
                    channel,
                    value,
                    part.task_path,
                )
        # Its versions name the blobs of the seeds.
        checkpoint = row.checkpoint({})
        del checkpoint["channel_values"]
        stored[row.checkpoint_id] = (
            self.serde.dumps_typed(checkpoint),
            self.serde.dumps_typed(dict(row.metadata)),
            row.parent_id,
        )
        for child in row.children:
            stored[child] = (*stored[child][:2], row.checkpoint_id)

    @staticmethod
    def _in_order(writes: Mapping[Any, Any]) -> list[Any]:
        """Writes of a checkpoint as the host's reader orders them."""
        sort_key = getattr(base, "writes_sort_key", lambda path, *key: key)
        return [writes[k] for k in sorted(writes, key=lambda k: sort_key(writes[k][3], *k))]

    def _drop_namespace(self, key: Any, ns: str) -> None:
        stores: tuple[dict[Any, Any], ...] = (self.writes, self.blobs)
        for stored in stores:
            for name in [n for n in list(stored) if n[:2] == (key, ns)]:
                stored.pop(name, None)
        self.storage[key].pop(ns, None)

    def _copy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        for source in self._stored_as(source_thread_id):
            for row in rows:
                ns, checkpoint_id = row.key
                for channel, version in (row.channel_versions or {}).items():
                    if blob := self.blobs.get((source, ns, channel, version)):
                        self.blobs[(target_thread_id, ns, channel, version)] = blob
                if writes := self.writes.get((source, ns, checkpoint_id)):
                    self.writes[(target_thread_id, ns, checkpoint_id)] = dict(writes)
                checkpoint, metadata, _ = self.storage[source][ns][checkpoint_id]
                saved = (checkpoint, metadata, row.parent_id)
                self.storage[target_thread_id][ns][checkpoint_id] = saved

    def _list_orphans(self, thread_id: str) -> Orphans:
        writes: set[RowKey] = set()
        blobs: set[BlobKey] = set()
        missing: set[tuple[RowKey, BlobKey]] = set()
        for key in self._stored_as(thread_id):
            stored = {BlobKey(*blob[1:]) for blob in self.blobs if blob[0] == key}
            referenced = {
                (RowKey(ns, i), BlobKey(ns, channel, version))
                for ns, rows in self.storage[key].items()
                for i, row in rows.items()
                for channel, version in self.serde.loads_typed(row[0])["channel_versions"].items()
            }
            missing |= {(row, blob) for row, blob in referenced if blob not in stored}
            blobs |= stored - {blob for _, blob in referenced}
            writes |= {
                RowKey(ns, i)
                for (thread, ns, i), of_row in self.writes.items()
                if thread == key and of_row and i not in self.storage[key].get(ns, ())
            }
        return Orphans(tuple(sorted(writes)), tuple(sorted(blobs, key=str)), tuple(missing))

    def _read_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        for key in self._stored_as(str(thread_id)):
            stored = self.storage[key].get(checkpoint_ns, {})
            chain: dict[str, None] = {}
            above: str | None = checkpoint_id or max(stored, default="")
            while above in stored and above not in chain:
                chain[above] = None
                above = stored[above][2]
            if chain:
                config = self._checkpoint_config(key, checkpoint_ns, [*chain][-1])
                row = CheckpointRow.from_tuple(self.get_tuple(config))
                why: Any = "loop" if above in chain else "missing" if above else "start"
                return HistoryEnd(row, why)
        return None

    async def _aread_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        return self._read_history_end(thread_id, checkpoint_ns, checkpoint_id)

    def _rewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        conf = config["configurable"]
        ns, checkpoint_id = conf["checkpoint_ns"], conf["checkpoint_id"]
        for key in self._stored_as(str(conf["thread_id"])):
            if checkpoint_id not in self.storage[key].get(ns, {}):
                continue
            checkpoint, _, parent_id = self.storage[key][ns][checkpoint_id]
            versions = self.serde.loads_typed(checkpoint)["channel_versions"]
            for channel, value in values.items():
                # As the host stores the absence of a value.
                blob = ("empty", b"") if value is None else self.serde.dumps_typed(value)
                self.blobs[(key, ns, channel, versions[channel])] = blob
            saved = (checkpoint, self.serde.dumps_typed(dict(metadata)), parent_id)
            self.storage[key][ns][checkpoint_id] = saved

    def _list_run_threads(self, run_ids: Sequence[str]) -> list[str]:
        # Every row's run is checked anyway.
        return [str(key) for key in list(self.storage)]

    def _checkpoint_config(
        self, thread_id: Any, checkpoint_ns: str | None, checkpoint_id: str | None
    ) -> Any:
        stored = self._stored_as(str(thread_id)) or [thread_id]
        return super()._checkpoint_config(stored[0], checkpoint_ns, checkpoint_id)

    def _stored_as(self, thread_id: str) -> list[Any]:
        """The keys a thread is stored under: the host keeps an int or UUID as it is."""
        spellings: list[Any] = [thread_id]
        for make in (int, UUID):
            with suppress(ValueError):
                spellings.append(make(thread_id))
        return [key for key in spellings if str(key) == thread_id and key in self.storage]

    async def _alist_checkpoint_rows(self, thread_ids: Sequence[str]) -> list[CheckpointRow]:
        return self._list_checkpoint_rows(thread_ids)

    async def _adelete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        self._delete_checkpoint_rows(plans)

    async def _asquash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        self._squash_checkpoint_rows(plans)

    async def _acopy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        self._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)

    async def _alist_orphans(self, thread_id: str) -> Orphans:
        return self._list_orphans(thread_id)

    async def _arewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        self._rewrite_checkpoint(config, values, metadata)

    async def _alist_run_threads(self, run_ids: Sequence[str]) -> list[str]:
        return self._list_run_threads(run_ids)


def _read_history(channel: str, ancestors: Iterable[CheckpointTuple]) -> DeltaChannelHistory:
    history: DeltaChannelHistory = {"writes": []}
    for saved in ancestors:
        here = [write for write in saved.pending_writes or () if write[1] == channel]
        history["writes"][:0] = here
        if channel in saved.checkpoint["channel_values"]:
            history["seed"] = saved.checkpoint["channel_values"][channel]
            break
    return history
