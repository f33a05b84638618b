"""SQL of the SQLite savers that looks for damage, in one body for both sides."""

from __future__ import annotations

from typing import Any

from delta_mixin.adapters._sqlite_sql import Statements, _metadata
from delta_mixin.findings import HistoryEnd, Orphans
from delta_mixin.model import CheckpointRow, RowKey

# UNION without ALL ends a loop; the one row whose parent is not stored, if there is one, ends the
# chain. Blobs are joined to that row alone.
HISTORY_END = """
WITH RECURSIVE here AS (
    SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
    WHERE thread_id = :thread AND checkpoint_ns = :ns
), up AS (
    SELECT checkpoint_id, parent_checkpoint_id FROM here
    WHERE checkpoint_id = coalesce(:id, (SELECT max(checkpoint_id) FROM here))
    UNION
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM up CROSS JOIN checkpoints c
    ON c.thread_id = :thread AND c.checkpoint_ns = :ns
    AND c.checkpoint_id = up.parent_checkpoint_id
)
SELECT e.goes_on, c.checkpoint_id, c.parent_checkpoint_id, c.type, c.checkpoint, c.metadata
FROM (
    SELECT up.checkpoint_id, EXISTS (
        SELECT 1 FROM checkpoints p WHERE p.thread_id = :thread AND p.checkpoint_ns = :ns
        AND p.checkpoint_id = up.parent_checkpoint_id
    ) AS goes_on
    FROM up ORDER BY goes_on LIMIT 1
) AS e CROSS JOIN checkpoints c
ON c.thread_id = :thread AND c.checkpoint_ns = :ns AND c.checkpoint_id = e.checkpoint_id
"""


def read_history_end(
    serde: Any, thread_id: str, checkpoint_ns: str, checkpoint_id: str | None
) -> Statements[HistoryEnd | None]:
    """The end of a chain, in one statement."""
    found = yield HISTORY_END, {"thread": thread_id, "ns": checkpoint_ns, "id": checkpoint_id}
    for goes_on, last, parent, type_, checkpoint, metadata in found:
        row = CheckpointRow(thread_id, checkpoint_ns, last, parent or None)
        row = row._replace(metadata=_metadata(metadata))
        row = row.with_checkpoint(serde.loads_typed((type_, checkpoint)))
        return HistoryEnd(row, "loop" if goes_on else "missing" if parent else "start")
    return None


def list_orphans(thread_id: str) -> Statements[Orphans]:
    """Writes without their checkpoint; values lie inside checkpoints, so there are no blobs."""
    found = yield (
        "SELECT DISTINCT w.checkpoint_ns, w.checkpoint_id FROM writes w WHERE w.thread_id = ? "
        "AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.thread_id = w.thread_id "
        "AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id) "
        "ORDER BY 1, 2",
        (thread_id,),
    )
    return Orphans(writes=tuple(RowKey(ns, i) for ns, i in found))
