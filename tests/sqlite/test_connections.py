"""Connections as users open them, and transactions as they leave them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import aiosqlite
import pytest

from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver

OPERATIONS: dict[str, Any] = {
    "prune": (["t"],),
    "copy_thread": ("t", "copy"),
    "delete_for_runs": (["run-2"],),
}


CONNECTIONS: dict[str, dict[str, Any]] = {
    "as upstream": {},
    "isolation_level=None": {"isolation_level": None},
    "isolation_level=EXCLUSIVE": {"isolation_level": "EXCLUSIVE"},
    "autocommit=True": {"autocommit": True},
    "autocommit=False": {"autocommit": False},
}


@pytest.fixture(params=CONNECTIONS)
def connect(request: pytest.FixtureRequest) -> dict[str, Any]:
    options = CONNECTIONS[request.param]
    if "autocommit" in options and not hasattr(sqlite3.Connection, "autocommit"):
        pytest.skip("sqlite3 of this Python has no autocommit")
    return options


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_done_is_committed_on_any_connection(
    operation: str, connect: Any, path: str, threads: Any, rows_of: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
    with closing(sqlite3.connect(path, **connect)) as conn:
        was_open = conn.in_transaction
        getattr(DeltaSqliteSaver(conn), operation)(*OPERATIONS[operation])
        assert conn.in_transaction == was_open
        seen = rows_of(path)  # by another connection, while this one is open
    sizes = {"prune": 9, "copy_thread": 116, "delete_for_runs": 49}
    assert len(seen["checkpoints"]) == sizes[operation]


def test_what_fails_is_rolled_back_on_any_connection(
    connect: Any, path: str, threads: Any, rows_of: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
        conn.execute(
            "CREATE TRIGGER never BEFORE UPDATE ON checkpoints "
            "BEGIN SELECT RAISE(ABORT, 'not while I watch'); END"
        )
    before = rows_of(path)
    with closing(sqlite3.connect(path, **connect)) as conn:
        was_open = conn.in_transaction
        saver = DeltaSqliteSaver(conn)
        with pytest.raises(sqlite3.IntegrityError):
            saver.prune(["t"])
        assert conn.in_transaction == was_open
        assert rows_of(path) == before
        conn.execute("DROP TRIGGER never")
        saver.prune(["t"])
        assert len(rows_of(path)["checkpoints"]) == 9


def test_the_async_saver_commits_and_rolls_back_on_any_connection(
    connect: Any, path: str, threads: Any, rows_of: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
        conn.execute(
            "CREATE TRIGGER never BEFORE UPDATE ON checkpoints "
            "BEGIN SELECT RAISE(ABORT, 'not while I watch'); END"
        )
    before = rows_of(path)

    async def main() -> None:
        async with aiosqlite.connect(path, **connect) as conn:
            was_open = conn.in_transaction
            saver = AsyncDeltaSqliteSaver(conn)
            with pytest.raises(sqlite3.IntegrityError):
                await saver.aprune(["t"])
            assert conn.in_transaction == was_open
            assert rows_of(path) == before
            await conn.execute("DROP TRIGGER never")
            await saver.aprune(["t"])
            assert conn.in_transaction == was_open
            assert len(rows_of(path)["checkpoints"]) == 9

    asyncio.run(main())


def test_a_transaction_that_the_user_left_open_is_committed_first(
    path: str, threads: Any, rows_of: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
        saver = DeltaSqliteSaver(conn)
        saver.setup()  # would commit as well
        conn.execute("CREATE TABLE notes (note TEXT)")
        conn.execute("INSERT INTO notes VALUES ('mine')")
        assert conn.in_transaction
        with pytest.raises(LookupError):
            saver.copy_thread("unknown", "copy")
        assert not conn.in_transaction
        assert conn.execute("SELECT note FROM notes").fetchall() == [("mine",)]
        saver.prune(["t"])
        assert len(rows_of(path)["checkpoints"]) == 9
