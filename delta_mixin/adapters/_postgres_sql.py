"""SQL of the Postgres savers' hooks, in one body for both sides.

Each body yields statements and is sent their rows.

1. A statement serves a whole batch of threads, so their number does not depend on the batch.
2. Every table in every statement is narrowed to the batch's thread ids, so that partitions by
   hash of `thread_id` are pruned. The statements run unprepared: a generic plan knows no ids.
3. Rows are named by one JSON array of `[thread, namespace, [id, ...]]`, which costs a third of
   dumping text arrays.
4. Reads look rows up by primary key (`LATERAL ... LIMIT 1`), so they do not depend on estimates.
5. Deletes are joins, planned from estimates that are worst for the few huge threads worth
   cleaning; nested loops are off for them, so what is left is hashed: linear in a thread's rows.
6. Only rows and blobs that a plan names, or its rows reference, are deleted. What a run has
   stored meanwhile or stores ahead of its checkpoint is referenced by none of them.
7. Tables are swept in the order in which the host's `delete_thread` does: no deadlock with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from delta_mixin.errors import IsolationLevelError, RowsUnreadError, TargetThreadExistsError
from delta_mixin.model import CheckpointRow, CleanupPlan, Part, Reads, RowKey

T = TypeVar("T")


class Statement(NamedTuple):
    """A statement, its parameters, and whether it returns rows."""

    sql: str
    params: Mapping[str, Any] = {}
    fetch: bool = True


Statements = Generator[Statement, list[tuple[Any, ...]], T]

Settings = Mapping[str, str]
Begin = Callable[[bool], Statements["Settings | None"]]
"""The first statements of a transaction, given whether it is nested in one that is open. Returns
the settings to restore at its end, for such a one."""


class ForkedMeanwhileError(Exception):
    """A checkpoint was stored under one that is being deleted, after planning."""


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

LIST_ROWS = """
SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id
FROM checkpoints WHERE thread_id = ANY(%(threads)s)
"""

COUNT_ROWS = """
SELECT thread_id, count(*) FROM checkpoints WHERE thread_id = ANY(%(threads)s) GROUP BY thread_id
"""

LIST_RUN_THREADS = """
SELECT DISTINCT thread_id FROM checkpoints WHERE metadata ->> 'run_id' = ANY(%(runs)s)
"""

KEYS = """
    SELECT g ->> 0 AS thread_id, g ->> 1 AS checkpoint_ns, i AS checkpoint_id
    FROM jsonb_array_elements(%(keys)s::jsonb) AS g
    CROSS JOIN LATERAL jsonb_array_elements_text(g -> 2) AS i
"""

_ROW_OF_KEY = """
    c.thread_id = ANY(%(threads)s) AND c.thread_id = k.thread_id
    AND c.checkpoint_ns = k.checkpoint_ns AND c.checkpoint_id = k.checkpoint_id
"""

READ_METADATA = f"""
SELECT k.thread_id, k.checkpoint_ns, k.checkpoint_id, c.metadata
FROM ({KEYS}) AS k
CROSS JOIN LATERAL (SELECT metadata FROM checkpoints c WHERE {_ROW_OF_KEY} LIMIT 1) AS c
"""

# As the host's reader has it: a blob of the row's own version, or a value inline. A stored
# `None` counts as neither. Inline `true` with a blob behind it marks a snapshot.
READ_CHECKPOINTS = f"""
SELECT k.thread_id, k.checkpoint_ns, k.checkpoint_id, c.metadata,
    (c.checkpoint ->> 'v')::int,
    c.checkpoint -> 'channel_versions',
    ARRAY(
        SELECT v.key FROM jsonb_each(c.checkpoint -> 'channel_values') AS v
        WHERE v.value <> 'null'
    ),
    ARRAY(
        SELECT v.key FROM jsonb_each(c.checkpoint -> 'channel_values') AS v
        WHERE v.value = 'true'
    ),
    ARRAY(
        SELECT v.key FROM jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
        CROSS JOIN LATERAL (
            SELECT FROM checkpoint_blobs b
            WHERE b.thread_id = ANY(%(threads)s) AND b.thread_id = k.thread_id
            AND b.checkpoint_ns = k.checkpoint_ns
            AND b.channel = v.key AND b.version = v.value
            AND b.type NOT IN ('empty', 'null')
            LIMIT 1
        ) AS stored
    )
