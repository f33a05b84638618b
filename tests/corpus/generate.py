"""Write one corpus file with the installed langgraph: threads, and how it reads them itself.

    python tests/corpus/generate.py [folder]

Needs langgraph >= 1.2.0 and langgraph-checkpoint-sqlite, and nothing of this project: what is
stored, and what is expected of it, must not depend on the code that is tested with it.

Writes `langgraph-<version>.sqlite` and `langgraph-<version>.json`. Clock and random numbers are
fixed, so with `PYTHONHASHSEED=0` the same releases write the same bytes again.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import tempfile
from contextlib import closing
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import langgraph.checkpoint.base.id as ids
import langgraph.pregel._checkpoint as checkpoints
import langgraph.pregel._loop as loop
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from scenarios import SCENARIOS


def graph_of(graph: Any, ns: str) -> Any:
    """The graph that runs in a namespace; a `checkpointer=True` one called inside a node, too."""
    for part in filter(None, ns.split("|")):
        name = part.split(":")[0]
        subgraphs = dict(graph.get_subgraphs())
        graph = subgraphs[name]
    return graph


def expected(saver: SqliteSaver, thread: str, graph: Any) -> dict[str, Any]:
    """What this release reads: the values of every checkpoint, by namespace and id."""
    rows = list(saver.list({"configurable": {"thread_id": thread}}))
    states: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row.checkpoint["id"]):
        conf = row.config["configurable"]
        ns = conf["checkpoint_ns"]
        # With the saver in its config a subgraph is read directly, as its parent does; up to
        # langgraph 1.2.10 it must also be its own, or nothing gets replayed.
        reader = graph_of(graph, ns).copy({"checkpointer": saver})
        read = {"configurable": {**conf, "__pregel_checkpointer": saver}}
        snapshot = reader.get_state(read)
        states.setdefault(ns, {})[conf["checkpoint_id"]] = snapshot.values
    return {
        "delta": {
            ns: sorted(
                name
                for name, channel in graph_of(graph, ns).channels.items()
                if isinstance(channel, DeltaChannel)
            )
            for ns in states
        },
        "states": states,
    }


def fix_clock_and_chance() -> None:
    """Let ids and times depend on nothing but the order of events: one tick is a second."""
    ticks = count()
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def now(tz: Any = None) -> datetime:
        return start + timedelta(seconds=next(ticks))

    ids.time = SimpleNamespace(time_ns=lambda: int(now().timestamp()) * 10**9)
    checkpoints.datetime = loop.datetime = SimpleNamespace(now=now)
    random.seed(0)


def tidy(conn: sqlite3.Connection) -> None:
    """Make it one small file, with rows in an order that does not depend on threads."""
    for table in ("checkpoints", "writes"):
        conn.execute(f"CREATE TEMP TABLE sorted_{table} AS SELECT * FROM {table}")
        conn.execute(f"DELETE FROM {table}")
        everything = "1, 2, 3, 4, 5, 6"  # the primary keys are among these columns
        conn.execute(f"INSERT INTO {table} SELECT * FROM sorted_{table} ORDER BY {everything}")
    conn.commit()
    conn.execute("PRAGMA journal_mode=DELETE")
    conn.execute("VACUUM")


def dump(value: Any, depth: int = 0) -> str:
    """JSON with one checkpoint per line."""
    if depth == 5 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    indent = "\n" + " " * depth
    items = (f"{indent} {json.dumps(k)}: {dump(v, depth + 1)}" for k, v in sorted(value.items()))
    return "{" + ",".join(items) + indent + "}"


def main() -> None:
    release = version("langgraph")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    fix_clock_and_chance()
    expectations: dict[str, Any] = {
        "releases": {
            name: version(name)
            for name in ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite")
        },
        "threads": {},
    }
    with tempfile.TemporaryDirectory() as work:
        written = Path(work) / "corpus.sqlite"
        with SqliteSaver.from_conn_string(str(written)) as saver:
            for thread, build in SCENARIOS.items():
                graph = build(saver, thread)
                expectations["threads"][thread] = expected(saver, thread, graph)
        with closing(sqlite3.connect(written)) as conn:
            tidy(conn)
        # Only now, so that a run that fails leaves the old files as they are.
        name = folder / f"langgraph-{release}"
        name.with_name(name.name + ".sqlite").write_bytes(written.read_bytes())
        name.with_name(name.name + ".json").write_text(dump(expectations) + "\n")
        print(f"{name}.sqlite: {written.stat().st_size} bytes, {len(SCENARIOS)} threads")


if __name__ == "__main__":
    main()
