"""The Postgres savers' hooks that look for damage: statements, and one body for both sides."""

from __future__ import annotations

from delta_mixin.adapters._postgres_bodies import Statement, Statements, read_rows
from delta_mixin.findings import HistoryEnd, Orphans
from delta_mixin.model import BlobKey, Part, RowKey

ORPHANED_WRITES = """
SELECT DISTINCT w.checkpoint_ns, w.checkpoint_id FROM checkpoint_writes w
WHERE w.thread_id = %(thread)s AND NOT EXISTS (
    SELECT FROM checkpoints c
    WHERE c.thread_id = %(thread)s
    AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
)
ORDER BY 1, 2
"""

# Hashed: a look for each blob at each checkpoint would take the product of their numbers.
ORPHANED_BLOBS = """
WITH used AS MATERIALIZED (
    SELECT DISTINCT c.checkpoint_ns, v.key AS channel, v.value AS version
    FROM checkpoints c, jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
    WHERE c.thread_id = %(thread)s
)
SELECT b.checkpoint_ns, b.channel, b.version FROM checkpoint_blobs b
LEFT JOIN used USING (checkpoint_ns, channel, version)
WHERE b.thread_id = %(thread)s AND used.version IS NULL
ORDER BY 1, 2, 3
"""

# A snapshot leaves `true` in the checkpoint. So does a channel of that value: the caller tells.
MISSING_BLOBS = """
SELECT c.checkpoint_ns, c.checkpoint_id, v.key,
    c.checkpoint -> 'channel_versions' ->> v.key AS version
FROM checkpoints c, jsonb_each(c.checkpoint -> 'channel_values') AS v
WHERE c.thread_id = %(thread)s AND v.value = 'true' AND NOT EXISTS (
    SELECT FROM checkpoint_blobs b
    WHERE b.thread_id = %(thread)s AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = v.key
    AND b.version = c.checkpoint -> 'channel_versions' ->> v.key
)
"""

# UNION without ALL ends a loop; the one row whose parent is not stored, if there is one, ends the
# chain.
HISTORY_END = """
WITH RECURSIVE up AS (
    SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
    WHERE thread_id = %(thread)s AND checkpoint_ns = %(ns)s
    AND checkpoint_id = coalesce(%(id)s::text, (
        SELECT max(checkpoint_id) FROM checkpoints
        WHERE thread_id = %(thread)s AND checkpoint_ns = %(ns)s
    ))
    UNION
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM up JOIN checkpoints c
    ON c.thread_id = %(thread)s AND c.checkpoint_ns = %(ns)s
    AND c.checkpoint_id = up.parent_checkpoint_id
)
SELECT checkpoint_id, parent_checkpoint_id, EXISTS (
    SELECT FROM checkpoints p WHERE p.thread_id = %(thread)s AND p.checkpoint_ns = %(ns)s
    AND p.checkpoint_id = up.parent_checkpoint_id
) AS goes_on
FROM up ORDER BY goes_on LIMIT 1
"""


def read_history_end(
    thread_id: str, checkpoint_ns: str, checkpoint_id: str | None
) -> Statements[HistoryEnd | None]:
    """The end of a chain: where it is, then what it holds."""
    params = {"thread": thread_id, "ns": checkpoint_ns, "id": checkpoint_id}
    for last, parent, goes_on in (yield Statement(HISTORY_END, params)):
        wanted = {RowKey(checkpoint_ns, last): frozenset[Part](("checkpoint",))}
        read = yield from read_rows({thread_id: wanted})
        for row in read[thread_id]:
            row = row._replace(parent_id=parent or None)
            return HistoryEnd(row, "loop" if goes_on else "missing" if parent else "start")
    return None


def list_orphans(thread_id: str) -> Statements[Orphans]:
    """Writes and blobs without a checkpoint, and snapshots whose blob is not stored."""
    of_thread = {"thread": thread_id}
    writes = yield Statement(ORPHANED_WRITES, of_thread)
    blobs = yield Statement(ORPHANED_BLOBS, of_thread)
    missing = yield Statement(MISSING_BLOBS, of_thread)
    return Orphans(
        tuple(RowKey(*row) for row in writes),
        tuple(BlobKey(*row) for row in blobs),
        tuple((RowKey(ns, i), BlobKey(ns, c, version)) for ns, i, c, version in missing),
    )
