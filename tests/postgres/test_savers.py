"""What both savers do with connections, ids, roles and schemas."""

from __future__ import annotations

import asyncio
import threading
from uuid import UUID

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from psycopg import sql as composed

from delta_mixin import IsolationLevelError, TargetThreadExistsError
from delta_mixin.adapters.postgres import (
    AsyncDeltaPostgresSaver,
    DeltaPostgresSaver,
    run_id_index_sql,
)

AN_UUID = UUID("8f1c0f6e-0000-4000-8000-0000000000aa")


@pytest.fixture
def delta_thread(dsn, threads):
    """Writes a thread of 25 checkpoints with snapshots at each tenth."""

    def write(*thread_ids, length=25):
        with psycopg.connect(dsn) as conn:
            return threads.write_threads(conn, thread_ids, length, snapshot_every=10)

    return write


def log_of(saver, thread_id, checkpoint_id=None):
    """What the host's reader finds for the delta channel, and where it starts."""
    conf = {"thread_id": thread_id, "checkpoint_ns": ""}
    if checkpoint_id:
        conf["checkpoint_id"] = checkpoint_id
    history = saver.get_delta_channel_history(config={"configurable": conf}, channels=["log"])
    writes = [value for _, _, value in history["log"]["writes"]]
    return history["log"]["seed"].value, writes


LAST = (["up to 20"], [["step 21"], ["step 22"], ["step 23"], ["step 24"]])
"""The log at the head of such a thread."""


