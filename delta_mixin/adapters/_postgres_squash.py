"""The squash of the Postgres savers: its statement and body, for both sides.

1. Base rows of a batch go in as one JSON array, and one statement serves all of them.
2. Nothing is read: a base row's versions name the blobs of its seeds, values that lie inline are
   copied from theirs, and writes are moved in place, which leaves long values where they are.
3. It runs before the sweep, which sees the base rows then and spares the blobs they refer to, and
   before joins are made to hash. Each `LIMIT` is the exact number, for the planner to know: few
   rows are found by their keys then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint import base as host

from delta_mixin.adapters._postgres_bodies import Statement, Statements, _array, _json
from delta_mixin.base_rows import BaseRow
from delta_mixin.model import CleanupPlan

_IN_THREAD = """
    c.thread_id = ANY(%(threads)s::text[])
    AND c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
"""

# As the host's reader orders them: it sorts by code point.
_ORDER = 'c.task_path COLLATE "C", ' if hasattr(host, "writes_sort_key") else ""

SQUASH = f"""
WITH k AS MATERIALIZED (
    SELECT g ->> 'thread' AS thread_id, g ->> 'ns' AS checkpoint_ns, g ->> 'id' AS base_id, g
    FROM jsonb_array_elements(%(bases)s::jsonb) AS g LIMIT %(base_count)s
), stored AS (
    INSERT INTO checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata
    )
    SELECT k.thread_id, k.checkpoint_ns, k.base_id, k.g ->> 'parent',
        jsonb_set(k.g -> 'checkpoint', '{{channel_values}}', COALESCE((
            SELECT jsonb_object_agg(s ->> 0, c.checkpoint -> 'channel_values' -> (s ->> 0))
            FROM jsonb_array_elements(k.g -> 'seeds') AS s
            CROSS JOIN LATERAL (
                SELECT checkpoint FROM checkpoints c
                WHERE {_IN_THREAD} AND c.checkpoint_id = s ->> 1 LIMIT 1
            ) AS c
            WHERE c.checkpoint -> 'channel_values' ? (s ->> 0)
        ), '{{}}'::jsonb)),
        k.g -> 'metadata'
    FROM k
), children AS MATERIALIZED (
    SELECT k.thread_id, k.checkpoint_ns, k.base_id, child
    FROM k CROSS JOIN LATERAL jsonb_array_elements_text(k.g -> 'children') AS child
    LIMIT %(child_count)s
), hung AS (
    UPDATE checkpoints c SET parent_checkpoint_id = k.base_id
    FROM children k WHERE {_IN_THREAD} AND c.checkpoint_id = k.child
), parts AS MATERIALIZED (
    SELECT k.thread_id, k.checkpoint_ns, k.base_id, p ->> 0 AS checkpoint_id,
        p -> 1 AS channels, p ->> 2 AS task_id, p ->> 3 AS task_path
    FROM k CROSS JOIN LATERAL jsonb_array_elements(k.g -> 'writes') AS p
    LIMIT %(part_count)s
), moved AS MATERIALIZED (
    SELECT c.thread_id, c.checkpoint_ns, c.checkpoint_id, c.task_id, c.idx, k.base_id,
        k.task_id AS new_task_id, k.task_path AS new_task_path,
        row_number() OVER (
            PARTITION BY c.thread_id, c.checkpoint_ns, c.checkpoint_id
            ORDER BY {_ORDER}c.task_id COLLATE "C", c.idx
        ) - 1 AS new_idx
    FROM parts k JOIN checkpoint_writes c ON {_IN_THREAD} AND c.checkpoint_id = k.checkpoint_id
    WHERE k.channels ? c.channel
)
UPDATE checkpoint_writes c
SET checkpoint_id = k.base_id, task_id = k.new_task_id, idx = k.new_idx,
    task_path = k.new_task_path
FROM moved k
WHERE {_IN_THREAD} AND c.checkpoint_id = k.checkpoint_id
AND c.task_id = k.task_id AND c.idx = k.idx
"""


def squash_rows(plans: Sequence[CleanupPlan]) -> Statements[None]:
    """Store the base rows of the plans."""
    bases = [row for plan in plans for row in plan.bases]
    params = {
        "threads": _array(plan.thread_id for plan in plans),
        "bases": _json([_told(plan.thread_id, row) for plan in plans for row in plan.bases]),
        "base_count": len(bases),
        "child_count": sum(len(row.children) for row in bases),
        "part_count": sum(len(row.writes) for row in bases),
    }
    yield Statement(SQUASH, params, fetch=False)


def _told(thread_id: str, row: BaseRow) -> dict[str, Any]:
    return {
        "thread": thread_id,
        "ns": row.checkpoint_ns,
        "id": row.checkpoint_id,
        "parent": row.parent_id,
        "checkpoint": row.checkpoint({}),
        "metadata": row.metadata,
        "seeds": [[seed.channel, seed.checkpoint_id] for seed in row.seeds],
        "writes": [list(part) for part in row.writes],
        "children": row.children,
    }
