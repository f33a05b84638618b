"""How many statements cleanup sends, what they scan, and how they are planned."""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager

import psycopg
import pytest

from delta_mixin.adapters import _postgres_sql
from delta_mixin.adapters.postgres import DeltaPostgresSaver, run_id_index_sql

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
PARTITIONS = 8


class Recorder(psycopg.Cursor):
    """Keeps each statement; `Explainer` also how it was carried out."""

    explaining = False

    def execute(self, query, params=None, **options):
        text = " ".join(str(query).split())
        assert options["prepare"] is False, text
        plan = None
        if self.explaining and not text.startswith("SET ") and "set_config" not in text:
            # Carried out, looked at, and undone.
            with (
                self.connection.transaction(force_rollback=True),
                psycopg.Cursor(self.connection) as cursor,
            ):
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", params)
                ((plan,),) = cursor.fetchone()
        self.connection.log.append((text, plan))
        return super().execute(query, params, **options)


class Explainer(Recorder):
    explaining = True


@contextmanager
def recording(dsn, cursor=Recorder):
    with psycopg.connect(dsn, autocommit=True, cursor_factory=cursor) as conn:
        conn.log = []
        yield DeltaPostgresSaver(conn), conn.log


def nodes(plan):
    """All nodes of an EXPLAIN."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def rows_passed(node):
    """How many rows a node gave or threw away, all its rounds together."""
    once = node["Actual Rows"] + node.get("Rows Removed by Join Filter", 0)
    return once * node["Actual Loops"]


def scanned(plan):
    """Tables and partitions whose rows a statement really looked for."""
    return {
        node["Relation Name"]
        for node in nodes(plan["Plan"])
        if "Relation Name" in node and node.get("Actual Loops") and "Scan" in node["Node Type"]
    }


class TestNumberOfStatements:
    @pytest.mark.parametrize("snapshot_every", [None, 10])
    def test_it_does_not_depend_on_the_number_of_threads(self, dsn, threads, snapshot_every):
        names = [f"t{n}" for n in range(40)]
        with psycopg.connect(dsn) as conn:
            threads.write_threads(conn, names, 25, snapshot_every=snapshot_every)
        counts = []
        with recording(dsn) as (saver, log):
            for batch in (names[:1], names[1:3], names[3:]):
                log.clear()
                saver.prune(batch)
                counts.append(len(log))
        alone, two, many = counts
        assert two == many
        if snapshot_every is None:
            # Two threads are a fleet, which the heads settle: lock, sweep, look.
            assert many < alone < 13
        else:
            # It is looked at as one first, and its rows are counted.
            assert alone < many < 22

    def test_run_deletion_copies_and_calls_neither(self, dsn, threads):
        names = [f"t{n}" for n in range(20)]
        with psycopg.connect(dsn) as conn:
            for ns in ("", "memory", "call:1", "call:2"):
                threads.write_threads(conn, names, 25, snapshot_every=10, ns=ns)
            conn.execute(
                "UPDATE checkpoints SET metadata = metadata || jsonb_build_object('parents', "
                "jsonb_build_object('', (SELECT min(checkpoint_id) FROM checkpoints))) "
                "WHERE checkpoint_ns <> ''"
            )
        counts = []
        with recording(dsn) as (saver, log):
            for batch in (names[1:3], names[3:]):
                log.clear()
                saver.delete_for_runs([f"{t}-1" for t in batch])
                counts.append(len(log))
                log.clear()
                saver.prune(batch)
                counts.append(len(log))
        assert counts[:2] == counts[2:]
        assert max(counts) < 40

    def test_batches_hold_hundreds_of_threads_and_are_bounded_by_rows(self, dsn, threads):
        names = [f"t{n}" for n in range(12)]
        with psycopg.connect(dsn) as conn:
            threads.write_threads(conn, names, 25, snapshot_every=10)
        with recording(dsn) as (saver, log):
            assert 100 < saver.CLEANUP_BATCH_SIZE < 1000
            assert 10_000 < saver.CLEANUP_BATCH_ROWS < 50_000
            type(saver).CLEANUP_BATCH_ROWS, before = 100, type(saver).CLEANUP_BATCH_ROWS
            log.clear()
            try:
                saver.prune(names)
            finally:
                type(saver).CLEANUP_BATCH_ROWS = before
        # One lock for the look at all heads, then one a batch.
        assert len([t for t, _ in log if "pg_advisory_xact_lock" in t]) == 1 + 3


@pytest.fixture
def partitioned(dsn):
    """The host's tables, partitioned by hash of the thread id."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for table in TABLES:
            conn.execute(f"ALTER TABLE {table} RENAME TO whole_{table}")
            conn.execute(
                f"CREATE TABLE {table} (LIKE whole_{table} INCLUDING ALL) "
                "PARTITION BY HASH (thread_id)"
            )
            for part in range(PARTITIONS):
                conn.execute(
                    f"CREATE TABLE {table}_{part} PARTITION OF {table} "
                    f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {part})"
                )
    return dsn


