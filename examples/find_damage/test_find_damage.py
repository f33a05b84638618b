"""A naive job has run over the database: it is found, reads raise, and what is left goes on."""

import importlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from delta_mixin import SeveredHistoryError
from delta_mixin.adapters.sqlite import DeltaSqliteSaver

HERE = Path(__file__).parent


@pytest.fixture
def app(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    yield importlib.import_module("chat")
    for name in ("chat", "find_damage"):
        sys.modules.pop(name, None)


def naive_job(path, thread, keep):
    """Delete all but the newest checkpoints, as is right for threads without delta channels."""
    where = (
        "WHERE thread_id = :thread AND checkpoint_id NOT IN (SELECT checkpoint_id FROM checkpoints "
        "WHERE thread_id = :thread ORDER BY checkpoint_id DESC LIMIT :keep)"
    )
    with closing(sqlite3.connect(path)) as conn:
        for table in ("writes", "checkpoints"):
            conn.execute(f"DELETE FROM {table} {where}", {"thread": thread, "keep": keep})
        conn.commit()


@pytest.fixture
def database(app, tmp_path):
    """Three chats of six turns: one in order, one cleaned naively, one pruned by this package."""
    path = tmp_path / "checkpoints.sqlite"
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        for thread in ("in order", "naively cleaned", "pruned"):
            app.chat(saver, thread, turns=6)
        saver.prune(["pruned"])
    naive_job(path, "naively cleaned", keep=4)
    return path


def run(path, *options):
    command = [sys.executable, str(HERE / "find_damage.py"), str(path), *options]
    return subprocess.run(
        command, cwd=HERE, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_damaged_thread_is_found_and_no_other(database):
    done = run(database)
    assert done.returncode == 1, done.stderr
    assert "thread 'in order', 18 checkpoint(s) in 1 namespace(s): nothing wrong" in done.stdout
    assert "thread 'pruned'" in done.stdout
    assert done.stdout.count("nothing wrong") == 2
    assert "error: severed" in done.stdout
    assert "nothing stored yet" in done.stdout


def test_the_plain_saver_reads_a_short_log_and_the_strict_one_raises(app, database):
    with DeltaSqliteSaver.from_conn_string(str(database)) as saver:
        assert len(app.log_of(saver, "in order")) == 12
        assert len(app.log_of(saver, "naively cleaned")) < 12
    with app.StrictSaver.from_conn_string(str(database)) as saver:
        assert len(app.log_of(saver, "in order")) == 12
        assert len(app.log_of(saver, "pruned")) == 12
        with pytest.raises(SeveredHistoryError, match="naively cleaned"):
            app.log_of(saver, "naively cleaned")


def test_what_is_left_goes_on_after_a_recovery(app, database):
    done = run(database, "--recover")
    assert done.returncode == 1, done.stderr
    assert "stored as" in done.stdout
    assert "lost: everything up to checkpoint" in done.stdout
    with app.StrictSaver.from_conn_string(str(database)) as saver:
        left = app.log_of(saver, "naively cleaned")
        assert 0 < len(left) < 12
        app.chat(saver, "naively cleaned", turns=1)
        assert app.log_of(saver, "naively cleaned")[:-2] == left
        saver.prune(["naively cleaned"])
    assert run(database).returncode == 0


def test_without_a_file_it_says_how_to_use_it():
    done = subprocess.run(
        [sys.executable, str(HERE / "find_damage.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--recover" in done.stdout