FROM ({KEYS}) AS k
CROSS JOIN LATERAL (
    SELECT metadata, checkpoint FROM checkpoints c WHERE {_ROW_OF_KEY} LIMIT 1
) AS c
"""

READ_WRITES = f"""
SELECT k.thread_id, k.checkpoint_ns, k.checkpoint_id,
    ARRAY(SELECT DISTINCT c.channel FROM checkpoint_writes c WHERE {_ROW_OF_KEY})
FROM ({KEYS}) AS k
"""

PLAN_BY_HASHING = "SELECT set_config('enable_nestloop', 'off', true)"

SETTINGS = "SELECT current_setting('enable_nestloop'), current_setting('jit')"

PLAN_AS_BEFORE = """
SELECT set_config('enable_nestloop', %(nestloop)s, true), set_config('jit', %(jit)s, true)
"""

DELETE_THREADS = tuple(
    f"DELETE FROM {table} WHERE thread_id = ANY(%(threads)s)"
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
)

SWEEP_CHECKPOINTS = f"""
WITH k AS MATERIALIZED ({KEYS}), gone AS (
    DELETE FROM checkpoints c USING k WHERE {_ROW_OF_KEY}
    RETURNING c.thread_id, c.checkpoint_ns, c.checkpoint -> 'channel_versions' AS versions
), freed AS (
    SELECT gone.thread_id, gone.checkpoint_ns, v.key AS channel, v.value AS version
    FROM gone CROSS JOIN LATERAL jsonb_each_text(gone.versions) AS v
    EXCEPT
    SELECT c.thread_id, c.checkpoint_ns, v.key, v.value
    FROM checkpoints c
    CROSS JOIN LATERAL jsonb_each_text(c.checkpoint -> 'channel_versions') AS v
    WHERE c.thread_id = ANY(%(threads)s) AND NOT EXISTS (SELECT FROM k WHERE {_ROW_OF_KEY})
)
DELETE FROM checkpoint_blobs b USING freed
WHERE b.thread_id = ANY(%(threads)s) AND b.thread_id = freed.thread_id
AND b.checkpoint_ns = freed.checkpoint_ns
AND b.channel = freed.channel AND b.version = freed.version
"""

SWEEP_WRITES = f"DELETE FROM checkpoint_writes c USING ({KEYS}) AS k WHERE {_ROW_OF_KEY}"

DROP_NAMESPACES = tuple(
    f"""
DELETE FROM {table} c USING (
    SELECT g ->> 0 AS thread_id, g ->> 1 AS checkpoint_ns
    FROM jsonb_array_elements(%(namespaces)s::jsonb) AS g
) AS k
WHERE c.thread_id = ANY(%(threads)s)
AND c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
"""
    for table in ("checkpoint_blobs", "checkpoint_writes")
)

DETACH = f"""
UPDATE checkpoints c SET parent_checkpoint_id = NULL FROM ({KEYS}) AS k WHERE {_ROW_OF_KEY}
"""

FORKED_MEANWHILE = f"""
SELECT DISTINCT c.thread_id FROM checkpoints c JOIN ({KEYS}) AS k
ON c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
AND c.parent_checkpoint_id = k.checkpoint_id
WHERE c.thread_id = ANY(%(threads)s)
UNION
SELECT DISTINCT c.thread_id FROM checkpoints c JOIN (
    SELECT g ->> 0 AS thread_id, g ->> 1 AS checkpoint_ns
    FROM jsonb_array_elements(%(namespaces)s::jsonb) AS g
) AS k
ON c.thread_id = k.thread_id AND c.checkpoint_ns = k.checkpoint_ns
WHERE c.thread_id = ANY(%(threads)s)
"""

TARGET_EXISTS = """
SELECT EXISTS (SELECT FROM checkpoint_writes WHERE thread_id = %(target)s)
    OR EXISTS (SELECT FROM checkpoint_blobs WHERE thread_id = %(target)s)
