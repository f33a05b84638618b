"""Writes threads straight into Postgres tables, as a graph on the host's saver leaves them.

Row k holds the checkpoint of superstep k and the writes that lead to row k+1. A delta channel
"log" counts supersteps since its last snapshot, which is a blob behind an inline `true`; the
plain channel "messages" is a blob of every row; "step" is stored inline. Source: `put` and
`put_writes` of langgraph-checkpoint-postgres, `_put_checkpoint` of langgraph 1.2.24.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

SERDE = JsonPlusSerializer()

COPY = {
    "checkpoints": "COPY checkpoints (thread_id, checkpoint_ns, checkpoint_id, "
    "parent_checkpoint_id, checkpoint, metadata) FROM STDIN",
    "checkpoint_blobs": "COPY checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, "
    "blob) FROM STDIN",
    "checkpoint_writes": "COPY checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, "
    "task_id, idx, channel, type, blob) FROM STDIN",
}


def write_threads(
    conn: Any,
    thread_ids: Sequence[str],
    length: int,
    *,
    snapshot_every: int | None = None,
    run_length: int = 10,
    size: int = 50,
    ns: str = "",
) -> list[str]:
    """Write linear threads and commit them.

    Args:
        conn: A connection to the tables.
        thread_ids: The threads; they share their checkpoint ids.
        length: How many checkpoints each.
        snapshot_every: At which rows the delta channel has its snapshot; `None` for a thread
            without one.
        run_length: How many checkpoints a run makes; the runs of thread t are named t-0, t-1, ...
        size: About how many bytes a message has.
        ns: The namespace.

    Returns:
        The checkpoint ids, oldest first.
    """
    ids = [str(uuid6(clock_seq=step)) for step in range(length)]
    versions = [f"{step + 1:032}.0.5" for step in range(length)]
    messages = SERDE.dumps_typed(["x" * size])
    write = SERDE.dumps_typed(["y" * size])
    delta = snapshot_every is not None

    def checkpoints(thread_id: str) -> Iterator[tuple[Any, ...]]:
        snapshot_at = 0
        for step, (checkpoint_id, version) in enumerate(zip(ids, versions, strict=True)):
            values: dict[str, Any] = {"step": step}
            metadata: dict[str, Any] = {"source": "loop", "step": step - 1, "parents": {}}
            metadata["run_id"] = f"{thread_id}-{step // run_length}"
            known = {"step": version, "messages": version, "branch:to:node": version}
            if snapshot_every is not None:
                known["log"] = version
                if step % snapshot_every == 0:
                    values["log"], snapshot_at = True, step
                else:
                    since = step - snapshot_at
                    metadata["counters_since_delta_snapshot"] = {"log": [since, since]}
            checkpoint = {
                "v": 4,
                "ts": "2026-01-01T00:00:00+00:00",
                "id": checkpoint_id,
                "channel_values": values,
                "channel_versions": known,
                "versions_seen": {"node": {"branch:to:node": version}},
                "updated_channels": sorted(known),
            }
            parent = ids[step - 1] if step else None
            yield (
                *(thread_id, ns, checkpoint_id, parent),
                *(json.dumps(checkpoint), json.dumps(metadata)),
            )

    def blobs(thread_id: str) -> Iterator[tuple[Any, ...]]:
        for step, version in enumerate(versions):
            yield (thread_id, ns, "messages", version, *messages)
            if snapshot_every is not None and step % snapshot_every == 0:
                snapshot = SERDE.dumps_typed(_DeltaSnapshot([f"up to {step}"]))
                yield (thread_id, ns, "log", version, *snapshot)

    def writes(thread_id: str) -> Iterator[tuple[Any, ...]]:
        for step, checkpoint_id in enumerate(ids[:-1]):
            task = f"{step:08x}-0000-4000-8000-000000000000"
            yield (thread_id, ns, checkpoint_id, task, 0, "messages", *write)
            if delta:
                value = SERDE.dumps_typed([f"step {step + 1}"])
                yield (thread_id, ns, checkpoint_id, task, 1, "log", *value)

    rows = {"checkpoints": checkpoints, "checkpoint_blobs": blobs, "checkpoint_writes": writes}
    with conn.cursor() as cursor:
        for table, statement in COPY.items():
            with cursor.copy(statement) as copy:
                for thread_id in thread_ids:
                    for row in rows[table](thread_id):
                        copy.write_row(row)
    if not conn.autocommit:
        conn.commit()
    return ids
