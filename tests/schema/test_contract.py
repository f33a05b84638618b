"""The whole cleanup contract as the runtime role, on the committed migration.

`SaverContract` is what every saver of this package passes; here the role holds row privileges
only, the tables come from the example's files, and the saver from `open_checkpointer`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from delta_mixin.schema import aopen_checkpointer, open_checkpointer
from delta_mixin.testing import SaverContract
from delta_mixin.testing.oracle import SETTLED_HOST

MIGRATIONS = Path(__file__).parents[2] / "examples" / "postgres_migrations" / "migrations"
NO_LOOP = "a re-put id keeps its parent on Postgres, so there is no loop"
ONE_PAGE = "the host's reader before 3.1.3 does not look behind the newest 1,024 rows"
OPTIONS = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


@pytest.fixture(scope="module")
def committed(temporary_database):
    with temporary_database() as database:
        for file in sorted(MIGRATIONS.glob("*.sql")):
            database.psql(file, "-v", "ON_ERROR_STOP=1")
        yield database


def expected_of(side):
    """What the host's tables, and its reader on this side, cannot do."""
    failures = {
        "test_prune_ends_where_the_parents_are_a_loop": NO_LOOP,
        "test_keepset_ends_where_the_parents_are_a_loop": NO_LOOP,
    }
    if not SETTLED_HOST:
        failures[f"test_history_reaches_further_than_a_thousand_rows[{side}]"] = ONE_PAGE
    return failures


class CommittedSchema(SaverContract):
    orders_writes_by_task_path = SETTLED_HOST
    follows_parents_not_ids = False  # upstream's reader looks below the target's id only
    expected_failures: ClassVar[dict[str, str]]

    @pytest.fixture(autouse=True)
    def _database(self, committed):
        self.dsn = committed.dsn("app_runtime")
        with committed.connect() as conn:
            conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")


class TestConnection(CommittedSchema):
    expected_failures = expected_of("sync")

    @contextmanager
    def make_saver(self):
        with psycopg.connect(self.dsn, **OPTIONS) as conn:
            yield open_checkpointer(conn)


class TestAsyncPool(CommittedSchema):
    expected_failures = expected_of("async")

    @asynccontextmanager
    async def make_saver(self):
        async with AsyncConnectionPool(self.dsn, min_size=1, max_size=3, kwargs=OPTIONS) as pool:
            yield await aopen_checkpointer(pool)
