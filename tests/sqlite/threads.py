"""Writes threads straight into a SQLite file, as a graph with delta channels leaves them.

Row k holds the checkpoint of superstep k, the writes that lead to row k+1, and the counters of
langgraph 1.2.9 and later (source: `_put_checkpoint` in langgraph/pregel/_loop.py): every
superstep counts, a snapshot sets the counters to zero, and zero counters are left out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

SERDE = JsonPlusSerializer()
COUNTERS = "counters_since_delta_snapshot"

PUT = (
    "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, "
    "checkpoint, metadata) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
PUT_WRITE = (
    "INSERT INTO writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, "
    "value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


OLD_TABLES = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT,
    type TEXT,
    checkpoint BLOB,
    metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);
CREATE TABLE writes (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    channel TEXT NOT NULL,
    type TEXT,
    value BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);
"""
"""The tables of langgraph-checkpoint-sqlite before it knew task paths (3.1.0)."""


@dataclass(frozen=True)
class Delta:
    """A delta channel: snapshot at each `frequency`-th update, an update each `every` steps."""

    name: str
    frequency: int
    every: int = 1


def write_thread(
    conn: sqlite3.Connection,
    thread_id: str,
    length: int,
    deltas: Sequence[Delta] = (Delta("log", 10),),
    *,
    inline: int = 0,
    steps_per_run: int = 10,
    checkpoint_ns: str = "",
) -> list[str]:
    """Write a linear thread and commit it.

    Args:
        conn: To a file that has the tables.
        thread_id: The thread.
        length: How many checkpoints.
        deltas: Its delta channels.
        inline: Bytes of plain state stored in every checkpoint.
        steps_per_run: How many checkpoints one run makes; runs are named run-0, run-1, ...
        checkpoint_ns: The namespace.

    Returns:
        The checkpoint ids, oldest first.
    """
    ids = [str(uuid6(clock_seq=step)) for step in range(length)]
    where = (thread_id, checkpoint_ns)
    checkpoints = _checkpoints(ids, deltas, inline, steps_per_run)
    conn.executemany(PUT, (where + row for row in checkpoints))
    conn.executemany(PUT_WRITE, (where + row for row in _writes(ids, deltas)))
    conn.commit()
    return ids


def write_tiny_rows(
    conn: sqlite3.Connection, thread_id: str, length: int, *, snapshot_at: int | None = None
) -> list[str]:
    """Write a very long linear thread quickly; every row is of run "old", the newest of "new".

    Args:
        conn: To a file that has the tables.
        thread_id: The thread.
        length: How many checkpoints.
        snapshot_at: The row that holds the one snapshot of the channel "log", if any.
    """
    ids = [f"{step:08x}-0000-6000-8000-000000000000" for step in range(length)]
    log = Delta("log", length)
    plain = _checkpoint(ids[0], 1, {}, [log], 0)
    snapshot = _checkpoint(ids[0], 1, {"log": _DeltaSnapshot([0])}, [log], 0)

    def rows() -> Iterator[tuple[Any, ...]]:
        for step, checkpoint_id in enumerate(ids):
            since = step + 1 if snapshot_at is None or step < snapshot_at else step - snapshot_at
            counting = f', "{COUNTERS}": {{"log": [{since}, {since}]}}' if since else ""
            run = "old" if step < length - 1 else "new"
            metadata = f'{{"source": "loop", "parents": {{}}, "run_id": "{run}"{counting}}}'
            parent = ids[step - 1] if step else None
            stored = snapshot if step == snapshot_at else plain
            yield (thread_id, "", checkpoint_id, parent, *stored, metadata.encode())

    conn.executemany(PUT, rows())
    writes = ((thread_id, "", i, "task", 0, "log", *SERDE.dumps_typed([1])) for i in ids)
    conn.executemany(PUT_WRITE, writes)
    conn.commit()
    return ids


def _checkpoints(
    ids: Sequence[str], deltas: Sequence[Delta], inline: int, steps_per_run: int
) -> Iterator[tuple[Any, ...]]:
    counters = {delta.name: (0, 0) for delta in deltas}
    values: dict[str, list[int]] = {delta.name: [] for delta in deltas}
    for step, checkpoint_id in enumerate(ids):
        populated: dict[str, Any] = {}
        for delta in deltas:
            updates, supersteps = counters[delta.name]
            written = _written(delta, step)
            updates, supersteps = updates + written, supersteps + 1
            if written:
                values[delta.name].append(step)
            if updates >= delta.frequency:
                updates, supersteps = 0, 0
                populated[delta.name] = _DeltaSnapshot(list(values[delta.name]))
            counters[delta.name] = (updates, supersteps)
        metadata: dict[str, Any] = {"source": "loop", "step": step, "parents": {}}
        if counting := {name: pair for name, pair in counters.items() if pair != (0, 0)}:
            metadata[COUNTERS] = counting
        metadata["run_id"] = f"run-{step // steps_per_run}"
        yield (
            checkpoint_id,
            ids[step - 1] if step else None,
            *_checkpoint(checkpoint_id, step, populated, deltas, inline),
            json.dumps(metadata).encode(),
        )


def _checkpoint(
    checkpoint_id: str,
    step: int,
    populated: dict[str, Any],
    deltas: Sequence[Delta],
    inline: int,
) -> tuple[str, bytes]:
    version = f"{step + 1:032}.0.5"
    written = [d.name for d in deltas if any(_written(d, s) for s in range(min(step, d.every) + 1))]
    return SERDE.dumps_typed(
        {
            "v": 4,
            "ts": "2026-01-01T00:00:00+00:00",
            "id": checkpoint_id,
            "channel_values": {"notes": "x" * inline, **populated},
            "channel_versions": dict.fromkeys(["notes", "branch:to:node", *written], version),
            "versions_seen": {"node": {"branch:to:node": version}},
            "updated_channels": written,
        }
    )


def _writes(ids: Sequence[str], deltas: Sequence[Delta]) -> Iterator[tuple[Any, ...]]:
    for step, checkpoint_id in enumerate(ids[:-1]):
        for idx, delta in enumerate(deltas):
            if _written(delta, step + 1):
                value = SERDE.dumps_typed([step + 1])
                yield (checkpoint_id, f"task-{step}", idx, delta.name, *value)


def _written(delta: Delta, step: int) -> bool:
    return step % delta.every == 0
