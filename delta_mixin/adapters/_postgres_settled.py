"""Threads that one look at their heads settles, pruned in one statement of the database.

A fleet is mostly threads whose head holds a value of its own for every channel: all other rows go.
To list these rows, plan and name them again takes longer than to delete them.

1. Settled is a thread of which the planner would keep the head alone: one namespace, a head with a
   value for every channel that can be a delta channel, no sign of such channels in its metadata,
   and a format in which no parent holds its pending sends. All others are planned.
2. Look and sweep see one snapshot, so what a run adds meanwhile stays. A look afterwards finds
   rows that were forked meanwhile from what has gone: the batch is rolled back.
3. The newest id is the greatest by its bytes, as it is for the planner.
"""

from __future__ import annotations

from collections.abc import Sequence

from delta_mixin.adapters._postgres_bodies import (
    ForkedMeanwhileError,
    Statement,
    Statements,
    _array,
)
from delta_mixin.adapters._postgres_sql import IS_BLOB, NAMESPACE_OF, PLAN_BY_HASHING
from delta_mixin.base_rows import SQUASHED
from delta_mixin.channels import COUNTERS, EARLY_COUNTERS, JS_MARKER

# The versions in use are those of the heads, as nothing else of these threads remains. Parts that
# nothing reads run last to first: the tables in the order of the host's `delete_thread`.
_SWEEP_SETTLED = f"""
WITH threads AS MATERIALIZED (
    SELECT thread_id, max(checkpoint_id COLLATE "C") COLLATE "default" AS head
    FROM checkpoints WHERE thread_id = ANY(%(threads)s::text[])
    GROUP BY thread_id HAVING bool_and(checkpoint_ns = '')
), settled AS MATERIALIZED (
    SELECT h.thread_id, h.checkpoint_ns, h.checkpoint_id AS head,
        h.checkpoint -> 'channel_versions' AS versions
    FROM threads CROSS JOIN LATERAL (
        SELECT * FROM checkpoints c WHERE c.thread_id = threads.thread_id
        AND c.checkpoint_ns = '' AND c.checkpoint_id = threads.head LIMIT 1
    ) AS h
    WHERE (h.checkpoint ->> 'v')::int >= 4 AND h.checkpoint -> 'channel_versions' <> '{{}}'
    AND NOT h.metadata ?| ARRAY['{COUNTERS}', '{EARLY_COUNTERS}', '{JS_MARKER}', '{SQUASHED}']
    AND NOT EXISTS (
        SELECT FROM jsonb_each_text(h.checkpoint -> 'channel_versions') AS v
        WHERE NOT starts_with(v.key, 'branch:') AND NOT starts_with(v.key, '__')
        AND coalesce(h.checkpoint -> 'channel_values' -> v.key, 'null') = 'null'
        AND (
            SELECT true FROM checkpoint_blobs b
            WHERE b.thread_id = h.thread_id AND b.checkpoint_ns = h.checkpoint_ns
            AND b.channel = v.key AND b.version = v.value AND b.type NOT IN ('empty', 'null')
            LIMIT 1
        ) IS NULL
    )
), channels AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_ns, channel FROM checkpoint_blobs
    WHERE thread_id = ANY(%(threads)s::text[])
), gone AS (
    DELETE FROM checkpoints c USING settled
    WHERE c.thread_id = ANY(%(threads)s::text[]) AND c.thread_id = settled.thread_id
    AND c.checkpoint_id <> settled.head
    RETURNING c.thread_id, c.checkpoint_ns, c.checkpoint_id,
        c.checkpoint -> 'channel_versions' AS versions
), freed AS (
    SELECT b.thread_id, b.checkpoint_ns, b.channel, gone.versions ->> b.channel AS version
    FROM channels b JOIN gone ON {NAMESPACE_OF.format("gone")} OFFSET 0
), used AS (
    SELECT b.thread_id, b.checkpoint_ns, b.channel, settled.versions ->> b.channel AS version
    FROM channels b JOIN settled ON {NAMESPACE_OF.format("settled")} OFFSET 0
), detached AS (
    UPDATE checkpoints c SET parent_checkpoint_id = NULL FROM settled
    WHERE c.thread_id = ANY(%(threads)s::text[]) AND c.thread_id = settled.thread_id
    AND c.checkpoint_ns = settled.checkpoint_ns AND c.checkpoint_id = settled.head
    AND c.parent_checkpoint_id NOT IN ('', c.checkpoint_id)
), writes AS (
    DELETE FROM checkpoint_writes w USING gone
    WHERE w.thread_id = ANY(%(threads)s::text[]) AND w.thread_id = gone.thread_id
    AND w.checkpoint_ns = gone.checkpoint_ns AND w.checkpoint_id = gone.checkpoint_id
), blobs AS (
    DELETE FROM checkpoint_blobs b WHERE b.thread_id = ANY(%(threads)s::text[])
    AND EXISTS (SELECT FROM freed WHERE {IS_BLOB.format("freed")})
    AND NOT EXISTS (SELECT FROM used WHERE {IS_BLOB.format("used")})
)
SELECT thread_id FROM settled
"""

_HANGING = """
SELECT DISTINCT c.thread_id FROM checkpoints c
WHERE c.thread_id = ANY(%(threads)s::text[]) AND c.parent_checkpoint_id <> '' AND NOT EXISTS (
    SELECT FROM checkpoints p
    WHERE p.thread_id = ANY(%(threads)s::text[]) AND p.thread_id = c.thread_id
    AND p.checkpoint_ns = c.checkpoint_ns AND p.checkpoint_id = c.parent_checkpoint_id
)
"""


def prune_settled(thread_ids: Sequence[str]) -> Statements[frozenset[str]]:
    """Prune the settled ones of these threads to their heads; returns which.

    Raises:
        ForkedMeanwhileError: If a checkpoint hangs on a deleted one now; roll back.
    """
    yield Statement(PLAN_BY_HASHING)
    found = yield Statement(_SWEEP_SETTLED, {"threads": _array(thread_ids)})
    settled = frozenset(thread_id for (thread_id,) in found)
    if settled:
        hanging = yield Statement(_HANGING, {"threads": _array(settled)})
        if hanging:
            raise ForkedMeanwhileError.of(thread_id for (thread_id,) in hanging)
    return settled
