"""The statements of the Postgres savers' hooks.

1. A statement serves a whole batch of threads, so their number does not depend on the batch.
2. Every statement names the thread ids, so that partitions by hash of `thread_id` are pruned:
   when it is planned, or where rows are looked up one by one, when it runs.
3. They run unprepared: a generic plan knows no ids.
4. Rows are named by one JSON array of `[thread, namespace, [id, ...]]`, which costs a third of
   dumping text arrays.
5. Reads look rows up by primary key (`LATERAL ... LIMIT 1`), so they do not depend on estimates.
6. Deletes are joins, planned from estimates that are worst for the few huge threads worth
   cleaning. Nested loops and merges, which can compare all rows of a thread with all, are off
   for them; what is left is hashed, and linear.
7. Only rows and blobs that a plan names, or its rows reference, are deleted. What a run has
   stored meanwhile or stores ahead of its checkpoint is referenced by none of them.
8. Tables are swept in the order in which the host's `delete_thread` does: no deadlock with it.
"""

from __future__ import annotations

from delta_mixin.base_rows import SQUASHED
from delta_mixin.channels import COUNTERS, EARLY_COUNTERS

LOCK_THREADS = """
SELECT set_config('jit', 'off', true), count(pg_advisory_xact_lock(key)) FROM (
    SELECT DISTINCT hashtextextended(thread_id, 'checkpoints'::regclass::oid::bigint) AS key
    FROM unnest(%(threads)s::text[]) AS t (thread_id)
    ORDER BY key
) AS keys
"""
"""Seeded with the table, so that equal thread ids of two schemas do not wait for each other.
The order is the same in every batch, so batches cannot deadlock."""

NO_COMPILING = "SELECT set_config('jit', 'off', true)"
"""How many rows are named is estimated high, so short statements would seem worth compiling."""

# Thread by thread, as sorting the rows of all takes longer.
_LIST_ROWS = """
SELECT t.thread_id, c.* FROM (SELECT DISTINCT unnest(%(threads)s::text[]) AS thread_id) AS t
CROSS JOIN LATERAL (
    SELECT checkpoint_ns, array_agg(checkpoint_id), array_agg(NULLIF(parent_checkpoint_id, '')){0}
    FROM checkpoints WHERE thread_id = t.thread_id GROUP BY checkpoint_ns
) AS c
"""

LIST_ROWS = _LIST_ROWS.format("")

LIST_ROWS_WITH_RUNS = _LIST_ROWS.format(f""",
    array_agg(
        CASE WHEN jsonb_typeof(metadata -> 'run_id') = 'string' AND NOT metadata ? '{SQUASHED}'
        THEN metadata ->> 'run_id' END
    )""")

COUNT_ROWS = """
SELECT thread_id, count(*) FROM checkpoints
WHERE thread_id = ANY(%(threads)s::text[]) GROUP BY thread_id
"""

LIST_RUN_THREADS = """
SELECT DISTINCT thread_id FROM checkpoints WHERE metadata ->> 'run_id' = ANY(%(runs)s::text[])
"""

KEYS = """
    SELECT g ->> 0 AS thread_id, g ->> 1 AS checkpoint_ns,
        jsonb_array_elements_text(g -> 2) AS checkpoint_id
    FROM jsonb_array_elements(%(keys)s::jsonb) AS g
"""

_IS_KEY = """
    c.thread_id = k.thread_id
    AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
"""

IS_BLOB = """
    b.thread_id = {0}.thread_id AND b.checkpoint_ns = {0}.checkpoint_ns
    AND b.channel = {0}.channel AND b.version = {0}.version
"""

_ROW_OF_KEY = f"c.thread_id = ANY(%(threads)s::text[]) AND {_IS_KEY}"

READ_METADATA = f"""
SELECT k.thread_id, k.checkpoint_ns, k.checkpoint_id, c.metadata::text
FROM ({KEYS}) AS k
CROSS JOIN LATERAL (SELECT metadata FROM checkpoints c WHERE {_IS_KEY} LIMIT 1) AS c
"""

