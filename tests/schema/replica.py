"""One replica of an application: opens its checkpointer on each given database when told to."""

from __future__ import annotations

import json
import sys

from langgraph.checkpoint.base import empty_checkpoint
from psycopg_pool import ConnectionPool

from delta_mixin.schema import SchemaNotReadyError, open_checkpointer


def serve(dsn: str, name: str) -> str:
    with ConnectionPool(dsn, min_size=1, max_size=2, kwargs={"autocommit": True}) as pool:
        try:
            checkpointer = open_checkpointer(pool)
        except SchemaNotReadyError as refusal:
            return f"{type(refusal).__name__}: {refusal}"
        config = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        checkpointer.put(config, empty_checkpoint(), {}, {})
        return f"served {len(list(checkpointer.list(config)))}"


print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(serve(*json.loads(line))), flush=True)