OPERATIONS = {
    "prune": lambda saver, ids: saver.prune(ids, keep_last=2),
    "delete": lambda saver, ids: saver.prune(ids, strategy="delete"),
    "delete_for_runs": lambda saver, ids: saver.delete_for_runs([f"{ids[0]}-2"], thread_ids=ids),
    "delete_older_runs": lambda saver, ids: saver.delete_for_runs(
        [f"{t}-1" for t in ids], thread_ids=ids
    ),
    "plan_prune": lambda saver, ids: saver.plan_prune(ids),
    "keepset": lambda saver, ids: saver.get_delta_channel_keepset(
        {"configurable": {"thread_id": ids[0], "checkpoint_id": "1"}}, ["log"]
    ),
    "copy_thread": lambda saver, ids: saver.copy_thread(ids[0], "copy"),
}


class TestPartitions:
    def fill(self, dsn, threads, names):
        with psycopg.connect(dsn) as conn:
            threads.write_threads(conn, names, 25, snapshot_every=10)
            threads.write_threads(conn, names, 5, ns="call:1")
            conn.execute(
                "UPDATE checkpoints SET metadata = metadata || jsonb_build_object('parents', "
                "jsonb_build_object('', (SELECT min(checkpoint_id) FROM checkpoints))) "
                "WHERE checkpoint_ns <> ''"
            )

    def partitions_of(self, dsn, thread_ids):
        """Where rows of the threads belong."""
        found = set()
        with psycopg.connect(dsn) as conn:
            for table, part in itertools.product(TABLES, range(PARTITIONS)):
                belongs = (
                    f"SELECT satisfies_hash_partition('{table}'::regclass, {PARTITIONS}, {part}, "
                    "%s::text)"
                )
                if any(conn.execute(belongs, (t,)).fetchone()[0] for t in thread_ids):
                    found.add(f"{table}_{part}")
        return found

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("batch", [["t3"], ["t1", "t2"]])
    def test_only_those_of_the_threads_are_scanned(self, partitioned, threads, batch, operation):
        self.fill(partitioned, threads, [f"t{n}" for n in range(30)])
        concerned = [*batch, "copy"] if operation == "copy_thread" else batch
        allowed = self.partitions_of(partitioned, concerned)
        assert len(allowed) < 3 * PARTITIONS / 2
        with recording(partitioned, Explainer) as (saver, log):
            OPERATIONS[operation](saver, batch)
        seen = set()
        for text, plan in log:
            found = scanned(plan) if plan else set()
            assert found <= allowed, text
            seen |= found
        assert {name.rstrip("0123456789")[:-1] for name in seen} >= {"checkpoints"}
        if operation not in ("plan_prune", "keepset"):
            assert {name.rstrip("0123456789")[:-1] for name in seen} == set(TABLES)

    def test_nor_are_others_by_a_fleet_without_plans(self, partitioned, threads):
        with psycopg.connect(partitioned) as conn:
            threads.write_threads(conn, [f"t{n}" for n in range(30)], 25)
        allowed = self.partitions_of(partitioned, ["t1", "t2"])
        with recording(partitioned, Explainer) as (saver, log):
            saver.prune(["t1", "t2"])
        seen = [scanned(plan) for _, plan in log if plan]
        assert set().union(*seen) == allowed

    def test_cleanup_is_the_same_as_on_whole_tables(
        self, partitioned, threads, call, ids_of, orphans_of
    ):
        names = [f"t{n}" for n in range(12)]
        self.fill(partitioned, threads, names)
        call(partitioned, "prune", names)
        assert [len(ids_of(partitioned, name)) for name in names] == [5] * 12
        call(partitioned, "copy_thread", "t3", "copy")
        assert ids_of(partitioned, "copy") == ids_of(partitioned, "t3")
        call(partitioned, "delete_for_runs", ["t3-2"])
        assert ids_of(partitioned, "copy") == ids_of(partitioned, "t3") == []
        assert orphans_of(partitioned) == {"writes": 0, "blobs": 0}