class TestEveryConnection:
    def test_prune_keeps_what_the_head_is_rebuilt_from(
        self, dsn, call, delta_thread, ids_of, orphans_of
    ):
        ids = delta_thread("t", "twin")
        plans = []
        call(dsn, "prune", ["t"], on_plan=plans.append)
        assert ids_of(dsn, "t") == ids[20:]
        assert ids_of(dsn, "twin") == ids
        assert [key.checkpoint_id for key in plans[0].doomed] == ids[:20]
        assert orphans_of(dsn) == {"writes": 0, "blobs": 0}
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            assert log_of(saver, "t") == log_of(saver, "twin") == LAST

    def test_plans_and_keepsets_touch_nothing(self, dsn, call, delta_thread, rows_of):
        ids = delta_thread("t")
        before = rows_of(dsn)
        (plan,) = call(dsn, "plan_prune", ["t", "unknown"])
        assert [key.checkpoint_id for key in plan.kept] == ids[20:]
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        assert call(dsn, "get_delta_channel_keepset", config, ["log"]) == set(ids[20:])
        (plan,) = call(dsn, "plan_delete_for_runs", ["t-0"])
        assert [key.checkpoint_id for key in plan.doomed] == ids[:10]
        assert rows_of(dsn) == before

    def test_a_copy_is_equal_row_for_row(self, dsn, call, delta_thread, rows_of):
        delta_thread("t")
        call(dsn, "copy_thread", "t", "copy")
        rows = {t: rows_of(dsn, t) for t in ("t", "copy")}
        for table in rows["t"]:
            assert [row[1:] for row in rows["t"][table]] == [r[1:] for r in rows["copy"][table]]
        with pytest.raises(TargetThreadExistsError):
            call(dsn, "copy_thread", "t", "copy")

    def test_a_copy_of_a_checkpoint_takes_only_what_it_needs(
        self, dsn, call, delta_thread, ids_of, orphans_of
    ):
        ids = delta_thread("t")
        call(dsn, "copy_thread", "t", "copy", checkpoint_id=ids[13])
        assert ids_of(dsn, "copy") == ids[10:14]
        assert orphans_of(dsn) == {"writes": 0, "blobs": 0}
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            assert log_of(saver, "copy") == (["up to 10"], [["step 11"], ["step 12"], ["step 13"]])

    @pytest.mark.parametrize("indexed", [False, True])
    def test_run_deletion_changes_no_other_checkpoint(
        self, dsn, call, delta_thread, ids_of, orphans_of, indexed
    ):
        ids = delta_thread("t", "other")
        if indexed:
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute(run_id_index_sql())
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            before = log_of(saver, "t", ids[24])
        call(dsn, "delete_for_runs", ["t-0", "t-2", "no such run"])
        # Of run 1 the first row rests on the last snapshot of run 0; of run 2 nothing stays.
        assert ids_of(dsn, "t") == ids[10:20]
        assert ids_of(dsn, "other") == ids
        assert orphans_of(dsn) == {"writes": 0, "blobs": 0}
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            assert log_of(saver, "other", ids[24]) == before

    def test_deleting_a_thread_leaves_nothing_of_it(self, dsn, call, delta_thread, rows_of):
        ids = delta_thread("t", "other")
        with psycopg.connect(dsn) as conn:
            # Stored ahead of its checkpoint, and in a namespace without any.
            conn.execute(
                "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, "
                "idx, channel, blob) VALUES ('t', 'call:1', 'ahead', 'task', 0, 'log', '')"
            )
        call(dsn, "prune", ["t"], strategy="delete")
        assert rows_of(dsn, "t") == {
            "checkpoints": [], "checkpoint_blobs": [], "checkpoint_writes": [],
        }  # fmt: skip
        assert len(rows_of(dsn, "other")["checkpoints"]) == len(ids)

    def test_a_schema_named_by_search_path_with_any_name(
        self, server, call, fresh_schema, ids_of, threads
    ):
        with fresh_schema(server) as dsn, psycopg.connect(dsn, autocommit=True) as conn:
            schema = conn.execute("SELECT current_schema()").fetchone()[0]
            threads.write_threads(conn, ["t"], 25, snapshot_every=10)
            odd = f'{schema} "odd"'
            rename = "ALTER SCHEMA {} RENAME TO {}"
            names = map(composed.Identifier, (schema, odd))
            conn.execute(composed.SQL(rename).format(*names))
            conn.execute("SELECT set_config('search_path', quote_ident(%s), false)", (odd,))
            conn.execute(run_id_index_sql(odd))
            role = "named_schema"
            conn.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
            quoted = conn.execute("SELECT quote_ident(%s)", (odd,)).fetchone()[0]
            conn.execute(f"ALTER ROLE {role} SET search_path = {quoted}")
            try:
                there = server.dsn().replace("user=postgres", f"user={role}")
                call(there, "prune", ["t"])
                call(there, "copy_thread", "t", "copy")
                call(there, "delete_for_runs", ["t-2"])
                assert len(ids_of(there, "t")) == len(ids_of(there, "copy")) == 0
            finally:
                conn.execute(f"DROP ROLE {role}")
                conn.execute(composed.SQL(rename).format(*map(composed.Identifier, (odd, schema))))

    def test_a_role_that_may_only_change_rows(self, dsn, call, delta_thread, ids_of):
        delta_thread("t")
        with psycopg.connect(dsn, autocommit=True) as conn:
            schema = conn.execute("SELECT current_schema()").fetchone()[0]
            conn.execute("CREATE ROLE clerk LOGIN")
            try:
                conn.execute(f"GRANT USAGE ON SCHEMA {schema} TO clerk")
                conn.execute(
                    "GRANT SELECT, INSERT, UPDATE, DELETE ON checkpoints, checkpoint_blobs, "
                    "checkpoint_writes TO clerk"
                )
                as_clerk = dsn.replace("user=postgres", "user=clerk")
                call(as_clerk, "prune", ["t"])
                call(as_clerk, "copy_thread", "t", "copy")
                call(as_clerk, "delete_for_runs", ["t-2"])
                call(as_clerk, "prune", ["copy"], strategy="delete")
            finally:
                conn.execute("DROP OWNED BY clerk; DROP ROLE clerk")
        assert ids_of(dsn, "t") == ids_of(dsn, "copy") == []


class TestThreadIds:
    @pytest.mark.parametrize("thread_id", [7, AN_UUID, "7", "ü"])
    def test_ints_and_uuids_are_used_as_their_text_throughout(self, dsn, call, thread_id):
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        checkpoint = empty_checkpoint()
        stored = call(dsn, "put", config, checkpoint, {"source": "loop"}, {})
        assert stored["configurable"]["thread_id"] == str(thread_id)
        conf = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        call(dsn, "put_writes", {"configurable": conf}, [("a", 1)], "task")
        saved = call(dsn, "get_tuple", config)
        assert saved.pending_writes == [("task", "a", 1)]
        history = call(dsn, "get_delta_channel_history", config=config, channels=["a"])
        assert history["a"]["writes"] == []
        assert call(dsn, "get_delta_channel_keepset", config, ["a"]) == {checkpoint["id"]}
        call(dsn, "copy_thread", thread_id, "copy")
        call(dsn, "prune", [thread_id])
        call(dsn, "delete_thread", thread_id)
        assert call(dsn, "get_tuple", config) is None
        assert call(dsn, "plan_prune", ["copy"])[0].thread_id == "copy"

    @pytest.mark.parametrize("thread_id", [7, AN_UUID])
    def test_listing_takes_them_too(self, dsn, thread_id):
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

        async def alist():
            async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
                return [saved.config async for saved in saver.alist(config)]

        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            saver.put(config, empty_checkpoint(), {"source": "loop"}, {})
            found = [saved.config for saved in saver.list(config)]
            assert found == asyncio.run(alist())
            assert len(found) == len(list(saver.list(None))) == 1

    @pytest.mark.parametrize(
        ("method", "args"),
        [
            ("prune", (["fine", "a\0b"],)),
            ("plan_prune", (["fine", "a\0b"],)),
            ("copy_thread", ("a\0b", "copy")),
            ("copy_thread", ("fine", "a\0b")),
            ("delete_thread", ("a\0b",)),
            ("get_tuple", ({"configurable": {"thread_id": "a\0b"}},)),
            ("put_writes", ({"configurable": {"thread_id": "a\0b"}}, [], "task")),
        ],
    )
    def test_a_nul_in_an_id_is_refused_before_anything_is_sent(
        self, dsn, call, delta_thread, rows_of, method, args
    ):
        delta_thread("fine")
        before = rows_of(dsn)
        with pytest.raises(ValueError, match=r"NUL character, got 'a\\x00b'"):
            call(dsn, method, *args)
        assert rows_of(dsn) == before


