"""Rewriting a checkpoint in the Postgres savers' tables, in one body for both sides.

Values go where the host's `put` has them: simple ones and the mark of a snapshot inside the
checkpoint, all others among the blobs. There one may stand under the version already, empty or
from a row that shares it, so what the host inserts only is replaced here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from delta_mixin.adapters._postgres_bodies import Statement, Statements, _array
from delta_mixin.errors import RowsUnreadError
from delta_mixin.model import _is_delta_snapshot

_ROW = """
    thread_id = %(thread)s AND checkpoint_ns = %(ns)s AND checkpoint_id = %(id)s
"""

SET_ROW = f"""
UPDATE checkpoints SET metadata = %(metadata)s::jsonb, checkpoint = checkpoint ||
    jsonb_build_object('channel_values',
        (coalesce(checkpoint -> 'channel_values', '{{}}') - %(channels)s::text[])
        || %(inline)s::jsonb)
WHERE {_ROW} RETURNING checkpoint_id
"""

DROP_BLOBS = """
DELETE FROM checkpoint_blobs b USING checkpoints c
WHERE c.thread_id = %(thread)s AND c.checkpoint_ns = %(ns)s AND c.checkpoint_id = %(id)s
AND b.thread_id = %(thread)s AND b.checkpoint_ns = %(ns)s AND b.channel = ANY(%(channels)s::text[])
AND b.version = c.checkpoint -> 'channel_versions' ->> b.channel
"""

SET_BLOB = f"""
INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
SELECT thread_id, checkpoint_ns, %(channel)s,
    checkpoint -> 'channel_versions' ->> %(channel)s, %(type)s, %(blob)s
FROM checkpoints WHERE {_ROW}
ON CONFLICT (thread_id, checkpoint_ns, channel, version)
DO UPDATE SET type = excluded.type, blob = excluded.blob
"""


def rewrite_row(
    serde: Any, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Statements[None]:
    """Set values at a row, and its metadata.

    Raises:
        RowsUnreadError: If the row is gone.
    """
    conf = config["configurable"]
    key = {
        "thread": str(conf["thread_id"]),
        "ns": conf["checkpoint_ns"],
        "id": conf["checkpoint_id"],
    }
    inline = {}
    blobs = {}
    for channel, value in values.items():
        if isinstance(value, (str, int, float, bool)):
            inline[channel] = value
        elif value is not None:
            blobs[channel] = serde.dumps_typed(value)
            if _is_delta_snapshot(value):
                inline[channel] = True
    parameters = {
        **key,
        "channels": _array(values),
        "metadata": json.dumps(dict(metadata)),
        "inline": json.dumps(inline),
    }
    if not (yield Statement(SET_ROW, parameters)):
        raise RowsUnreadError(f"checkpoint {key['id']} of thread {key['thread']!r} is gone")
    if bare := values.keys() - blobs.keys():
        yield Statement(DROP_BLOBS, {**key, "channels": _array(bare)}, fetch=False)
    for channel, (type_, blob) in blobs.items():
        stored = {**key, "channel": channel, "type": type_, "blob": blob}
        yield Statement(SET_BLOB, stored, fetch=False)