class TestPlans:
    @pytest.mark.parametrize("also", [[], ["small1"]])
    def test_no_join_compares_all_rows_with_all(self, dsn, threads, also):
        """Also with statistics from before the thread grew, as they are for a huge one."""
        with psycopg.connect(dsn, autocommit=True) as conn:
            for table in TABLES:
                conn.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
            threads.write_threads(conn, [f"small{n}" for n in range(300)], 3)
            conn.execute(f"ANALYZE {', '.join(TABLES)}")
            threads.write_threads(conn, ["long"], 5_000)
        with recording(dsn, Explainer) as (saver, log):
            saver.prune(["long", *also])
        looked_at = 0
        for text, plan in log:
            for node in nodes(plan["Plan"]) if plan else ():
                looked_at += 1
                assert node["Node Type"] != "Merge Join", text
                if node["Node Type"] == "Nested Loop":
                    (inner,) = (p for p in node["Plans"] if p["Parent Relationship"] == "Inner")
                    # Only lookups by key, and the parts of one row's own JSON.
                    assert inner["Plan Rows"] <= 100, text
                    assert inner["Actual Rows"] <= 10, text
                assert rows_passed(node) < 10 * 5_000, text
        assert looked_at > 20

    def test_left_to_the_planner_some_would(self, dsn, threads, monkeypatch):
        """What the settings are for: else the test before would prove nothing."""
        with psycopg.connect(dsn, autocommit=True) as conn:
            for table in TABLES:
                conn.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
            threads.write_threads(conn, [f"small{n}" for n in range(300)], 3)
            conn.execute(f"ANALYZE {', '.join(TABLES)}")
            threads.write_threads(conn, ["long"], 1_000)
        monkeypatch.setattr(_postgres_sql, "PLAN_BY_HASHING", "SELECT set_config('a.b', 'c', true)")
        with recording(dsn, Explainer) as (saver, log):
            saver.prune(["long"])
        passed = [rows_passed(n) for _, plan in log if plan for n in nodes(plan["Plan"])]
        assert max(passed) > 100_000

    def test_a_long_thread_takes_time_in_proportion(self, dsn, threads):
        took = []
        for name, length in (("short", 2_000), ("long", 20_000)):
            with psycopg.connect(dsn, autocommit=True) as conn:
                threads.write_threads(conn, [name], length, snapshot_every=100)
                conn.execute(f"ANALYZE {', '.join(TABLES)}")
            with DeltaPostgresSaver.from_conn_string(dsn) as saver:
                start = time.perf_counter()
                saver.prune([name])
                took.append(time.perf_counter() - start)
        assert took[1] < 40 * took[0], took

    @pytest.mark.parametrize("version", [15, 18])
    def test_nothing_is_compiled(self, server_of, fresh_schema, threads, version):
        with fresh_schema(server_of(version)) as dsn:
            with psycopg.connect(dsn) as conn:
                threads.write_threads(conn, ["a", "b"], 300, snapshot_every=100)
            with recording(dsn, Explainer) as (saver, log):
                saver.prune(["a", "b"])
                saver.plan_prune(["a", "b"])
        plans = [plan for _, plan in log if plan]
        assert len(plans) > 8
        assert not [plan for plan in plans if "JIT" in plan]

    def test_the_index_finds_the_threads_of_a_run(self, dsn, threads):
        with psycopg.connect(dsn, autocommit=True) as conn:
            threads.write_threads(conn, [f"t{n}" for n in range(300)], 10, run_length=5)
            found = []
            for statement in ("SELECT 1", run_id_index_sql()):
                conn.execute(statement)
                conn.execute("ANALYZE checkpoints")
                with recording(dsn, Explainer) as (saver, log):
                    assert list(saver._list_run_threads(["t7-0", "no such run"])) == ["t7"]
                (plan,) = [plan for text, plan in log if "run_id" in text]
                found.append({node.get("Index Name") for node in nodes(plan["Plan"])})
        assert "checkpoints_run_id_idx" not in found[0]
        assert "checkpoints_run_id_idx" in found[1]
