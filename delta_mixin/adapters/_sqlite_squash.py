"""SQL of the SQLite savers' squash, in one body for both sides.

Writes move inside the database. Values lie inline in checkpoints here, so a base row's seeds are
read from theirs and stored anew, each once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint import base as host

from delta_mixin.adapters._sqlite_sql import Statements
from delta_mixin.base_rows import BaseRow
from delta_mixin.model import CleanupPlan

_ROW = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_READ = f"SELECT type, checkpoint FROM checkpoints WHERE {_ROW}"
_STORE = (
    "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, "
    "type, checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_HANG = (
    "UPDATE checkpoints SET parent_checkpoint_id = ? WHERE thread_id = ? AND checkpoint_ns = ? "
    "AND checkpoint_id IN (SELECT value FROM json_each(?))"
)
_HAS_TASK_PATH = "SELECT 1 FROM pragma_table_info('writes') WHERE name = 'task_path'"


def squash_rows(serde: Any, plans: Sequence[CleanupPlan]) -> Statements[None]:
    """Store the base rows of the plans."""
    has_path = bool((yield _HAS_TASK_PATH, ()))
    for plan in plans:
        for row in plan.bases:
            yield from _store(serde, plan.thread_id, row)
            yield _move_writes(plan.thread_id, row, has_path)
            where = (plan.thread_id, row.checkpoint_ns)
            yield _HANG, (row.checkpoint_id, *where, json.dumps(row.children))


def _store(serde: Any, thread_id: str, row: BaseRow) -> Statements[None]:
    values = {}
    for seed_id in dict.fromkeys(seed.checkpoint_id for seed in row.seeds):
        ((type_, blob),) = yield _READ, (thread_id, row.checkpoint_ns, seed_id)
        stored = serde.loads_typed((type_, blob))["channel_values"]
        for seed in row.seeds:
            if seed.checkpoint_id == seed_id:
                values[seed.channel] = stored[seed.channel]
    type_, blob = serde.dumps_typed(row.checkpoint(values))
    metadata = json.dumps(dict(row.metadata), ensure_ascii=False).encode()
    key = (thread_id, row.checkpoint_ns, row.checkpoint_id)
    yield _STORE, (*key, row.parent_id, type_, blob, metadata)


def _move_writes(thread_id: str, row: BaseRow, has_path: bool) -> tuple[str, Sequence[Any]]:
    path = ("task_path, ", "json_extract(part.value, '$[3]'), ") if has_path else ("", "")
    # As the host's reader orders them.
    by_path = has_path and hasattr(host, "writes_sort_key")
    order = "w.task_path, w.task_id, w.idx" if by_path else "w.task_id, w.idx"
    statement = (
        "INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, "
        f"{path[0]}idx, channel, type, value) "
        f"SELECT w.thread_id, w.checkpoint_ns, ?, json_extract(part.value, '$[2]'), {path[1]}"
        f"row_number() OVER (PARTITION BY w.checkpoint_id ORDER BY {order}) - 1, "
        "w.channel, w.type, w.value FROM json_each(?) AS part CROSS JOIN writes AS w "
        "WHERE w.thread_id = ? AND w.checkpoint_ns = ? "
        "AND w.checkpoint_id = json_extract(part.value, '$[0]') "
        "AND w.channel IN (SELECT value FROM json_each(part.value, '$[1]'))"
    )
    parts = json.dumps([list(part) for part in row.writes])
    return statement, (row.checkpoint_id, parts, thread_id, row.checkpoint_ns)
