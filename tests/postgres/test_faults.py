"""Killed at any moment, server or client: every thread is as before, or done."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from delta_mixin.adapters.postgres import DeltaPostgresSaver

TIMES = int(os.environ.get("DELTA_MIXIN_KILLS", "30"))
NAMES = [f"t{n}" for n in range(6)]
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def prune(dsn):
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(NAMES)


def squash(dsn):
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(NAMES, delta="squash")


def copy(dsn):
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        for name in NAMES:
            saver.copy_thread(name, f"copy of {name}")


def delete(dsn):
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.delete_for_runs([f"{name}-1" for name in NAMES])


def compact(dsn):
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        neighbour_module().compact(saver, NAMES)


def compact_for_runs(dsn):
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        neighbour_module().compact_for_runs(saver, NAMES)


def neighbour_module():
    """The module that does the same in a process of its own."""
    if "postgres_neighbour" not in sys.modules:
        path = Path(__file__).with_name("neighbour.py")
        spec = importlib.util.spec_from_file_location("postgres_neighbour", path)
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules["postgres_neighbour"]


OPERATIONS = [prune, squash, copy, delete, compact, compact_for_runs]


@pytest.fixture(scope="module")
def own_server(server_of):
    """A server that no other test uses, as it is killed."""
    servers = sys.modules["postgres_servers"]
    server = servers.Server(18)
    yield server
    server.remove()


class Stage:
    """A schema that can be set back, and what its threads can look like."""

    def __init__(self, dsn, threads, rows_of):
        self.dsn = dsn
        self._rows_of = rows_of
        with psycopg.connect(dsn, autocommit=True) as conn:
            threads.write_threads(conn, NAMES, 300, snapshot_every=50, run_length=140)
            for table in TABLES:
                conn.execute(f"CREATE TABLE whole_{table} AS SELECT * FROM {table}")
        self.before = self.look()

    def look(self):
        """The rows of each thread and copy."""
        rows = self._rows_of(self.dsn)
        found = {}
        for table in TABLES:
            for row in rows[table]:
                found.setdefault(row[0], {t: [] for t in TABLES})[table].append(row[1:])
        return found

    def set_back(self):
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for table in TABLES:
                conn.execute(f"TRUNCATE {table}")
                conn.execute(f"INSERT INTO {table} SELECT * FROM whole_{table}")

    def expect_before_or_done(self, done):
        """Every thread and copy is as before or done; returns whether each kind was seen."""
        found = self.look()
        for name in {*found, *done, *self.before}:
            assert found.get(name) in (self.before.get(name), done.get(name)), name
        return found == self.before, found == done

    def done_by(self, operation):
        """What it looks like afterwards, and how long it took."""
        self.set_back()
        start = time.perf_counter()
        operation(self.dsn)
        took = time.perf_counter() - start
        done = self.look()
        assert done != self.before
        self.set_back()
        return done, took


@pytest.fixture
def stage(own_server, fresh_schema, threads, rows_of):
    with fresh_schema(own_server) as dsn:
        yield Stage(dsn, threads, rows_of)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_server_is_killed(own_server, threads, rows_of, operation):
    with psycopg.connect(own_server.dsn(), autocommit=True) as conn:
        conn.execute("DROP SCHEMA IF EXISTS killed CASCADE")
        conn.execute("CREATE SCHEMA killed")
    dsn = own_server.dsn(options="'-c search_path=killed'")
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.setup()
    stage = Stage(dsn, threads, rows_of)
    done, took = stage.done_by(operation)
    start = time.perf_counter()
    own_server.stop("immediate")
    lead = time.perf_counter() - start
    own_server.start()
    seen = set()
    for n in range(TIMES):
        # Stopping takes a while itself, on a busy machine longer than the operation.
        head_start = lead - (lead + took) * n / TIMES

        def work(wait=head_start):
            time.sleep(max(0, wait))
            with suppress(psycopg.OperationalError):
                operation(dsn)

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(max(0, -head_start))
        own_server.stop("immediate")
        worker.join()
        own_server.start()
        seen.add(stage.expect_before_or_done(done))
        stage.set_back()
    assert (True, False) in seen, "never killed early enough"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_client_is_killed(stage, neighbour, operation):
    done, _ = stage.done_by(operation)
    nursery = neighbour("forks", stage.dsn, *NAMES)

    def run(wait=None):
        """In a child, killed after so many seconds; returns what it took, and what was seen."""
        print(operation.__name__, file=nursery.stdin, flush=True)
        child = int(nursery.stdout.readline())
        start = time.perf_counter()
        if wait is not None:
            time.sleep(wait)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        assert nursery.stdout.readline() == "ended\n"
        took = time.perf_counter() - start
        wait_for_its_session(stage.dsn)
        outcome = stage.expect_before_or_done(done)
        stage.set_back()
        return took, outcome

    # A fork connects first and warms nothing up: how long it takes only another fork can tell.
    took, outcome = run()
    assert outcome == (False, True)
    seen = {run(1.5 * took * n / TIMES)[1] for n in range(TIMES)}
    assert (True, False) in seen, "never killed early enough"
    # On a machine that got busier since, later kills than these reach the end.
    for times in range(2, 20):
        if len(seen) == 1:
            seen.add(run(times * took)[1])
    assert len(seen) > 1, "never got anywhere"


def wait_for_its_session(dsn):
    """The server notices only at its next answer that a client is gone."""
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
        "AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(dsn, autocommit=True) as conn:
        deadline = time.monotonic() + 30
        while conn.execute(others).fetchone()[0] > 1:  # the fixture's own
            assert time.monotonic() < deadline
            time.sleep(0.01)