class TestOpenTransactions:
    def test_without_autocommit_cleanup_commits_itself(self, dsn, delta_thread, ids_of):
        delta_thread("t")
        with psycopg.connect(dsn) as conn:
            DeltaPostgresSaver(conn).prune(["t"])
            assert len(ids_of(dsn, "t")) == 5
            conn.rollback()
        assert len(ids_of(dsn, "t")) == 5

    def test_counting_and_looking_up_runs_leave_no_transaction_open(
        self, dsn, delta_thread, ids_of
    ):
        delta_thread("t", "u")
        with psycopg.connect(dsn) as conn:
            saver = DeltaPostgresSaver(conn)
            saver.prune(["t", "u"])
            saver.delete_for_runs(["t-2"])
            assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert len(ids_of(dsn, "t")) == 0
        assert len(ids_of(dsn, "u")) == 5

    def test_an_open_transaction_decides_over_cleanup_in_it(self, dsn, delta_thread, ids_of):
        delta_thread("t")
        with psycopg.connect(dsn) as conn:
            conn.execute("SELECT 1")
            before = conn.execute(
                "SELECT current_setting('enable_nestloop'), current_setting('jit')"
            ).fetchone()
            DeltaPostgresSaver(conn).prune(["t"])
            after = conn.execute(
                "SELECT current_setting('enable_nestloop'), current_setting('jit')"
            ).fetchone()
            assert after == before
            assert len(ids_of(dsn, "t")) == 25
            conn.rollback()
            assert len(ids_of(dsn, "t")) == 25
            with conn.transaction():
                DeltaPostgresSaver(conn).prune(["t"])
        assert len(ids_of(dsn, "t")) == 5

    def test_one_that_keeps_its_snapshot_is_refused(self, dsn, delta_thread, rows_of):
        delta_thread("t")
        before = rows_of(dsn)
        with psycopg.connect(dsn) as conn:
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            conn.execute("SELECT 1")
            with pytest.raises(IsolationLevelError, match="REPEATABLE READ"):
                DeltaPostgresSaver(conn).prune(["t"])
        assert rows_of(dsn) == before

    def test_a_connection_set_to_another_level_is_not(self, dsn, delta_thread, ids_of):
        delta_thread("t")
        with psycopg.connect(dsn) as conn:
            conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            DeltaPostgresSaver(conn).prune(["t"])
        assert len(ids_of(dsn, "t")) == 5


class TestSyncMethodsOfTheAsyncSaver:
    def test_they_work_from_other_threads_and_refuse_the_loops_own(self, dsn, delta_thread, ids_of):
        delta_thread("t")

        async def main():
            async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
                with pytest.raises(asyncio.InvalidStateError, match=r"await aprune\(...\)"):
                    saver.prune(["t"])
                assert len(ids_of(dsn, "t")) == 25
                await asyncio.to_thread(saver.prune, ["t"])
                await asyncio.to_thread(saver.copy_thread, "t", "copy")

        asyncio.run(main())
        assert len(ids_of(dsn, "t")) == len(ids_of(dsn, "copy")) == 5

    def test_the_sync_savers_async_methods_run_in_a_worker(self, dsn, delta_thread, ids_of):
        delta_thread("t")
        seen = []

        async def main():
            with DeltaPostgresSaver.from_conn_string(dsn) as saver:
                await saver.aprune(["t"], on_plan=lambda _: seen.append(threading.current_thread()))

        asyncio.run(main())
        assert len(ids_of(dsn, "t")) == 5
        assert seen != [threading.main_thread()]