"""

COPY = f"""
WITH k AS MATERIALIZED ({KEYS}), copied AS (
    INSERT INTO checkpoints (
        thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
    )
    SELECT %(target)s, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.type,
        c.checkpoint, c.metadata
    FROM checkpoints c JOIN k ON {_ROW_OF_KEY}
    RETURNING checkpoint_ns, checkpoint -> 'channel_versions' AS versions
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
    FROM checkpoint_blobs b JOIN (
        SELECT DISTINCT copied.checkpoint_ns, v.key AS channel, v.value AS version
        FROM copied CROSS JOIN LATERAL jsonb_each_text(copied.versions) AS v
    ) AS used
    ON b.checkpoint_ns = used.checkpoint_ns
    AND b.channel = used.channel AND b.version = used.version
    WHERE b.thread_id = ANY(%(threads)s)
)
SELECT count(*) FROM copied
"""


def begin_cleanup(thread_ids: Sequence[str], nested: bool) -> Statements[Settings | None]:
    """Lock the threads, without taking the snapshot of what follows.

    Raises:
        IsolationLevelError: If the open transaction keeps one snapshot for all statements.
    """
    settings = None
    if nested:
        ((level,),) = yield Statement("SELECT current_setting('transaction_isolation')")
        if level not in ("read committed", "read uncommitted"):
            raise IsolationLevelError(level)
        settings = yield from _settings()
    else:
        level = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
        yield Statement(level, fetch=False)
    yield Statement(LOCK_THREADS, {"threads": list(thread_ids)})
    return settings


def begin_reading(nested: bool) -> Statements[Settings | None]:
    """Give all statements one snapshot, unless the open transaction has settled it already."""
    settings = None
    if nested:
        settings = yield from _settings()
    else:
        level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        yield Statement(level, fetch=False)
    yield Statement(NO_COMPILING)
    return settings


def end(settings: Settings | None) -> Statements[None]:
    """Leave a transaction that goes on as it was; one that ends forgets the settings itself."""
    if settings is not None:
        yield Statement(PLAN_AS_BEFORE, settings)


def _settings() -> Statements[Settings]:
    ((nestloop, jit),) = yield Statement(SETTINGS)
    return {"nestloop": nestloop, "jit": jit}


def count_rows(thread_ids: Sequence[str]) -> Statements[dict[str, int]]:
    """How many checkpoints the threads hold."""
    return dict((yield Statement(COUNT_ROWS, {"threads": list(thread_ids)})))


def list_run_threads(run_ids: Sequence[str]) -> Statements[list[str]]:
    """Threads with a row of one of the runs."""
    found = yield Statement(LIST_RUN_THREADS, {"runs": list(run_ids)})
    return [thread_id for (thread_id,) in found]


def list_rows(thread_ids: Sequence[str]) -> Statements[list[CheckpointRow]]:
    """Lean rows of the threads; the newest of each namespace is read, as most plans need it."""
    found = yield Statement(LIST_ROWS, {"threads": list(thread_ids)})
    same: dict[str, str] = {}
    rows: dict[tuple[str, str, str], CheckpointRow] = {}
    newest: dict[tuple[str, str], str] = {}
    for thread_id, ns, checkpoint_id, parent_id in found:
        # One string per id, not one per column and row: it halves what a long thread takes.
        thread_id = same.setdefault(thread_id, thread_id)
        ns = same.setdefault(ns, ns)
        checkpoint_id = same.setdefault(checkpoint_id, checkpoint_id)
        parent_id = same.setdefault(parent_id, parent_id) if parent_id else None
        key = (thread_id, ns, checkpoint_id)
        rows[key] = CheckpointRow(*key, parent_id)
        if checkpoint_id > newest.get(key[:2], ""):
            newest[key[:2]] = checkpoint_id
    reads: dict[str, dict[RowKey, frozenset[Part]]] = {}
    for (thread_id, ns), checkpoint_id in newest.items():
        reads.setdefault(thread_id, {})[RowKey(ns, checkpoint_id)] = frozenset(("checkpoint",))
    for read in (yield from _read_checkpoints(reads)):
        key = (read.thread_id, *read.key)
        rows[key] = rows[key].merged(read)
    return list(rows.values())


def read_rows(requests: Mapping[str, Reads]) -> Statements[dict[str, list[CheckpointRow]]]:
    """The asked-for parts of the asked-for rows, all threads' together."""
    rows: dict[str, list[CheckpointRow]] = {thread_id: [] for thread_id in requests}
    # The metadata of a checkpoint that is read is read along.
    for part, besides, read in (
        ("checkpoint", None, _read_checkpoints),
        ("metadata", "checkpoint", _read_metadata),
        ("writes", None, _read_writes),
    ):
        wanted = {
            thread_id: {
                key: parts for key, parts in reads.items() if part in parts and besides not in parts
            }
            for thread_id, reads in requests.items()
        }
        for row in (yield from read(wanted)):
            rows[row.thread_id].append(row)
    return rows


def _read_metadata(reads: Mapping[str, Reads]) -> Statements[list[CheckpointRow]]:
    if not any(reads.values()):
        return []
    found = yield _of_keys(READ_METADATA, reads)
    return [CheckpointRow(t, ns, i, metadata=metadata) for t, ns, i, metadata in found]


