"""Works as one release of langgraph-checkpoint-postgres, whichever the path finds first.

Arguments: a connection string, then what to do. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

dsn, action = sys.argv[1:]
answer: object = None
if action == "describe":
    answer = [version("langgraph-checkpoint-postgres"), list(PostgresSaver.MIGRATIONS)]
else:
    with PostgresSaver.from_conn_string(dsn) as saver:
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        if action == "setup":
            try:
                saver.setup()
            except Exception as error:
                answer = type(error).__name__
        elif action == "serve":
            checkpoint = empty_checkpoint() | {"channel_values": {"a": 1}}
            checkpoint["channel_versions"] = {"a": "1"}
            stored = saver.put(config, checkpoint, {"step": 0}, {"a": "1"})
            saver.put_writes(stored, [("a", 2)], "task")
            answer = len(list(saver.list(config)))
print(json.dumps(answer))
