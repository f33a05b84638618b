"""SQL of the SQLite savers' hooks, in one body for both sides.

Each body yields a statement with its parameters and is sent the rows.

1. Ids go in as one JSON array, so no statement has a limit on how many.
2. A thread is listed lean: its ids and parents. Metadata lies behind the checkpoint blob, so
   both are read only for the rows a plan asks for; writes are asked for their channels only.
3. Copies are `INSERT ... SELECT` over the columns that the tables really have, so databases
   from before the `task_path` column work.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from delta_mixin.errors import TargetThreadExistsError
from delta_mixin.listing import Listing, Outline
from delta_mixin.model import CheckpointRow, CleanupPlan, Part, Reads

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]
Statements = Generator[tuple[str, Parameters], list[tuple[Any, ...]], T]

BLOBS_AT_ONCE = 64
"""How many checkpoint blobs one statement reads, to bound memory."""

_IDS = "checkpoint_id IN (SELECT value FROM json_each(?))"
_WHERE = f"WHERE thread_id = ? AND checkpoint_ns = ? AND {_IDS}"
_CLEAR_PARENT = f"UPDATE checkpoints SET parent_checkpoint_id = NULL {_WHERE}"


def list_rows(thread_ids: Sequence[str]) -> Statements[Listing]:
    """Lean rows of the threads."""
    outlines = []
    for thread_id in thread_ids:
        found = yield (
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
            "WHERE thread_id = ?",
            (thread_id,),
        )
        by_namespace: dict[str, dict[str, str | None]] = {}
        for ns, checkpoint_id, parent_id in found:
            by_namespace.setdefault(ns, {})[checkpoint_id] = parent_id or None
        outlines += [Outline(thread_id, ns, parents) for ns, parents in by_namespace.items()]
    return Listing(outlines)


def read_rows(serde: Any, thread_id: str, keys: Reads) -> Statements[list[CheckpointRow]]:
    """The asked-for parts of the asked-for rows."""
    wanted: dict[tuple[str, Part], list[str]] = {}
    for (ns, checkpoint_id), parts in keys.items():
        for part in parts:
            wanted.setdefault((ns, part), []).append(checkpoint_id)
    rows: list[CheckpointRow] = []
    for (ns, part), ids in wanted.items():
        if part == "metadata":
            found = yield _select("checkpoint_id, metadata", "checkpoints", thread_id, ns, ids)
            rows += [
                CheckpointRow(thread_id, ns, i, metadata=_metadata(stored)) for i, stored in found
            ]
        elif part == "writes":
            columns = "DISTINCT checkpoint_id, channel"
            found = yield _select(columns, "writes", thread_id, ns, ids)
            channels: dict[str, set[str]] = {i: set() for i in ids}
            for checkpoint_id, channel in found:
                channels[checkpoint_id].add(channel)
            rows += [
                CheckpointRow(thread_id, ns, i, write_channels=frozenset(c))
                for i, c in channels.items()
            ]
        else:
            for some in _chunks(ids, BLOBS_AT_ONCE):
                columns = "checkpoint_id, type, checkpoint"
                for i, type_, blob in (yield _select(columns, "checkpoints", thread_id, ns, some)):
                    checkpoint = serde.loads_typed((type_, blob))
                    rows.append(CheckpointRow(thread_id, ns, i).with_checkpoint(checkpoint))
    return rows


def delete_rows(plans: Sequence[CleanupPlan]) -> Statements[None]:
    """Carry out the plans."""
    for plan in plans:
        for ns in plan.dropped_namespaces:
            for table in ("writes", "checkpoints"):
                statement = f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?"
                yield statement, (plan.thread_id, ns)
        for ns, ids in plan.doomed_ids().items():
            if ns not in plan.dropped_namespaces:
                for table in ("writes", "checkpoints"):
                    yield f"DELETE FROM {table} {_WHERE}", (plan.thread_id, ns, json.dumps(ids))
        for ns, ids in plan.detached_ids().items():
            yield _CLEAR_PARENT, (plan.thread_id, ns, json.dumps(ids))


def copy_rows(source: str, target: str, rows: Sequence[CheckpointRow]) -> Statements[None]:
    """Copy the rows and their writes inside the database.

    Raises:
        TargetThreadExistsError: If writes without a checkpoint are stored for the target.
    """
    if (yield "SELECT 1 FROM writes WHERE thread_id = ? LIMIT 1", (target,)):
        raise TargetThreadExistsError(target)
    ids_by_ns: dict[str, list[str]] = {}
    for row in rows:
        ids_by_ns.setdefault(row.checkpoint_ns, []).append(row.checkpoint_id)
    for table in ("checkpoints", "writes"):
        found = yield (
            "SELECT '\"' || replace(name, '\"', '\"\"') || '\"' FROM pragma_table_info(?) "
            "WHERE name <> 'thread_id'",
            (table,),
        )
        columns = ", ".join(name for (name,) in found)
        for ns, ids in ids_by_ns.items():
            yield (
                f"INSERT INTO {table} (thread_id, {columns}) "
                f"SELECT ?, {columns} FROM {table} {_WHERE}",
                (target, source, ns, json.dumps(ids)),
            )
    for ns in ids_by_ns:
        first = [r.checkpoint_id for r in rows if r.checkpoint_ns == ns and r.parent_id is None]
        yield _CLEAR_PARENT, (target, ns, json.dumps(first))


def list_run_threads(run_ids: Sequence[str]) -> Statements[list[str]]:
    """Threads with a row of one of the runs; reads every row's metadata once.

    Names a thread as well if SQLite cannot tell: if a run id is no string, or the metadata no
    JSON by its rules, which `NaN` is not although `json.dumps` writes it.
    """
    found = yield (
        "SELECT DISTINCT thread_id FROM "
        "(SELECT thread_id, CAST(metadata AS TEXT) AS stored FROM checkpoints) WHERE CASE "
        "WHEN NOT json_valid(stored) THEN 1 "
        "WHEN json_type(stored, '$.run_id') = 'text' THEN "
        "json_extract(stored, '$.run_id') IN (SELECT value FROM json_each(?)) "
        "ELSE json_type(stored, '$.run_id') <> 'null' END",
        (json.dumps(list(run_ids)),),
    )
    return [thread_id for (thread_id,) in found]


def _metadata(stored: Any) -> dict[str, Any]:
    # What cannot be read says nothing: the row's run is then unknown, its checkpoint opened.
    try:
        metadata = json.loads(stored)
    except (TypeError, ValueError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _select(
    columns: str, table: str, thread_id: str, ns: str, ids: Sequence[str]
) -> tuple[str, Sequence[Any]]:
    return f"SELECT {columns} FROM {table} {_WHERE}", (thread_id, ns, json.dumps(ids))


def _chunks(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