# As the host's reader has it: a blob of the row's own version, or a value inline. A stored
# `None` counts as neither, though as a blob it ends that reader's walk. Inline `true` with a blob
# behind it marks a snapshot; behind any other value inline there is none.
READ_CHECKPOINTS = f"""
SELECT k.thread_id, k.checkpoint_ns, k.checkpoint_id, c.metadata::text,
    (c.checkpoint ->> 'v')::int, (c.checkpoint -> 'channel_versions')::text,
    inline.channels, inline.marked, stored.channels, stored.nones
FROM ({KEYS}) AS k
CROSS JOIN LATERAL (
    SELECT metadata, checkpoint FROM checkpoints c WHERE {_IS_KEY} LIMIT 1
) AS c
CROSS JOIN LATERAL (
    SELECT array_agg(v.key) AS channels, array_agg(v.key) FILTER (WHERE v.value = 'true') AS marked
    FROM jsonb_each(c.checkpoint -> 'channel_values') AS v WHERE v.value <> 'null'
) AS inline
CROSS JOIN LATERAL (
    SELECT array_agg(v.key) FILTER (WHERE b.type <> 'null') AS channels,
        array_agg(v.key) FILTER (WHERE b.type = 'null') AS nones
    FROM jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
    CROSS JOIN LATERAL (
        SELECT b.type FROM checkpoint_blobs b
        WHERE b.thread_id = k.thread_id AND b.checkpoint_ns = k.checkpoint_ns
        AND b.channel = v.key AND b.version = v.value AND b.type <> 'empty'
        LIMIT 1
    ) AS b
    WHERE coalesce(c.checkpoint -> 'channel_values' -> v.key, 'null') IN ('null', 'true')
) AS stored
"""

# As `KnownChannels` has it. What is no object counts as beyond, as nothing is known of it.
LIST_BEYOND = f"""
WITH known AS MATERIALIZED (
    SELECT g ->> 0 AS thread_id, g ->> 1 AS checkpoint_ns,
        ARRAY(SELECT jsonb_array_elements_text(g -> 2)) AS channels,
        ARRAY(SELECT jsonb_array_elements_text(g -> 3)) AS unless_counted
    FROM jsonb_array_elements(%(known)s::jsonb) AS g
)
SELECT known.thread_id, c.checkpoint_id FROM known CROSS JOIN LATERAL (
    SELECT checkpoint_id, checkpoint -> 'channel_versions' AS versions,
        metadata -> '{COUNTERS}' AS counters, metadata -> '{EARLY_COUNTERS}' AS early
    FROM checkpoints WHERE thread_id = known.thread_id AND checkpoint_ns = known.checkpoint_ns
    OFFSET 0
) AS c
WHERE CASE WHEN jsonb_typeof(c.versions) = 'object'
    THEN c.versions = '{{}}' OR c.versions - known.channels <> '{{}}' ELSE true END
OR c.counters ?| known.unless_counted OR c.early ?| known.unless_counted
"""

READ_WRITES = f"""
SELECT k.thread_id, k.checkpoint_ns, k.checkpoint_id,
    ARRAY(SELECT DISTINCT c.channel FROM checkpoint_writes c WHERE {_IS_KEY})
FROM ({KEYS}) AS k
"""

PLAN_BY_HASHING = """
SELECT set_config('enable_nestloop', 'off', true), set_config('enable_mergejoin', 'off', true)
"""

SETTINGS = """
SELECT current_setting('enable_nestloop'), current_setting('enable_mergejoin'),
    current_setting('jit')
"""

PLAN_AS_BEFORE = """
SELECT set_config('enable_nestloop', %(nestloop)s, true),
    set_config('enable_mergejoin', %(mergejoin)s, true), set_config('jit', %(jit)s, true)
"""

DELETE_THREADS = tuple(
    f"DELETE FROM {table} WHERE thread_id = ANY(%(threads)s::text[])"
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
)

NAMESPACE_OF = "b.thread_id = {0}.thread_id AND b.checkpoint_ns = {0}.checkpoint_ns"

