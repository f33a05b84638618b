"""Savers whose prune has one fault in what it leaves of writes and values."""

from __future__ import annotations

from delta_mixin import RowKey
from delta_mixin.adapters.memory import DeltaInMemorySaver


class LosesBlobsOfKeptRows(DeltaInMemorySaver):
    """Keeps the rows, but only the blobs that heads refer to."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            rows = list(self._list_checkpoint_rows([plan.thread_id]))
            heads = {
                (r.checkpoint_ns, *v)
                for r in rows
                for v in r.channel_versions.items()
                if plan.heads.get(r.checkpoint_ns) == r.checkpoint_id
            }
            for key in [k for k in self.blobs if k[0] == plan.thread_id and k[1:] not in heads]:
                del self.blobs[key]


class DeletesSharedBlobs(DeltaInMemorySaver):
    """Deletes every value that a deleted row refers to."""

    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            rows = self._list_checkpoint_rows([plan.thread_id])
            for row in rows:
                if RowKey(*row.key) in plan.doomed:
                    for pair in row.channel_versions.items():
                        self.blobs.pop((plan.thread_id, row.checkpoint_ns, *pair), None)
        super()._delete_checkpoint_rows(plans)


class LeavesWritesBehind(DeltaInMemorySaver):
    """Deletes checkpoints, but not their writes."""

    def _delete_checkpoint_rows(self, plans):
        writes = dict(self.writes)
        super()._delete_checkpoint_rows(plans)
        self.writes.update(writes)


class LeavesBlobsBehind(DeltaInMemorySaver):
    """Deletes checkpoints and writes, but no values."""

    def _delete_checkpoint_rows(self, plans):
        blobs = dict(self.blobs)
        super()._delete_checkpoint_rows(plans)
        self.blobs.update(blobs)


class SweepsWritesWithoutCheckpoint(DeltaInMemorySaver):
    """Takes writes for left-overs whose checkpoint is not stored."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for thread_id, ns, checkpoint_id in list(self.writes):
            if checkpoint_id not in self.storage[thread_id][ns]:
                del self.writes[thread_id, ns, checkpoint_id]


FAULTS = [
    (
        "keeps rows but loses blobs",
        LosesBlobsOfKeptRows,
        "test_prune_keeps_the_values_of_kept_rows",
    ),
    ("deletes a shared blob", DeletesSharedBlobs, "test_prune_keeps_values_that_two_rows_share"),
    ("orphans writes", LeavesWritesBehind, "test_prune_leaves_no_orphaned_writes_or_blobs"),
    ("orphans blobs", LeavesBlobsBehind, "test_prune_leaves_no_orphaned_writes_or_blobs"),
    (
        "sweeps writes that came before their checkpoint",
        SweepsWritesWithoutCheckpoint,
        "test_prune_keeps_writes_stored_ahead_of_their_checkpoint",
    ),
]
