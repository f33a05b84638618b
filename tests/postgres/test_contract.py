"""The shipped contract on both savers and every kind of connection."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.testing import SaverContract
from delta_mixin.testing.oracle import SETTLED_HOST

NO_LOOP = "a re-put id keeps its parent on Postgres, so there is no loop"
ONE_PAGE = "the host's reader before 3.1.3 does not look behind the newest 1,024 rows"
TABLES = (
    ("checkpoint", "checkpoints", "checkpoint_id"),
    ("writes", "checkpoint_writes", "checkpoint_id"),
    ("blob", "checkpoint_blobs", "channel, version"),
)


def expected_of(side):
    """What the host's tables, and its reader on this side, cannot do."""
    failures = {
        "test_prune_ends_where_the_parents_are_a_loop": NO_LOOP,
        "test_keepset_ends_where_the_parents_are_a_loop": NO_LOOP,
    }
    if not SETTLED_HOST:
        failures[f"test_history_reaches_further_than_a_thousand_rows[{side}]"] = ONE_PAGE
    return failures


class PostgresContract(SaverContract):
    orders_writes_by_task_path = SETTLED_HOST
    follows_parents_not_ids = False  # upstream's reader looks below the target's id only
    version = 18
    expected_failures: ClassVar[dict[str, str]]

    @pytest.fixture(autouse=True)
    def _database(self, server_of, fresh_schema):
        with fresh_schema(server_of(self.version)) as self.dsn:
            yield

    def stored_rows(self, saver):
        columns = "thread_id, checkpoint_ns"
        with psycopg.connect(self.dsn) as conn:
            for kind, table, more in TABLES:
                for row in conn.execute(f"SELECT {columns}, {more} FROM {table}"):
                    yield (kind, *row)


class TestConnection(PostgresContract):
    expected_failures = expected_of("sync")

    def make_saver(self):
        return DeltaPostgresSaver.from_conn_string(self.dsn)


class TestPipeline(PostgresContract):
    expected_failures = expected_of("sync")

    def make_saver(self):
        return DeltaPostgresSaver.from_conn_string(self.dsn, pipeline=True)


class TestPool(PostgresContract):
    expected_failures = expected_of("sync")

    @contextmanager
    def make_saver(self):
        options = {"autocommit": True, "prepare_threshold": 0}
        with ConnectionPool(self.dsn, min_size=1, max_size=3, kwargs=options) as pool:
            yield DeltaPostgresSaver(pool)


class TestAsyncConnection(PostgresContract):
    expected_failures = expected_of("async")

    def make_saver(self):
        return AsyncDeltaPostgresSaver.from_conn_string(self.dsn)


class TestAsyncPipeline(PostgresContract):
    expected_failures = expected_of("async")

    def make_saver(self):
        return AsyncDeltaPostgresSaver.from_conn_string(self.dsn, pipeline=True)


class TestAsyncPool(PostgresContract):
    expected_failures = expected_of("async")

    @asynccontextmanager
    async def make_saver(self):
        options = {"autocommit": True, "prepare_threshold": 0}
        async with AsyncConnectionPool(self.dsn, min_size=1, max_size=3, kwargs=options) as pool:
            yield AsyncDeltaPostgresSaver(pool)


class TestConnectionTo15(TestConnection):
    version = 15


class TestAsyncPoolTo15(TestAsyncPool):
    version = 15
