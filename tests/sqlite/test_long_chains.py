"""Chains longer than the number of variables one statement can have.

SQLite allows 32,766 by default, and 250,000 as some systems build it (source:
https://sqlite.org/limits.html#max_variable_number). Upstream's own reader may fail on such a
chain, so these tests look at the rows. DELTA_MIXIN_CHAIN=251000 makes the chains that long.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.sqlite import DeltaSqliteSaver

LENGTH = int(os.environ.get("DELTA_MIXIN_CHAIN", "40000"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, threads: Any) -> str:
    """Threads whose newest checkpoint needs every row ("deep") or only two more ("flat ...")."""
    path = str(tmp_path_factory.mktemp("long") / "threads.db")
    with SqliteSaver.from_conn_string(path) as saver:
        saver.setup()
        saver.conn.execute("PRAGMA synchronous = OFF")
        threads.write_tiny_rows(saver.conn, "deep", LENGTH)
        for thread_id in ("flat to prune", "flat to rid of runs", "flat to copy"):
            threads.write_tiny_rows(saver.conn, thread_id, LENGTH, snapshot_at=LENGTH - 3)
    return path


@pytest.fixture
def saver(file: str) -> Iterator[DeltaSqliteSaver]:
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("PRAGMA synchronous = OFF")
        if sys.version_info >= (3, 11):
            # Builds differ: with the default limit they all fail alike.
            conn.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)
        yield DeltaSqliteSaver(conn)


def counts(saver: DeltaSqliteSaver, thread_id: str) -> tuple[int, int]:
    query = "SELECT count(*) FROM {} WHERE thread_id = ?"
    checkpoints, writes = (
        saver.conn.execute(query.format(table), (thread_id,)).fetchone()[0]
        for table in ("checkpoints", "writes")
    )
    return checkpoints, writes


def test_a_row_that_everything_hangs_on_keeps_the_whole_chain(saver: DeltaSqliteSaver) -> None:
    saver.prune(["deep"])
    assert counts(saver, "deep") == (LENGTH, LENGTH)
    saver.delete_for_runs(["old"], thread_ids=["deep"])
    assert counts(saver, "deep") == (LENGTH, LENGTH)


def test_prune_deletes_more_rows_than_a_statement_has_variables(saver: DeltaSqliteSaver) -> None:
    saver.prune(["flat to prune"])
    assert counts(saver, "flat to prune") == (3, 3)


def test_run_deletion_deletes_as_many(saver: DeltaSqliteSaver) -> None:
    saver.delete_for_runs(["old"], thread_ids=["flat to rid of runs"])
    assert counts(saver, "flat to rid of runs") == (3, 3)


def test_copy_copies_as_many(saver: DeltaSqliteSaver) -> None:
    saver.copy_thread("flat to copy", "copy")
    assert counts(saver, "copy") == (LENGTH, LENGTH)


def test_a_copy_of_one_checkpoint_follows_its_whole_chain(saver: DeltaSqliteSaver) -> None:
    newest = f"{LENGTH - 1:08x}-0000-6000-8000-000000000000"
    saver.copy_thread("deep", "branch", checkpoint_id=newest)
    assert counts(saver, "branch") == (LENGTH, LENGTH)


def test_keepset_names_them_all(saver: DeltaSqliteSaver) -> None:
    newest = f"{LENGTH - 1:08x}-0000-6000-8000-000000000000"
    config: Any = {"configurable": {"thread_id": "deep", "checkpoint_id": newest}}
    assert len(saver.get_delta_channel_keepset(config, ["log"])) == LENGTH
