"""How little a cleanup reads: metadata of the rows it keeps, two checkpoint blobs per channel."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import aiosqlite
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver


class CountingSerde(JsonPlusSerializer):
    loads = 0

    def loads_typed(self, data: Any) -> Any:
        self.loads += 1
        return super().loads_typed(data)


@dataclass
class Reads:
    """Rows of `metadata` that came out of a connection."""

    metadata_rows: int = 0
    metadata_results: int = 0
    statements: list[str] = field(default_factory=list)

    def connection(self) -> type[sqlite3.Connection]:
        reads = self

        class Cursor(sqlite3.Cursor):
            def execute(self, *args: Any) -> Any:
                super().execute(*args)
                reads.metadata_results += self._has_metadata()
                return self

            def fetchall(self) -> Any:
                rows = super().fetchall()
                reads.metadata_rows += len(rows) * self._has_metadata()
                return rows

            def fetchone(self) -> Any:
                row = super().fetchone()
                reads.metadata_rows += (row is not None) * self._has_metadata()
                return row

            def __next__(self) -> Any:
                row = super().__next__()
                reads.metadata_rows += self._has_metadata()
                return row

            def _has_metadata(self) -> bool:
                return any(column[0] == "metadata" for column in self.description or ())

        class Connection(sqlite3.Connection):
            def cursor(self, *args: Any) -> Any:
                return super().cursor(Cursor)

            def execute(self, *args: Any) -> Any:
                return self.cursor().execute(*args)

        return Connection

    def check_all_counted(self) -> None:
        """Metadata is read by no statement that hides it from this count."""
        reading = [s for s in self.statements if "metadata" in s and "CREATE TABLE" not in s]
        assert len(reading) == self.metadata_results, reading


def prune_counted(path: str, side: str) -> tuple[int, int]:
    """Prune thread "t"; returns loaded blobs and rows of metadata read."""
    serde, reads = CountingSerde(), Reads()

    if side == "sync":
        with closing(sqlite3.connect(path, factory=reads.connection())) as conn:
            conn.set_trace_callback(reads.statements.append)
            DeltaSqliteSaver(conn, serde=serde).prune(["t"])
            conn.set_trace_callback(None)
    else:

        async def main() -> None:
            async with aiosqlite.connect(path, factory=reads.connection()) as conn:
                await conn.set_trace_callback(reads.statements.append)
                await AsyncDeltaSqliteSaver(conn, serde=serde).aprune(["t"])

        asyncio.run(main())
    reads.check_all_counted()
    return serde.loads, reads.metadata_rows


CADENCES = {
    "one channel": [("log", 100, 1)],
    "two cadences": [("log", 10, 1), ("notes", 100, 3)],
    "three cadences": [("a", 7, 2), ("b", 700, 1), ("c", 50, 5)],
    "never a snapshot": [("log", 5000, 1)],
}


@pytest.mark.parametrize("side", ["sync", "async"])
@pytest.mark.parametrize("cadence", CADENCES)
def test_a_linear_thread_of_2000_checkpoints(
    cadence: str, side: str, path: str, threads: Any, ids_of: Any, history_of: Any
) -> None:
    deltas = [threads.Delta(*arguments) for arguments in CADENCES[cadence]]
    channels = tuple(delta.name for delta in deltas)
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 1_995, deltas, inline=200)
    before = history_of(path, "t", channels)
    loaded, metadata_rows = prune_counted(path, side)
    kept = len(ids_of(path, "t"))
    assert loaded <= 2 * len(channels)
    assert metadata_rows <= kept
    assert kept == 1_995 if cadence == "never a snapshot" else kept < 1_000
    assert history_of(path, "t", channels) == before


@pytest.mark.parametrize("side", ["sync", "async"])
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_thread_that_a_graph_wrote(
    durability: Any, side: str, path: str, graphs: Any, ids_of: Any
) -> None:
    config = graphs.config("t")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = graphs.build(saver, steps=9)
        for run in range(12):
            graph.invoke(graphs.inputs(run, steps=9), config, durability=durability)
    rows = len(ids_of(path, "t"))
    loaded, metadata_rows = prune_counted(path, side)
    kept = len(ids_of(path, "t"))
    assert kept < rows
    assert loaded <= 2 * 2
    # Only the supersteps of exit durability can mislead reading ahead, at most by doubling.
    assert metadata_rows <= (kept if durability == "sync" else 2 * kept)
    with SqliteSaver.from_conn_string(path) as saver:
        state = graphs.build(saver).get_state(config)
    assert state.values == graphs.expected(12, steps=9)
