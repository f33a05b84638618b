"""`open_checkpointer` serves on what the library needs, and says what to do about the rest."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row, tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from delta_mixin import DeltaMixinError
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.schema import (
    SchemaBehindError,
    SchemaGapError,
    SchemaMissingError,
    SchemaNotReadyError,
    SchemaPrivilegeError,
    SchemaSearchPathError,
    aopen_checkpointer,
    open_checkpointer,
    read_version,
    render_migration,
)

APP = 'app "1"'
LAST = len(PostgresSaver.MIGRATIONS) - 1
CONFIG = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
KEYWORDS = {"autocommit": True, "prepare_threshold": None, "row_factory": dict_row}


def by_connection(dsn, **options):
    with psycopg.connect(dsn, **KEYWORDS) as conn:
        return served(open_checkpointer(conn, **options))


def by_plain_connection(dsn, **options):
    with psycopg.connect(dsn, row_factory=tuple_row) as conn:
        saver = open_checkpointer(conn, **options)
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return served(saver)


def by_pool(dsn, **options):
    with ConnectionPool(dsn, min_size=1, max_size=2, kwargs=KEYWORDS) as pool:
        return served(open_checkpointer(pool, **options))


def by_async_connection(dsn, **options):
    async def main():
        async with await psycopg.AsyncConnection.connect(dsn, **KEYWORDS) as conn:
            return await aserved(await aopen_checkpointer(conn, **options))

    return asyncio.run(main())


def by_async_pool(dsn, **options):
    async def main():
        async with AsyncConnectionPool(dsn, min_size=1, max_size=2, kwargs=KEYWORDS) as pool:
            return await aserved(await aopen_checkpointer(pool, **options))

    return asyncio.run(main())


def served(saver):
    saver.put(CONFIG, empty_checkpoint(), {}, {})
    assert saver.get_tuple(CONFIG) is not None
    saver.prune(["t"])
    return type(saver)


async def aserved(saver):
    await saver.aput(CONFIG, empty_checkpoint(), {}, {})
    assert await saver.aget_tuple(CONFIG) is not None
    await saver.aprune(["t"])
    return type(saver)


WAYS = {
    "connection": (by_connection, DeltaPostgresSaver),
    "plain connection": (by_plain_connection, DeltaPostgresSaver),
    "pool": (by_pool, DeltaPostgresSaver),
    "async connection": (by_async_connection, AsyncDeltaPostgresSaver),
    "async pool": (by_async_pool, AsyncDeltaPostgresSaver),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture(params=["connection", "async pool"])
def opened(request):
    return WAYS[request.param][0]


def execute(database, *statements):
    with database.connect() as conn:
        for statement in statements:
            conn.execute(statement)


def test_equal_serves_as_the_runtime_role(migrated, way, caplog):
    opened, class_ = way
    with caplog.at_level(logging.INFO, "delta_mixin.schema"):
        assert opened(migrated.dsn("app_runtime")) is class_
    assert caplog.records == []


def test_ahead_serves_with_a_note(migrated, way, caplog):
    opened, class_ = way
    execute(migrated, f"INSERT INTO checkpoint_migrations VALUES ({LAST + 3})")
    assert opened(migrated.dsn("app_runtime")) is class_
    (record,) = caplog.records
    assert record.name == "delta_mixin.schema"
    assert f"'public' is at version {LAST + 3}, ahead of the installed library's {LAST}" in (
        record.getMessage()
    )


def test_behind_refuses_and_says_what_to_ship(database, opened):
    database.at_version(5)
    database.grant_as_is()
    with pytest.raises(SchemaBehindError) as refusal:
        opened(database.dsn("app_runtime"))
    error = refusal.value
    assert (error.applied, error.expected, error.schema) == (5, LAST, "public")
    assert error.missing == tuple(range(6, LAST + 1))
    assert f"is at version 5, the installed library expects {LAST}" in str(error)
    assert f"statement(s) 6 to {LAST} are not recorded" in str(error)
    assert "`python -m delta_mixin schema render --from-version 5`" in str(error)


def test_an_empty_version_table_refuses(migrated, opened):
    execute(migrated, "DELETE FROM checkpoint_migrations")
    with pytest.raises(SchemaBehindError, match="holds no version row") as refusal:
        opened(migrated.dsn("app_runtime"))
    assert refusal.value.applied is None
    assert refusal.value.missing == tuple(range(LAST + 1))
    assert "`python -m delta_mixin schema render` writes" in str(refusal.value)


def test_a_gap_refuses_although_setup_would_not_see_it(migrated, opened):
    execute(migrated, "DELETE FROM checkpoint_migrations WHERE v IN (3, 6, 7)")
    migrated.setup()
    with pytest.raises(SchemaGapError) as refusal:
        opened(migrated.dsn("app_runtime"))
    assert refusal.value.missing == (3, 6, 7)
    message = str(refusal.value)
    assert f"records version {LAST}, but has no row for statement(s) 3, 6 to 7" in message
    assert "`python -m delta_mixin schema render --from-version 2`" in message


def test_the_migration_that_a_gap_asks_for_closes_it(migrated, tmp_path):
    execute(migrated, "DELETE FROM checkpoint_migrations WHERE v IN (3, 6)")
    migrated.apply(render_migration(from_version=2), tmp_path)
    assert by_connection(migrated.dsn("app_runtime")) is DeltaPostgresSaver


def test_behind_with_a_gap_names_all_that_is_missing(migrated, opened):
    execute(migrated, "DELETE FROM checkpoint_migrations WHERE v IN (6, 9)")
    with pytest.raises(SchemaBehindError, match=r"--from-version 5`") as refusal:
        opened(migrated.dsn("app_runtime"))
    assert refusal.value.applied == 8
    assert refusal.value.missing == (6, 9)


def test_a_gap_above_what_the_library_knows_is_none_of_its_business(migrated, opened):
    execute(migrated, f"INSERT INTO checkpoint_migrations VALUES ({LAST + 2})")
    opened(migrated.dsn("app_runtime"))


def test_no_table_refuses(database, opened):
    with pytest.raises(SchemaMissingError) as refusal:
        opened(database.dsn())
    assert f"no checkpoint_migrations table in database '{database.name}'" in str(refusal.value)
    assert "Apply it as the schema owner" in str(refusal.value)


def test_another_schema_than_the_one_asked_for_refuses(migrated, opened):
    with pytest.raises(SchemaMissingError, match="in schema 'tenant' of database"):
        opened(migrated.dsn("app_runtime"), schema="tenant")


@pytest.fixture
def in_schema(new_database, tmp_path):
    """Migrated in a schema with a name that has to be quoted."""
    database = new_database(APP)
    database.apply(render_migration(), tmp_path)
    return database


def test_a_named_schema_serves(in_schema, way):
    opened, class_ = way
    in_schema.grant()
    assert opened(in_schema.dsn("app_runtime")) is class_
    assert opened(in_schema.dsn("app_runtime"), schema=APP) is class_


@pytest.mark.parametrize("schema", [None, APP])
def test_a_wrong_search_path_refuses(in_schema, opened, schema):
    in_schema.grant()
    in_schema.look_in("app_runtime", "public")
    with pytest.raises(SchemaSearchPathError) as refusal:
        opened(in_schema.dsn("app_runtime"), schema=schema)
    assert refusal.value.schemas == (APP,)
    assert "(search_path: public) sees none of them" in str(refusal.value)
    assert "ALTER ROLE … SET search_path" in str(refusal.value)


def test_tables_of_another_schema_in_front_refuse(in_schema, opened):
    # Such as a setup() of long ago left them.
    in_schema.grant()
    in_schema.look_in("app_runtime", "public", APP)
    with in_schema.connect("postgres") as conn:
        conn.execute("CREATE TABLE public.checkpoint_migrations (v int)")
        conn.execute("GRANT SELECT ON public.checkpoint_migrations TO app_runtime")
    with pytest.raises(SchemaSearchPathError, match="reads those of schema 'public'"):
        opened(in_schema.dsn("app_runtime"), schema=APP)
    with pytest.raises(SchemaBehindError, match="schema 'public' holds no version row"):
        opened(in_schema.dsn("app_runtime"))


def test_no_right_to_read_the_version_refuses(migrated, opened):
    execute(migrated, "REVOKE SELECT ON checkpoint_migrations FROM app_runtime")
    with pytest.raises(SchemaPrivilegeError) as refusal:
        opened(migrated.dsn("app_runtime"))
    assert "role 'app_runtime' lacks SELECT on checkpoint_migrations in schema 'public'" in str(
        refusal.value
    )
    assert "python -m delta_mixin schema grants" in str(refusal.value)


def test_no_right_to_use_the_schema_refuses(in_schema, opened):
    with pytest.raises(SchemaPrivilegeError, match="'app_runtime' lacks USAGE in schema"):
        opened(in_schema.dsn("app_runtime"))


def test_every_refusal_is_of_one_base_class():
    for error in (
        SchemaBehindError,
        SchemaGapError,
        SchemaMissingError,
        SchemaPrivilegeError,
        SchemaSearchPathError,
    ):
        assert issubclass(error, SchemaNotReadyError)
    assert issubclass(SchemaNotReadyError, DeltaMixinError)


def test_behind_a_transaction_pooler(in_schema, pooled, way):
    opened, class_ = way
    in_schema.grant()
    assert opened(pooled(in_schema), schema=APP) is class_
    assert pooled.pooler.handed_out >= (2 if opened is by_plain_connection else 4)


def test_the_pooler_of_these_tests_keeps_no_session(migrated, pooled):
    with psycopg.connect(pooled(migrated), **KEYWORDS | {"row_factory": tuple_row}) as conn:
        pids = {conn.execute("SELECT pg_backend_pid()").fetchone()[0] for _ in range(6)}
        assert len(pids) == 3
        conn.execute("SET search_path = nowhere")
        assert conn.execute("SHOW search_path").fetchone()[0] != "nowhere"


def test_within_a_transaction_that_is_open_already(migrated):
    with psycopg.connect(migrated.dsn("app_runtime"), row_factory=dict_row) as conn:
        conn.execute("SELECT 1")
        saver = open_checkpointer(conn)
        saver.put(CONFIG, empty_checkpoint(), {}, {})
        conn.rollback()
        assert saver.get_tuple(CONFIG) is None


def test_a_serializer_is_handed_on(migrated):
    class Serializer:
        def dumps_typed(self, obj): ...
        def loads_typed(self, data): ...

    serde = Serializer()
    with migrated.connect("app_runtime") as conn:
        assert open_checkpointer(conn, serde=serde).serde is serde


def test_the_version_can_be_read_alone(migrated):
    with migrated.connect("app_runtime") as conn:
        version = read_version(conn)
    assert (version.schema, version.applied) == ("public", tuple(range(LAST + 1)))


def test_opening_runs_selects_and_nothing_else(migrated, server_log):
    with server_log(migrated) as statements, migrated.connect("app_runtime") as conn:
        open_checkpointer(conn)
    assert {s.split()[0] for s in statements} == {"BEGIN", "SELECT", "COMMIT"}
    assert len(statements) == 5


def test_twelve_replicas_boot_at_once(migrated, new_database, server_log):
    behind = new_database()
    behind.at_version(8)
    behind.grant_as_is()
    script = Path(__file__).with_name("replica.py")
    replicas = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(12)
    ]
    try:
        assert [replica.stdout.readline() for replica in replicas] == ["ready\n"] * 12

        def boot(database):
            for i, replica in enumerate(replicas):
                replica.stdin.write(json.dumps([database.dsn("app_runtime"), f"t{i}"]) + "\n")
                replica.stdin.flush()
            return [json.loads(replica.stdout.readline()) for replica in replicas]

        with server_log(migrated, "ddl") as ddl:
            assert boot(migrated) == ["served 1"] * 12
        with server_log(behind, "ddl") as ddl_behind:
            refusals = boot(behind)
        assert len(set(refusals)) == 1
        assert "SchemaBehindError: checkpoint schema 'public' is at version 8" in refusals[0]
        assert ddl + ddl_behind == []
    finally:
        for replica in replicas:
            replica.stdin.close()
            replica.stdout.close()
            replica.wait(30)


def test_the_log_of_these_tests_shows_ddl(database, server_log):
    with server_log(database, "ddl") as ddl:
        database.setup()
    assert len(ddl) == 1 + len([s for s in PostgresSaver.MIGRATIONS if "SELECT" not in s])
