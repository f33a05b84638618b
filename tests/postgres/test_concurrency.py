"""Cleanup beside other cleanups, beside running graphs, and cancelled half-way."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from delta_mixin import CleanupFailedError
from delta_mixin.adapters import _postgres_bodies, _postgres_sql
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"


def wait_until(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


@pytest.fixture
def count(dsn):
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield lambda query: conn.execute(query).fetchone()[0]


@pytest.fixture
def fill(dsn, threads):
    def fill(*names, length=25, snapshot_every=10):
        with psycopg.connect(dsn) as conn:
            return threads.write_threads(conn, names, length, snapshot_every=snapshot_every)

    return fill


def put_child(saver, thread_id, parent, *, ns="", step=99):
    """Store a checkpoint on a parent, as a run that goes on from there does."""
    config = {
        "configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": parent}
    }
    before = saver.get_tuple(config)
    checkpoint = {
        **empty_checkpoint(),
        "channel_versions": dict(before.checkpoint["channel_versions"]),
        "channel_values": {"step": step},
    }
    supersteps = before.metadata.get("counters_since_delta_snapshot", {}).get("log", [0, 0])[0] + 1
    counters = {"log": [supersteps, supersteps]}
    metadata = {"source": "loop", "parents": {}, "counters_since_delta_snapshot": counters}
    saver.put_writes(config, [("log", [f"by {step}"])], f"task-{step}")
    saver.put(config, checkpoint, metadata, {})
    return checkpoint["id"]


def log_of(saver, thread_id, checkpoint_id):
    config = {
        "configurable": {
            "thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id,
        }
    }  # fmt: skip
    history = saver.get_delta_channel_history(config=config, channels=["log"])["log"]
    return history.get("seed"), [value for _, _, value in history["writes"]]


class TestLocks:
    def test_cleanups_of_a_thread_wait_for_each_other(self, dsn, fill, call, ids_of, count):
        ids = fill("t", "free")
        with ThreadPoolExecutor() as pool, DeltaPostgresSaver.from_conn_string(dsn) as saver:
            with saver._cleanup_scope(["t"]):
                free = pool.submit(call, dsn, "prune", ["free"])
                free.result(timeout=10)
                waiting = pool.submit(call, dsn, "prune", ["t"])
                wait_until(lambda: count(WAITING) == 1)
                # Stored while it waits: its snapshot must be younger than its lock.
                with DeltaPostgresSaver.from_conn_string(dsn) as other:
                    put_child(other, "t", ids[-1])
                assert not waiting.done()
            waiting.result(timeout=10)
        assert ids_of(dsn, "t")[:-1] == ids[20:]

    def test_equal_thread_ids_of_two_schemas_do_not(self, server, dsn, fill, fresh_schema, call):
        fill("t")
        with (
            fresh_schema(server) as other,
            DeltaPostgresSaver.from_conn_string(other) as saver,
            saver._cleanup_scope(["t"]),
        ):
            call(dsn, "prune", ["t"])

    def test_batches_in_any_order_do_not_deadlock(self, dsn, fill, count, server):
        names = [f"t{n}" for n in range(40)]
        fill(*names)
        deadlocks = "SELECT sum(deadlocks) FROM pg_stat_database"
        before = count(deadlocks)

        def clean(order):
            with DeltaPostgresSaver.from_conn_string(dsn) as saver:
                for _ in range(15):
                    saver.prune(order)

        with ThreadPoolExecutor() as pool:
            orders = [names, names[::-1], names[::2] + names[1::2], names[20:] + names[:20]]
            for done in [pool.submit(clean, order) for order in orders]:
                done.result(timeout=60)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("SELECT pg_stat_force_next_flush()")
        assert count(deadlocks) == before

    def test_nothing_is_held_afterwards(self, dsn, fill, call, count):
        fill("t")
        call(dsn, "prune", ["t"])
        call(dsn, "copy_thread", "t", "copy")
        assert count(HELD) == 0

    def test_a_lock_that_is_not_granted_in_time_is_told_per_thread(self, dsn, fill, call, ids_of):
        fill(*"abcd")
        impatient = dsn.replace("options='", "options='-c lock_timeout=150ms ")
        plans = []
        with (
            DeltaPostgresSaver.from_conn_string(dsn) as saver,
            saver._cleanup_scope(["b"]),
            pytest.raises(CleanupFailedError, match="'b': LockNotAvailable") as caught,
        ):
            call(impatient, "prune", [*"abcd"], on_plan=plans.append)
        assert caught.value.threads == ("b",)
        assert [p.thread_id for p in plans] == [*"acd"]
        assert [len(ids_of(dsn, t)) for t in "abcd"] == [5, 25, 5, 5]

    def test_a_row_that_another_transaction_holds_is_told_per_thread(self, dsn, fill, call, ids_of):
        fill(*"abc")
        impatient = dsn.replace("options='", "options='-c lock_timeout=150ms ")
        with psycopg.connect(dsn) as conn:
            conn.execute("SELECT FROM checkpoints WHERE thread_id = 'c' FOR UPDATE")
            with pytest.raises(CleanupFailedError) as caught:
                call(impatient, "delete_for_runs", ["a-0", "c-0"])
        assert caught.value.threads == ("c",)
        assert [len(ids_of(dsn, t)) for t in "abc"] == [15, 25, 25]

    def test_a_batch_too_large_for_the_lock_table_goes_thread_by_thread(self, dsn, fill, ids_of):
        fill(*"ab")

        class Small(DeltaPostgresSaver):
            def _delete_checkpoint_rows(self, plans):
                if len(plans) > 1:
                    raise psycopg.errors.OutOfMemory("out of shared memory")
                super()._delete_checkpoint_rows(plans)

        with Small.from_conn_string(dsn) as saver:
            saver.prune([*"ab"])
        assert [len(ids_of(dsn, t)) for t in "ab"] == [5, 5]


class Forking(DeltaPostgresSaver):
    """A run on another connection forks from doomed checkpoints while they are deleted."""

    def fork(self, dsn, thread_id, *parents):
        self.forks = []
        self.plan = (dsn, thread_id, iter(parents))
        return self

    def _delete_checkpoint_rows(self, plans):
        dsn, thread_id, parents = self.plan
        doomed = [k.checkpoint_id for p in plans if p.thread_id == thread_id for k in p.doomed]
        if doomed and (which := next(parents, None)) is not None:
            with DeltaPostgresSaver.from_conn_string(dsn) as other:
                step = 100 + len(self.forks)
                self.forks.append(put_child(other, thread_id, doomed[which], step=step))
        super()._delete_checkpoint_rows(plans)


class TestForksMeanwhile:
    def test_a_fork_from_a_doomed_checkpoint_keeps_its_history(self, dsn, fill, ids_of, orphans_of):
        ids = fill("t", "u")
        plans = []
        with Forking.from_conn_string(dsn) as saver:
            saver.fork(dsn, "t", 13).prune(["t", "u"], on_plan=plans.append)
            (fork,) = saver.forks
            seed, writes = log_of(saver, "t", fork)
        assert seed.value == ["up to 10"]
        assert writes == [["step 11"], ["step 12"], ["step 13"], ["step 14"], ["by 100"]]
        assert [p.thread_id for p in plans] == ["t", "u"]
        # The fork is the newest now, so the old head goes.
        assert ids_of(dsn, "t") == [*ids[10:14], fork]
        assert ids_of(dsn, "u") == ids[20:]
        assert orphans_of(dsn) == {"writes": 0, "blobs": 0}

    def test_without_looking_it_would_lose_it(self, dsn, fill, monkeypatch):
        monkeypatch.setattr(_postgres_sql, "FORKED", "SELECT WHERE false")
        fill("t")
        with Forking.from_conn_string(dsn) as saver:
            saver.fork(dsn, "t", 13).prune(["t"])
            assert log_of(saver, "t", saver.forks[0]) == (None, [])

    def test_a_repeatable_read_snapshot_would_not_show_it(self, dsn, fill, monkeypatch):
        fill("t")

        def older(thread_ids, nested):
            level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            yield _postgres_bodies.Statement(level, fetch=False)
            yield _postgres_bodies.Statement(_postgres_sql.LOCK_THREADS, {"threads": "{t}"})

        monkeypatch.setattr(_postgres_bodies, "begin_cleanup", older)
        with Forking.from_conn_string(dsn) as saver:
            saver.fork(dsn, "t", 13).prune(["t"])
            assert log_of(saver, "t", saver.forks[0]) == (None, [])

    def test_a_thread_that_is_forked_again_and_again_is_left_and_named(self, dsn, fill, ids_of):
        ids = fill("t", "u", length=40)
        with Forking.from_conn_string(dsn) as saver:
            saver.fork(dsn, "t", *[-1] * 99)
            with pytest.raises(CleanupFailedError, match="a checkpoint was added") as caught:
                saver.prune(["t", "u"])
            for fork in saver.forks:
                assert log_of(saver, "t", fork)[0] is not None
        assert caught.value.threads == ("t",)
        assert set(ids) < set(ids_of(dsn, "t"))
        assert ids_of(dsn, "u") == ids[30:]

    def test_rows_that_a_run_appends_meanwhile_stay(self, dsn, fill, ids_of, orphans_of):
        ids = fill("t")

        class Appending(DeltaPostgresSaver):
            def _delete_checkpoint_rows(self, plans):
                with DeltaPostgresSaver.from_conn_string(dsn) as other:
                    self.added = put_child(other, "t", ids[-1])
                super()._delete_checkpoint_rows(plans)

        with Appending.from_conn_string(dsn) as saver:
            saver.prune(["t"])
            seed, writes = log_of(saver, "t", saver.added)
        assert seed.value == ["up to 20"]
        assert writes[-2:] == [["step 24"], ["by 99"]]
        assert ids_of(dsn, "t") == [*ids[20:], saver.added]
        assert orphans_of(dsn) == {"writes": 0, "blobs": 0}

    def test_a_thread_that_is_deleted_while_it_is_read_is_planned_anew(self, dsn, fill, ids_of):
        fill("t", "u")

        class Deleted(DeltaPostgresSaver):
            times = 1

            def _read_batch_rows(self, requests):
                if self.times:
                    self.times -= 1
                    with DeltaPostgresSaver.from_conn_string(dsn) as other:
                        other.delete_thread("t")
                return super()._read_batch_rows(requests)

        with Deleted.from_conn_string(dsn) as saver:
            saver.prune(["t", "u"])
            assert saver.times == 0
        assert ids_of(dsn, "t") == []
        assert len(ids_of(dsn, "u")) == 5

    def test_a_copy_whose_source_is_deleted_meanwhile_leaves_nothing(self, dsn, fill, rows_of):
        fill("t")

        class Deleted(DeltaPostgresSaver):
            def _copy_checkpoint_rows(self, source, target, rows):
                with psycopg.connect(dsn, autocommit=True) as conn:
                    conn.execute("DELETE FROM checkpoints WHERE checkpoint_id = %s", (gone,))
                super()._copy_checkpoint_rows(source, target, rows)

        gone = fill("t2")[3]
        with Deleted.from_conn_string(dsn) as saver:
            saver.copy_thread("t2", "copy")
        assert len(rows_of(dsn, "copy")["checkpoints"]) == 24


class TestCancelledTasks:
    @contextmanager
    def run(self, dsn):
        async def main(body, single):
            if single:
                async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
                    return await body(saver)
            options = {"autocommit": True, "prepare_threshold": 0}
            async with AsyncConnectionPool(dsn, min_size=1, max_size=1, kwargs=options) as pool:
                return await body(AsyncDeltaPostgresSaver(pool))

        yield lambda body, single: asyncio.run(main(body, single))

    @pytest.mark.parametrize("single", [True, False])
    def test_one_that_waits_for_a_lock(self, dsn, fill, rows_of, count, single):
        fill("t")
        before = rows_of(dsn)

        async def body(saver):
            task = asyncio.create_task(saver.aprune(["t"]))
            await asyncio.to_thread(wait_until, lambda: count(WAITING) == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert count(WAITING) == 0
            assert rows_of(dsn) == before
            return await saver.aget_tuple({"configurable": {"thread_id": "t"}})

        with (
            DeltaPostgresSaver.from_conn_string(dsn) as other,
            other._cleanup_scope(["t"]),
            self.run(dsn) as run,
        ):
            assert run(body, single).config["configurable"]["thread_id"] == "t"

    @pytest.mark.parametrize("single", [True, False])
    def test_ones_cancelled_at_any_moment(self, dsn, fill, ids_of, rows_of, count, single):
        ids = fill(*[f"t{n}" for n in range(5)], length=200)
        before = rows_of(dsn)

        async def body(saver):
            start = time.perf_counter()
            await saver.aplan_prune([f"t{n}" for n in range(5)])
            whole = 3 * (time.perf_counter() - start)
            outcomes = set()
            for n in range(40):
                task = asyncio.create_task(saver.aprune([f"t{n}" for n in range(5)]))
                await asyncio.sleep(whole * n / 40)
                task.cancel()
                await asyncio.wait([task])
                outcomes.add(task.cancelled())
                left = {len(ids_of(dsn, f"t{n}")) for n in range(5)}
                assert left in ({200}, {10}), "a batch is done or as before"
                if left == {10}:
                    with psycopg.connect(dsn) as conn:
                        for table, rows in before.items():
                            conn.execute(f"TRUNCATE {table}")
                            with conn.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                                for row in rows:
                                    copy.write_row(
                                        [
                                            psycopg.types.json.Jsonb(v)
                                            if isinstance(v, dict)
                                            else v
                                            for v in row
                                        ]
                                    )
            assert True in outcomes
            await saver.aprune([f"t{n}" for n in range(5)])

        with self.run(dsn) as run:
            run(body, single)
        assert ids_of(dsn, "t3") == ids[190:]
        assert count(HELD) == 0


class TestSharedSavers:
    def test_graph_calls_go_on_while_a_pooled_cleanup_waits(self, dsn, fill, count):
        fill("t")
        options = {"autocommit": True, "prepare_threshold": 0}
        with (
            ConnectionPool(dsn, min_size=2, kwargs=options) as pool,
            DeltaPostgresSaver.from_conn_string(dsn) as other,
        ):
            saver = DeltaPostgresSaver(pool)
            with other._cleanup_scope(["t"]):
                worker = threading.Thread(target=saver.prune, args=(["t"],))
                worker.start()
                wait_until(lambda: count(WAITING) == 1)
                assert saver.get_tuple({"configurable": {"thread_id": "t"}}) is not None
            worker.join(timeout=10)
            assert not worker.is_alive()

    def test_several_cleanups_through_one_saver(self, dsn, fill, ids_of):
        names = [f"t{n}" for n in range(12)]
        fill(*names)
        options = {"autocommit": True, "prepare_threshold": 0}
        with (
            ConnectionPool(dsn, min_size=4, kwargs=options) as pool,
            DeltaPostgresSaver.from_conn_string(dsn) as single,
            ThreadPoolExecutor() as workers,
        ):
            for saver in (DeltaPostgresSaver(pool), single):
                for done in [workers.submit(saver.prune, names[n:]) for n in range(6)]:
                    done.result(timeout=30)
        assert {len(ids_of(dsn, name)) for name in names} == {5}

    def test_several_tasks_through_one_saver(self, dsn, fill, ids_of):
        names = [f"t{n}" for n in range(12)]
        fill(*names)

        async def main():
            async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as single:
                await asyncio.gather(*(single.aprune(names[n:]) for n in range(6)))
            options = {"autocommit": True, "prepare_threshold": 0}
            async with AsyncConnectionPool(dsn, min_size=4, kwargs=options) as pool:
                saver = AsyncDeltaPostgresSaver(pool)
                await asyncio.gather(*(saver.adelete_for_runs([f"t{n}-2"]) for n in range(6)))

        asyncio.run(main())
        assert [len(ids_of(dsn, name)) for name in names] == [0] * 6 + [5] * 6


def test_the_lock_is_taken_in_one_statement_and_one_order():
    """Several statements could take them crosswise, whatever order each one keeps."""
    assert _postgres_sql.LOCK_THREADS.count("pg_advisory_xact_lock") == 1
    assert "ORDER BY key" in _postgres_sql.LOCK_THREADS
