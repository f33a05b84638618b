"""`DeltaJsonLinesSaver`: cleanup for `JsonLinesSaver` by two mixins and four hooks.

This is all that safe `prune`, `copy_thread` and `delete_for_runs` take, async twins included.
The mixins decide what stays; the hooks list, delete and copy what they are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from jsonl_saver import JsonLinesSaver
from thread_files import Thread

from delta_mixin import (
    CheckpointRow,
    CleanupPlan,
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
    TargetThreadExistsError,
)


class DeltaJsonLinesSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, JsonLinesSaver):
    """`JsonLinesSaver` with `prune`, `copy_thread` and `delete_for_runs`."""

    # `get_tuple` without an id takes the greatest one, so the head need not be read.
    NEWEST_ID_IS_HEAD = True

    def _cleanup_scope(self, thread_ids: Sequence[str]) -> AbstractContextManager[Any]:
        # Held from the first read to the last delete: a run that appends meanwhile waits.
        return self.files.lock

    def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> list[CheckpointRow]:
        # Lean: ids and parents. The few rows that a plan must look into come by `get_tuple`.
        return [
            CheckpointRow(thread_id, ns, checkpoint_id, parent_id=record["parent"])
            for thread_id in thread_ids
            for (ns, checkpoint_id), record in self.files.read(thread_id).checkpoints.items()
        ]

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            # A new thread, not the stored one changed: if writing it fails, nothing happened.
            stored, left = self.files.read(plan.thread_id), Thread()
            doomed, detached = set(plan.doomed), set(plan.detached)
            dropped = set(plan.dropped_namespaces)
            for key, record in stored.checkpoints.items():
                if key not in doomed:
                    left.checkpoints[key] = (
                        {**record, "parent": None} if key in detached else record
                    )
            # Only writes of doomed rows: a run stores writes before their checkpoint.
            for key, writes in stored.writes.items():
                if key not in doomed and key[0] not in dropped:
                    left.writes[key] = writes
            self.files.replace(plan.thread_id, left)

    def _copy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        if self.files.read(target_thread_id).writes:
            raise TargetThreadExistsError(target_thread_id)
        source, copy = self.files.read(source_thread_id), Thread()
        for row in rows:
            # As the row names it: a parent that is not copied is none.
            copy.checkpoints[row.key] = {**source.checkpoints[row.key], "parent": row.parent_id}
            if row.key in source.writes:
                copy.writes[row.key] = dict(source.writes[row.key])
        self.files.replace(target_thread_id, copy)

    def _list_run_threads(self, run_ids: Sequence[str]) -> list[str]:
        return [t for t in self.files.thread_ids() if self._has_row_of(t, set(run_ids))]

    def _has_row_of(self, thread_id: str, run_ids: set[str]) -> bool:
        with self.files.lock:
            rows = self.files.read(thread_id).checkpoints.values()
            return any(str(self._load(r["metadata"]).get("run_id")) in run_ids for r in rows)
