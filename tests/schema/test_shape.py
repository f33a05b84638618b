"""Shapes, their comparison, and the check against what the library expects."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg_pool import ConnectionPool

from delta_mixin.schema import (
    Column,
    Index,
    Shape,
    Table,
    UnsupportedStatementError,
    acheck_schema,
    aschema_shape,
    check_schema,
    compare_shapes,
    expected_shape,
    normalized,
    render_migration,
    schema_shape,
    testing,
)
from delta_mixin.schema.testing import assert_migrations_match_setup

# A change of the schema, and the sentence that names it.
FAULTS = {
    "a table dropped": ("DROP TABLE checkpoint_blobs", "table checkpoint_blobs is missing"),
    "a column dropped": (
        "ALTER TABLE checkpoint_writes DROP COLUMN task_path",
        "column checkpoint_writes.task_path is missing",
    ),
    "another type": (
        "ALTER TABLE checkpoints ALTER metadata DROP DEFAULT, "
        "ALTER metadata TYPE text USING metadata::text, ALTER metadata SET DEFAULT '{}'",
        "column checkpoints.metadata is text NOT NULL DEFAULT '{}', "
        "expected jsonb NOT NULL DEFAULT '{}'",
    ),
    "nullable": (
        "ALTER TABLE checkpoints ALTER checkpoint DROP NOT NULL",
        "column checkpoints.checkpoint is jsonb, expected jsonb NOT NULL",
    ),
    "not nullable": (
        "ALTER TABLE checkpoint_blobs ALTER blob SET NOT NULL",
        "column checkpoint_blobs.blob is bytea NOT NULL, expected bytea",
    ),
    "no default": (
        "ALTER TABLE checkpoint_writes ALTER task_path DROP DEFAULT",
        "column checkpoint_writes.task_path is text NOT NULL, expected text NOT NULL DEFAULT ''",
    ),
    "another default": (
        "ALTER TABLE checkpoint_writes ALTER task_path SET DEFAULT 'x'",
        "expected text NOT NULL DEFAULT ''",
    ),
    "no primary key": (
        "ALTER TABLE checkpoints DROP CONSTRAINT checkpoints_pkey",
        "primary key of checkpoints is (none), expected (thread_id, checkpoint_ns, checkpoint_id)",
    ),
    "another primary key": (
        "ALTER TABLE checkpoint_writes DROP CONSTRAINT checkpoint_writes_pkey, "
        "ADD PRIMARY KEY (thread_id, checkpoint_id, checkpoint_ns, task_id, idx)",
        "primary key of checkpoint_writes is (thread_id, checkpoint_id, ",
    ),
    "an index dropped": (
        "DROP INDEX checkpoints_thread_id_idx",
        "index checkpoints_thread_id_idx on checkpoints is missing",
    ),
    "another index": (
        "DROP INDEX checkpoints_thread_id_idx; "
        "CREATE INDEX checkpoints_thread_id_idx ON checkpoints (thread_id) WHERE thread_id > 'a'",
        "expected CREATE INDEX checkpoints_thread_id_idx ON checkpoints USING btree(thread_id",
    ),
    "a column that inserts leave out": (
        "ALTER TABLE checkpoints ADD tenant text NOT NULL",
        "column checkpoints.tenant is unexpected",
    ),
    "a unique index": (
        "CREATE UNIQUE INDEX u ON checkpoints (thread_id)",
        "index u on checkpoints is unexpected: CREATE UNIQUE INDEX u ON checkpoints",
    ),
    "a version row missing": (
        "DELETE FROM checkpoint_migrations WHERE v = 7",
        "has no row for statement(s) 7",
    ),
    "the version table missing": (
        "DROP TABLE checkpoint_migrations",
        "no checkpoint_migrations table in database",
    ),
}

HARMLESS = {
    "an index of one's own": (
        "CREATE INDEX mine ON checkpoints USING gin (metadata)",
        "index mine on checkpoints is unexpected: CREATE INDEX mine ON checkpoints USING gin",
    ),
    "a nullable column": (
        "ALTER TABLE checkpoints ADD tenant text",
        "column checkpoints.tenant is unexpected",
    ),
    "a column with a default": (
        "ALTER TABLE checkpoints ADD at timestamptz NOT NULL DEFAULT now()",
        "column checkpoints.at is unexpected",
    ),
    "an identity column": (
        "ALTER TABLE checkpoints ADD n bigint GENERATED ALWAYS AS IDENTITY",
        "column checkpoints.n is unexpected",
    ),
    "a later version": (
        "INSERT INTO checkpoint_migrations VALUES (10)",
        "it is at version 10, ahead of the 9 that is expected",
    ),
    "a table of one's own": ("CREATE TABLE mine (x int)", None),
}


def test_a_migrated_schema_is_as_expected_to_its_runtime_role(migrated):
    with migrated.connect("app_runtime") as conn:
        check = check_schema(conn)
    assert check.ok
    assert (check.schema, check.problems, check.notes) == ("public", (), ())
    assert str(check) == "checkpoint schema 'public': as expected"


@pytest.mark.parametrize(("change", "sentence"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_a_problem_and_named(migrated, change, sentence):
    with migrated.connect() as conn:
        before = schema_shape(conn)
        conn.execute(change)
        check = check_schema(conn)
        after = schema_shape(conn)
    assert not check.ok
    assert any(sentence in problem for problem in check.problems), check
    assert f"  problem: {check.problems[0]}" in str(check)
    if "DELETE" not in change:
        assert compare_shapes(before, after) != ()


@pytest.mark.parametrize(("change", "sentence"), HARMLESS.values(), ids=HARMLESS)
def test_what_does_no_harm_is_a_note(migrated, change, sentence):
    with migrated.connect() as conn:
        conn.execute(change)
        check = check_schema(conn)
    assert check.ok
    assert [note for note in check.notes if sentence and sentence in note] == list(check.notes)


def test_an_empty_database_lacks_everything(database):
    with database.connect() as conn:
        check = check_schema(conn)
    assert "no checkpoint_migrations table" in check.problems[0]
    assert len([p for p in check.problems if p.startswith("table ")]) == 4


def test_the_check_changes_nothing(migrated, server_log):
    with server_log(migrated) as statements, migrated.connect("app_runtime") as conn:
        check_schema(conn)
    assert {s.split()[0] for s in statements} == {"BEGIN", "SELECT", "COMMIT"}


def test_the_check_looks_where_it_is_told(new_database, tmp_path):
    database = new_database("app")
    database.apply(render_migration(), tmp_path)
    database.grant()
    database.look_in("app_runtime", "public")
    with ConnectionPool(database.dsn("app_runtime"), min_size=1, max_size=1) as pool:
        elsewhere = check_schema(pool, schema="app")
        assert schema_shape(pool).tables == {}
        assert len(schema_shape(pool, schema="app").tables) == 4
    # All tables are there; only this connection does not see them.
    (problem,) = elsewhere.problems
    assert "Put 'app' first on the path" in problem


def test_the_async_twins_see_the_same(migrated):
    async def main():
        async with await psycopg.AsyncConnection.connect(migrated.dsn()) as conn:
            return await aschema_shape(conn), await acheck_schema(conn)

    with migrated.connect() as conn:
        assert asyncio.run(main()) == (schema_shape(conn), check_schema(conn))


def test_the_shape_says_what_the_catalog_says(migrated):
    with migrated.connect() as conn:
        shape = schema_shape(conn, tables=["checkpoint_writes", "nowhere"])
    assert list(shape.tables) == ["checkpoint_writes"]
    table = shape.tables["checkpoint_writes"]
    assert table.columns["task_path"] == Column("text", False, "''::text")
    assert table.columns["idx"] == Column("integer", False)
    assert table.columns["type"] == Column("text")
    assert table.primary_key == ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
    definition = (
        "CREATE INDEX checkpoint_writes_thread_id_idx ON checkpoint_writes USING btree (thread_id)"
    )
    assert table.indexes == {"checkpoint_writes_thread_id_idx": Index(definition)}


def test_a_difference_is_told_from_either_side():
    one = Shape({"t": Table({"a": Column("text")}, ("a",), {"i": Index("x")})})
    two = Shape({"t": Table({"b": Column("text")}, ("a",), {}), "u": Table()})
    assert [str(d) for d in compare_shapes(one, two)] == [
        "column t.a is missing",
        "column t.b is unexpected",
        "index i on t is missing",
        "table u is unexpected",
    ]
    assert [(d.kind, d.what) for d in compare_shapes(two, one)] == [
        ("unexpected", "column"),
        ("missing", "column"),
        ("unexpected", "index"),
        ("missing", "table"),
    ]
    assert compare_shapes(one, one) == ()
    invalid = replace(one.tables["t"], indexes={"i": Index("x", valid=False)})
    assert [d.kind for d in compare_shapes(one, Shape({"t": invalid}))] == ["invalid"]


# The server's own opinion of statements that later releases may hold.
STATEMENTS = [
    "CREATE TABLE IF NOT EXISTS a (id bigint PRIMARY KEY, b varchar(10) DEFAULT 'x', "
    "c timestamptz NOT NULL DEFAULT now(), d numeric(10, 2) DEFAULT -1, e text[] DEFAULT '{}', "
    "f float8, g int[], h boolean DEFAULT false, i uuid DEFAULT gen_random_uuid(), "
    "j jsonb DEFAULT '{\"k\":1}', k char(3), l int4 DEFAULT NULL, m interval DEFAULT '1 day')",
    'CREATE TABLE "B b" (x text, y text, CONSTRAINT pk PRIMARY KEY (y, x))',
    "ALTER TABLE a ADD COLUMN IF NOT EXISTS n text NOT NULL DEFAULT '', ADD o int",
    "ALTER TABLE a ALTER COLUMN f SET NOT NULL",
    "ALTER TABLE a ALTER b SET DEFAULT 'z'",
    "ALTER TABLE a ALTER h DROP DEFAULT",
    "ALTER TABLE a ALTER COLUMN o TYPE bigint",
    "ALTER TABLE a DROP COLUMN g",
    "ALTER TABLE a ALTER COLUMN c DROP NOT NULL",
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS i1 ON a (lower(b), f DESC NULLS LAST)",
    "CREATE UNIQUE INDEX CONCURRENTLY i2 ON a USING btree (c) INCLUDE (h) WHERE d > 0 AND b = 'y'",
    "CREATE INDEX i3 ON a USING gin (j jsonb_path_ops)",
    "CREATE INDEX i4 ON a USING hash (n) WITH (fillfactor = 70)",
    "CREATE INDEX i5 ON a ((j ->> 'run_id'))",
    "CREATE INDEX i6 ON a (coalesce(b, 'c'), c ASC)",
    'CREATE INDEX "I 7" ON "B b" (x text_pattern_ops)',
    "CREATE INDEX i8 ON a (o)",
    "DROP INDEX CONCURRENTLY IF EXISTS i8",
    "CREATE TABLE gone (x int)",
    "DROP TABLE gone",
    "SELECT 1",
    "  ",
]


@pytest.mark.parametrize("count", range(1, len(STATEMENTS) + 1))
def test_the_model_agrees_with_the_server_after_each_statement(connection, count):
    connection.execute(STATEMENTS[count - 1])
    found = schema_shape(connection, schema="public", tables=["a", "B b", "gone"])
    assert compare_shapes(expected_shape(STATEMENTS[:count]), normalized(found)) == ()


@pytest.fixture(scope="module")
def connection(server):
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE model")
        with psycopg.connect(server.dsn("model"), autocommit=True) as conn:
            yield conn
        admin.execute("DROP DATABASE model")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (id serial)",
        "CREATE TABLE t (x int UNIQUE)",
        "CREATE TABLE t (x int CHECK (x > 0))",
        "CREATE TABLE t (LIKE checkpoints)",
        "CREATE TABLE t AS SELECT 1 AS x",
        "CREATE INDEX ON checkpoints (thread_id)",
        "CREATE INDEX i ON elsewhere (x)",
        "ALTER TABLE checkpoints RENAME COLUMN type TO kind",
        "ALTER TABLE checkpoints ALTER COLUMN nowhere DROP NOT NULL",
        "ALTER TABLE checkpoints DROP COLUMN thread_id",
        "ALTER TABLE checkpoints ADD CONSTRAINT u UNIQUE (type)",
        "CREATE VIEW v AS SELECT 1",
        "DO $$ BEGIN END $$",
        "UPDATE checkpoints SET type = 'x'",
        "CREATE TABLE t (",
    ],
)
def test_what_the_model_does_not_know_it_refuses(statement):
    with pytest.raises(UnsupportedStatementError, match=r"^statement 10: "):
        expected_shape([*PostgresSaver.MIGRATIONS, statement])


def test_the_helper_accepts_what_was_rendered(database):
    texts = [file.text for file in render_migration().files]
    with database.connect() as conn:
        conn.execute("SET search_path = pg_catalog, public")
        assert_migrations_match_setup(conn, texts)
        assert conn.execute("SHOW search_path").fetchone() == ("pg_catalog, public",)
        rest = conn.execute("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'scratch%'")
        assert rest.fetchone() == (0,)


def test_the_helper_accepts_a_chain_of_migrations_and_paths(database, tmp_path):
    old = render_migration(PostgresSaver.MIGRATIONS[:5]).files
    chain = []
    for file in (*old, *render_migration(from_version=4).files):
        path = tmp_path / file.name
        path.write_text(file.text)
        chain.append(path)
    assert len(chain) == 3
    with database.connect() as conn:
        assert_migrations_match_setup(conn, chain)


def test_the_helper_names_what_a_migration_lacks(database):
    text = (
        render_migration()
        .files[0]
        .text.replace(
            "CREATE INDEX IF NOT EXISTS checkpoints_thread_id_idx ON checkpoints(thread_id);", ""
        )
    )
    with database.connect() as conn:
        with pytest.raises(AssertionError) as failure:
            assert_migrations_match_setup(conn, [text])
        assert "index checkpoints_thread_id_idx on checkpoints is missing" in str(failure.value)
        assert "python -m delta_mixin schema render" in str(failure.value)
        with pytest.raises(AssertionError, match="table checkpoints is missing"):
            assert_migrations_match_setup(conn, lambda conn: conn.execute("SELECT 1"))


def test_the_helper_needs_autocommit(database):
    with database.connect(autocommit=False) as conn, pytest.raises(ValueError, match="autocommit"):
        assert_migrations_match_setup(conn, [])


def test_the_helper_notices_a_comparison_that_cannot_fail(database, monkeypatch):
    monkeypatch.setattr(testing, "compare_shapes", lambda expected, found: ())
    with (
        database.connect() as conn,
        pytest.raises(AssertionError, match="planted fault not noticed"),
    ):
        assert_migrations_match_setup(conn, [f.text for f in render_migration().files])
