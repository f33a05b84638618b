"""Files as users have them: from older releases, with columns of their own, read-only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.errors import ReadOnlyDatabaseError

OPERATIONS: dict[str, Any] = {
    "prune": (["t"],),
    "copy_thread": ("t", "copy"),
    "delete_for_runs": (["run-2"],),
}


@pytest.fixture
def old_path(tmp_path: Path, threads: Any) -> str:
    """A file from before task paths, with 58 checkpoints of thread "t"."""
    path = str(tmp_path / "old.db")
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(threads.OLD_TABLES)
        conn.execute("PRAGMA journal_mode = WAL")
        threads.write_thread(conn, "t", 58)
    return path


def columns(path: str, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as conn:
        return [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]


def copied(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(row[1:] for row in rows)


def test_a_file_from_before_task_paths_is_cleaned(
    old_path: str, call: Any, history_of: Any, rows_of: Any, ids_of: Any
) -> None:
    assert "task_path" not in columns(old_path, "writes")
    call(old_path, "copy_thread", "t", "copy")  # before any other method: it must set up itself
    before, copy = rows_of(old_path, "t"), rows_of(old_path, "copy")
    assert {t: copied(rows) for t, rows in copy.items()} == {
        t: copied(rows) for t, rows in before.items()
    }
    history = history_of(old_path, "t")
    assert history["log"]["seed"].value == list(range(50))
    call(old_path, "delete_for_runs", ["run-2"], thread_ids=["t"])
    assert len(ids_of(old_path, "t")) == 49  # of ten, one is the seed of those after it
    call(old_path, "prune", ["t"])
    assert len(ids_of(old_path, "t")) == 9
    assert history_of(old_path, "t") == history == history_of(old_path, "copy")
    assert rows_of(old_path, "copy") == copy


def test_columns_of_the_user_are_copied(
    path: str, call: Any, threads: Any, rows_of: Any, ids_of: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        for column in (
            "tenant TEXT",
            '"odd ""name""" TEXT DEFAULT 1',
            "size AS (length(metadata))",
        ):
            conn.execute(f"ALTER TABLE checkpoints ADD COLUMN {column}")
        conn.execute("ALTER TABLE writes ADD COLUMN note BLOB")
        threads.write_thread(conn, "t", 58)
        conn.executescript("UPDATE checkpoints SET tenant = 'acme'; UPDATE writes SET note = x'00'")
    call(path, "copy_thread", "t", "copy")
    before, copy = rows_of(path, "t"), rows_of(path, "copy")
    assert {t: copied(rows) for t, rows in copy.items()} == {
        t: copied(rows) for t, rows in before.items()
    }
    assert {row[7] for row in copy["checkpoints"]} == {"acme"}
    call(path, "prune", ["t", "copy"])
    assert ids_of(path, "t") == ids_of(path, "copy")
    assert len(ids_of(path, "t")) == 9


@pytest.fixture(params=["uri", "permissions", "before task paths", "rollback journal"])
def read_only(
    request: pytest.FixtureRequest, path: str, old_path: str, threads: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A file that cannot be written to, with how to connect to it."""
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
        if request.param == "rollback journal":
            conn.execute("PRAGMA journal_mode = DELETE")
    if request.param == "before task paths":
        path = old_path
    # Permissions bind everyone but root, who sees the file as SQLite shows it on request.
    if request.param == "permissions" and os.geteuid() != 0:
        os.chmod(path, 0o400)
        yield path, {}
        os.chmod(path, 0o600)
    else:
        yield f"file:{path}?mode=ro", {"uri": True}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_read_only_file_is_named(
    operation: str, read_only: tuple[str, dict[str, Any]], call: Any
) -> None:
    path, connect = read_only
    with pytest.raises(ReadOnlyDatabaseError, match="nothing was changed"):
        call(path, operation, *OPERATIONS[operation], connect=connect)


def test_plans_and_keepsets_of_a_read_only_file(
    read_only: tuple[str, dict[str, Any]], call: Any
) -> None:
    path, connect = read_only
    config: Any = {"configurable": {"thread_id": "t"}}
    with closing(sqlite3.connect(path, **connect)) as conn:
        try:
            SqliteSaver(conn).get_tuple(config)
        except sqlite3.OperationalError:
            # The host switches such a file to its own journal before it reads anything.
            with pytest.raises(ReadOnlyDatabaseError):
                call(path, "plan_prune", ["t"], connect=connect)
            return
    (plan,) = call(path, "plan_prune", ["t"], connect=connect)
    assert (len(plan.kept), len(plan.doomed)) == (9, 49)
    (plan,) = call(path, "plan_delete_for_runs", ["run-2"], connect=connect)
    assert len(plan.doomed) == 9
    assert len(call(path, "get_delta_channel_keepset", config, ["log"], connect=connect)) == 9


def test_an_error_that_is_not_about_read_only_passes_through(path: str, threads: Any) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
        conn.execute(
            "CREATE TRIGGER never BEFORE DELETE ON checkpoints "
            "BEGIN SELECT RAISE(ABORT, 'not while I watch'); END"
        )
    with DeltaSqliteSaver.from_conn_string(path) as saver:
        with pytest.raises(sqlite3.IntegrityError, match="not while I watch"):
            saver.prune(["t"])
        assert not saver.conn.in_transaction
        assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == 58
        saver.conn.execute("DROP TRIGGER never")
        saver.prune(["t"])
        assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == 9


def test_a_file_without_tables_gets_them(tmp_path: Path, call: Any, rows_of: Any) -> None:
    path = str(tmp_path / "new.db")
    call(path, "prune", ["t"])
    call(path, "delete_for_runs", ["run-2"])
    assert rows_of(path) == {"checkpoints": [], "writes": []}