def _read_checkpoints(reads: Mapping[str, Reads]) -> Statements[list[CheckpointRow]]:
    if not any(reads.values()):
        return []
    found = yield _of_keys(READ_CHECKPOINTS, reads)
    same: dict[Any, Any] = {}
    rows = []
    for t, ns, i, metadata, v, versions, inline, true, stored in found:
        populated = frozenset((*inline, *stored))
        snapshots = frozenset(true).intersection(stored)
        rows.append(
            CheckpointRow(
                t,
                ns,
                i,
                metadata=metadata,
                v=1 if v is None else v,
                channel_versions={c: same.setdefault(x, x) for c, x in (versions or {}).items()},
                populated=same.setdefault(populated, populated),
                snapshots=same.setdefault(snapshots, snapshots),
            )
        )
    return rows


def _read_writes(reads: Mapping[str, Reads]) -> Statements[list[CheckpointRow]]:
    if not any(reads.values()):
        return []
    found = yield _of_keys(READ_WRITES, reads)
    return [CheckpointRow(t, ns, i, write_channels=frozenset(c)) for t, ns, i, c in found]


def delete_rows(plans: Sequence[CleanupPlan]) -> Statements[None]:
    """Carry out the plans.

    Raises:
        ForkedMeanwhileError: If a checkpoint hangs on a deleted one now; roll back.
    """
    whole = [p.thread_id for p in plans if p.operation == "delete"]
    if whole:
        for statement in DELETE_THREADS:
            yield Statement(statement, {"threads": whole}, fetch=False)
    plans = [p for p in plans if p.operation != "delete"]
    if not plans:
        return
    yield Statement(PLAN_BY_HASHING)
    doomed = _of_keys("", {p.thread_id: p.doomed for p in plans}).params
    dropped = [(p.thread_id, ns) for p in plans for ns in p.dropped_namespaces]
    detached = {p.thread_id: p.detached for p in plans}
    if any(p.doomed for p in plans):
        yield Statement(SWEEP_CHECKPOINTS, doomed, fetch=False)
    if dropped:
        threads = list(dict.fromkeys(thread_id for thread_id, _ in dropped))
        params = {"threads": threads, "namespaces": _json(dropped)}
        for statement in DROP_NAMESPACES:
            yield Statement(statement, params, fetch=False)
    if any(p.doomed for p in plans):
        yield Statement(SWEEP_WRITES, doomed, fetch=False)
    if any(detached.values()):
        yield _of_keys(DETACH, detached)._replace(fetch=False)
    forked = yield Statement(FORKED_MEANWHILE, {**doomed, "namespaces": _json(dropped)})
    if forked:
        names = ", ".join(sorted(repr(thread_id) for (thread_id,) in forked))
        raise ForkedMeanwhileError(
            f"a checkpoint was added under one that was about to be deleted, in {names}"
        )


def copy_rows(source: str, target: str, rows: Sequence[CheckpointRow]) -> Statements[None]:
    """Copy the rows, their writes and the blobs they reference, inside the database.

    Raises:
        TargetThreadExistsError: If writes or blobs without a checkpoint are stored for the target.
        RowsUnreadError: If rows of the source are gone.
    """
    ((exists,),) = yield Statement(TARGET_EXISTS, {"target": target})
    if exists:
        raise TargetThreadExistsError(target)
    copy = _of_keys(COPY, {source: [row.key for row in rows]})
    ((count,),) = yield copy._replace(params={**copy.params, "target": target})
    if count != len(rows):
        raise RowsUnreadError(
            f"{len(rows) - count} checkpoint(s) of thread {source!r} are gone while copying"
        )


def _of_keys(sql: str, keys_by_thread: Mapping[str, Iterable[tuple[str, str]]]) -> Statement:
    """A statement on these rows of these threads."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for thread_id, keys in keys_by_thread.items():
        for ns, checkpoint_id in keys:
            grouped.setdefault((thread_id, ns), []).append(checkpoint_id)
    keys_json = _json([(t, ns, ids) for (t, ns), ids in grouped.items()])
    threads = list(dict.fromkeys(thread_id for thread_id, _ in grouped))
    return Statement(sql, {"threads": threads, "keys": keys_json})


def _json(value: Any) -> str:
    # As it is: escapes above ASCII are refused by databases of some encodings.
    return json.dumps(value, ensure_ascii=False)