# All of it sees the rows as they were before; the parts run in the order of the tables. Versions
# are looked up for the channels that have blobs, as taking each row's apart takes longer. With
# OFFSET 0 they are taken from a row once, so that it is not hashed as a whole, and so on disk.
SWEEP = f"""
WITH k AS MATERIALIZED ({KEYS}), channels AS MATERIALIZED (
    SELECT DISTINCT thread_id, checkpoint_ns, channel FROM checkpoint_blobs
    WHERE thread_id = ANY(%(threads)s::text[])
), gone AS (
    DELETE FROM checkpoints c USING k WHERE {_ROW_OF_KEY}
    RETURNING c.thread_id, c.checkpoint_ns, c.checkpoint -> 'channel_versions' AS versions
), freed AS (
    SELECT b.thread_id, b.checkpoint_ns, b.channel, gone.versions ->> b.channel AS version
    FROM channels b JOIN gone ON {NAMESPACE_OF.format("gone")} OFFSET 0
), used AS (
    SELECT b.thread_id, b.checkpoint_ns, b.channel, c.versions ->> b.channel AS version
    FROM channels b JOIN (
        SELECT thread_id, checkpoint_ns, checkpoint_id, checkpoint -> 'channel_versions' AS versions
        FROM checkpoints WHERE thread_id = ANY(%(threads)s::text[]) OFFSET 0
    ) AS c ON {NAMESPACE_OF.format("c")} WHERE NOT EXISTS (SELECT FROM k WHERE {_IS_KEY}) OFFSET 0
), writes AS (
    DELETE FROM checkpoint_writes c USING k WHERE {_ROW_OF_KEY}
)
DELETE FROM checkpoint_blobs b WHERE b.thread_id = ANY(%(threads)s::text[])
AND EXISTS (SELECT FROM freed WHERE {IS_BLOB.format("freed")})
AND NOT EXISTS (SELECT FROM used WHERE {IS_BLOB.format("used")})
"""

DROP_NAMESPACES = tuple(
    f"""
WITH dropped AS MATERIALIZED (
    SELECT g ->> 0 AS thread_id, g ->> 1 AS checkpoint_ns
    FROM jsonb_array_elements(%(dropped)s::jsonb) AS g
)
DELETE FROM {table} b USING dropped
WHERE b.thread_id = ANY(%(threads)s::text[]) AND {NAMESPACE_OF.format("dropped")}
"""
    for table in ("checkpoint_blobs", "checkpoint_writes")
)

DETACH = f"""
WITH k AS MATERIALIZED ({KEYS})
UPDATE checkpoints c SET parent_checkpoint_id = NULL FROM k WHERE {_ROW_OF_KEY}
"""

FORKED = f"""
WITH k AS MATERIALIZED ({KEYS})
SELECT DISTINCT c.thread_id FROM checkpoints c JOIN k
ON c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
AND c.parent_checkpoint_id = k.checkpoint_id
WHERE c.thread_id = ANY(%(threads)s::text[]) AND c.parent_checkpoint_id IS NOT NULL
"""

TARGET_EXISTS = """
SELECT EXISTS (SELECT FROM checkpoint_writes WHERE thread_id = %(target)s)
    OR EXISTS (SELECT FROM checkpoint_blobs WHERE thread_id = %(target)s)
"""

COPY = f"""
WITH k AS MATERIALIZED ({KEYS}), channels AS MATERIALIZED (
    SELECT DISTINCT checkpoint_ns, channel FROM checkpoint_blobs
    WHERE thread_id = ANY(%(threads)s::text[])
), copied AS (
    INSERT INTO checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
    )
    SELECT %(target)s, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.type,
        c.checkpoint, c.metadata
    FROM checkpoints c JOIN k ON {_ROW_OF_KEY}
    RETURNING checkpoint_ns, checkpoint -> 'channel_versions' AS versions
), used AS (
    SELECT checkpoint_ns, channel, copied.versions ->> channel AS version
    FROM channels JOIN copied USING (checkpoint_ns) OFFSET 0
), writes AS (
    INSERT INTO checkpoint_writes (
        thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path
    )
    SELECT %(target)s, c.checkpoint_ns, c.checkpoint_id, c.task_id, c.idx, c.channel, c.type,
        c.blob, c.task_path
    FROM checkpoint_writes c JOIN k ON {_ROW_OF_KEY}
), blobs AS (
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT %(target)s, b.checkpoint_ns, b.channel, b.version, b.type, b.blob
    FROM checkpoint_blobs b WHERE b.thread_id = ANY(%(threads)s::text[]) AND EXISTS (
        SELECT FROM used
        WHERE used.checkpoint_ns = b.checkpoint_ns
        AND used.channel = b.channel AND used.version = b.version
    )
)
SELECT count(*) FROM copied
"""
