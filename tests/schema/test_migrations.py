"""Rendered files on a real server: same shape as setup(), applied again, upgraded, interrupted."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from langgraph.checkpoint.postgres import PostgresSaver
from sqlalchemy.exc import DBAPIError

from delta_mixin.schema import (
    SchemaBehindError,
    check_schema,
    compare_shapes,
    expected_shape,
    normalized,
    open_checkpointer,
    read_version,
    render_migration,
    schema_shape,
)

LAST = len(PostgresSaver.MIGRATIONS) - 1
FIRST_INDEX = 6  # the first statement that builds an index concurrently

ENV = """
from alembic import context
from sqlalchemy import create_engine, pool

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(context.config.get_main_option("url"), poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
"""


@pytest.fixture
def setup_shape(new_database):
    database = new_database()
    database.setup()
    with database.connect() as conn:
        return schema_shape(conn)


def shape_of(database):
    with database.connect() as conn:
        return schema_shape(conn)


def dump(database):
    """Everything that defines the database, and its version rows."""
    done = subprocess.run(
        [database.server._bin / "pg_dump", database.dsn(), "--schema-only"],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if "restrict" not in line]
    return lines, database.versions()


def alembic(folder, database):
    """An Alembic environment with one revision, as a project would have it."""
    folder = folder / "alembic"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENV)
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    host = database.dsn().split("host=")[1].split()[0]
    config.set_main_option("url", f"postgresql+psycopg://schema_owner@/{database.name}?host={host}")

    def revision(body, name="a1"):
        head = f'revision = "{name}"\ndown_revision = None\n'
        (folder / "versions" / f"{name}.py").write_text(head + body)
        return config

    return revision


def apply(form, migration, database, folder):
    if form == "sql":
        database.apply(migration, folder)
    else:
        command.upgrade(alembic(folder, database)(migration.alembic), "head")


FORMS = pytest.mark.parametrize("form", ["sql", "alembic"])


@FORMS
def test_a_fresh_schema_has_the_shape_of_setup(form, database, tmp_path, setup_shape):
    apply(form, render_migration(), database, tmp_path)
    found = shape_of(database)
    assert compare_shapes(setup_shape, found) == ()
    assert set(found.tables) == {
        "checkpoint_migrations",
        "checkpoints",
        "checkpoint_blobs",
        "checkpoint_writes",
    }
    assert sum(len(table.indexes) for table in found.tables.values()) == 3
    assert database.versions() == list(range(LAST + 1))


def test_the_expected_shape_is_that_of_setup(setup_shape):
    expected = expected_shape(PostgresSaver.MIGRATIONS)
    assert compare_shapes(expected, normalized(setup_shape)) == ()
    assert expected == normalized(setup_shape)


def test_applied_twice_it_changes_nothing(database, tmp_path):
    database.apply(render_migration(), tmp_path)
    once = dump(database)
    database.apply(render_migration(), tmp_path)
    assert dump(database) == once


def test_a_list_without_if_not_exists_can_be_applied_twice_as_well(database, tmp_path):
    # Release 3.0.0 adds its last column so.
    statements = [s.replace("IF NOT EXISTS ", "") for s in PostgresSaver.MIGRATIONS]
    assert "IF NOT EXISTS" not in "".join(statements)
    database.apply(render_migration(statements), tmp_path)
    once = dump(database)
    database.apply(render_migration(statements), tmp_path)
    assert dump(database) == once


def test_a_later_setup_by_the_owner_runs_no_further_statement(migrated, server_log):
    with server_log(migrated) as statements:
        migrated.setup()
    assert [s.split("(")[0].strip() for s in statements] == [
        "CREATE TABLE IF NOT EXISTS checkpoint_migrations",
        "SELECT v FROM checkpoint_migrations ORDER BY v DESC LIMIT 1",
    ]
    assert migrated.versions() == list(range(LAST + 1))


def test_setup_as_the_runtime_role_lacks_the_right_and_the_application_serves(migrated):
    with migrated.saver("app_runtime") as saver:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="schema public"):
            saver.setup()
        checkpointer = open_checkpointer(saver.conn)
        assert list(checkpointer.list(None)) == []


TABLES = {
    1: "checkpoints",
    2: "checkpoint_blobs",
    3: "checkpoint_writes",
}


def add_rows(database, version):
    with database.connect() as conn:
        for since, table in TABLES.items():
            if version < since:
                continue
            columns = {
                "checkpoints": ("checkpoint_id, checkpoint", "n::text, '{}'"),
                "checkpoint_blobs": ("channel, version, type, blob", "'c', n::text, 't', '\\x00'"),
                "checkpoint_writes": (
                    "checkpoint_id, task_id, idx, channel, blob",
                    "n::text, 't', 0, 'c', '\\x00'",
                ),
            }[table]
            conn.execute(
                f"INSERT INTO {table} (thread_id, {columns[0]}) "
                f"SELECT 'thread', {columns[1]} FROM generate_series(1, 500) AS n"
            )


def rows(database, version):
    with database.connect() as conn:
        return {
            table: conn.execute(f"SELECT t.* FROM {table} t ORDER BY t").fetchall()
            for since, table in TABLES.items()
            if version >= since
        }


@FORMS
@pytest.mark.parametrize("version", range(LAST))
def test_an_upgrade_of_live_tables_ends_in_the_same_shape(
    form, version, database, tmp_path, setup_shape
):
    database.at_version(version)
    add_rows(database, version)
    before = rows(database, version)
    apply(form, render_migration(from_version=version), database, tmp_path)
    assert compare_shapes(setup_shape, shape_of(database)) == ()
    assert database.versions() == list(range(LAST + 1))
    after = rows(database, version)
    after["checkpoint_writes"] = [row[:8] for row in after.get("checkpoint_writes", [])]
    for table, kept in before.items():
        assert after[table] == kept
        assert len(kept) == 500


@FORMS
def test_an_upgrade_applied_to_another_version_changes_nothing(form, database, tmp_path):
    database.at_version(3)
    before = dump(database)
    migration = render_migration(from_version=4)
    with pytest.raises((subprocess.CalledProcessError, DBAPIError)) as failure:
        apply(form, migration, database, tmp_path)
    message = getattr(failure.value, "stderr", None) or str(failure.value)
    assert "version 4 is not recorded as applied" in message
    assert database.versions() == [0, 1, 2, 3]
    if form == "sql":
        assert dump(database) == before


@contextmanager
def blocked(database, table="checkpoints"):
    """Another session keeps a concurrent build from finishing; the owner's patience is short."""
    role = f"ALTER ROLE schema_owner IN DATABASE {database.name}"
    with database.connect("postgres") as admin:
        admin.execute(f"{role} SET statement_timeout = 500")
        try:
            with database.connect(autocommit=False) as writer:
                writer.execute("SET statement_timeout = 0")
                writer.execute(
                    f"INSERT INTO {table} (thread_id, checkpoint_id, checkpoint) "
                    "VALUES ('t', '1', '{}')"
                )
                yield
        finally:
            admin.execute(f"{role} RESET statement_timeout")


@pytest.mark.parametrize("stops_on_error", [True, False])
def test_a_failed_concurrent_build_is_not_recorded(stops_on_error, database, tmp_path, setup_shape):
    database.at_version(FIRST_INDEX - 1)
    (file,) = render_migration(from_version=FIRST_INDEX - 1).files
    path = tmp_path / file.name
    path.write_text(file.text)
    flags = ("-v", "ON_ERROR_STOP=1") if stops_on_error else ()

    with blocked(database):
        done = database.psql(path, *flags, check=False)
    assert "canceling statement due to statement timeout" in done.stderr
    # A runner that goes on after the error records nothing above the failure either.
    assert database.versions() == list(range(FIRST_INDEX))
    with database.connect() as conn:
        check = check_schema(conn)
        with pytest.raises(SchemaBehindError):
            open_checkpointer(conn)
    assert not check.ok
    (named,) = [p for p in check.problems if "is invalid" in p]
    assert "index checkpoints_thread_id_idx on checkpoints is invalid" in named
    assert "DROP INDEX CONCURRENTLY" in named

    # IF NOT EXISTS takes the invalid index for the real one; the verification does not.
    done = database.psql(path, *flags, check=False)
    assert "index checkpoints_thread_id_idx on checkpoints is missing or invalid" in done.stderr
    assert "DROP INDEX CONCURRENTLY the invalid index" in done.stderr
    assert database.versions() == list(range(FIRST_INDEX))

    with database.connect() as conn:
        conn.execute("DROP INDEX CONCURRENTLY checkpoints_thread_id_idx")
    database.psql(path, "-v", "ON_ERROR_STOP=1")
    assert database.versions() == list(range(LAST + 1))
    assert compare_shapes(setup_shape, shape_of(database)) == ()


def test_a_failed_concurrent_build_in_a_revision_is_not_recorded(database, tmp_path, setup_shape):
    database.at_version(FIRST_INDEX - 2)
    body = render_migration(from_version=FIRST_INDEX - 2).alembic
    config = alembic(tmp_path, database)(body)
    with blocked(database), pytest.raises(Exception, match="statement timeout"):
        command.upgrade(config, "head")
    assert database.versions() == list(range(FIRST_INDEX))
    with database.connect() as conn:
        assert any(
            "_thread_id_idx on checkpoints is invalid" in p for p in check_schema(conn).problems
        )
        conn.execute("DROP INDEX CONCURRENTLY checkpoints_thread_id_idx")
    command.upgrade(config, "head")
    assert database.versions() == list(range(LAST + 1))
    assert compare_shapes(setup_shape, shape_of(database)) == ()


def test_a_file_run_in_a_transaction_by_mistake_changes_nothing(database, tmp_path):
    database.at_version(FIRST_INDEX - 1)
    before = dump(database)
    (file,) = render_migration(from_version=FIRST_INDEX - 1).files
    with database.connect() as conn, pytest.raises(psycopg.errors.ActiveSqlTransaction):
        conn.execute(file.text)
    assert dump(database) == before


def test_statements_can_be_run_one_by_one_by_a_driver(database, setup_shape):
    database.at_version(4)
    for file in render_migration(from_version=4).files:
        with database.connect() as conn:
            for statement in file.statements:
                conn.execute(statement)
    assert compare_shapes(setup_shape, shape_of(database)) == ()
    with database.connect() as conn:
        assert read_version(conn).applied == tuple(range(LAST + 1))


def test_alembic_offline_writes_the_same(database, tmp_path, capsys):
    config = alembic(tmp_path, database)(render_migration(from_version=4).alembic)
    database.at_version(4)
    command.upgrade(config, "head", sql=True)
    script = tmp_path / "offline.sql"
    script.write_text(capsys.readouterr().out)
    database.psql(script, "-v", "ON_ERROR_STOP=1")
    assert database.versions() == list(range(LAST + 1))


HOSTILE = [
    *PostgresSaver.MIGRATIONS[:1],
    """CREATE TABLE "a:b" (x text DEFAULT ':y :z::text \\:w 50% %s %(a)s "" \"\"\" ', j jsonb)""",
    """INSERT INTO "a:b" (j) VALUES ('{"k": [1, ":v"], "c": {"d":1}}'::jsonb)""",
    """CREATE INDEX CONCURRENTLY "in:'dex $verify$ \\" ON "a:b" (x)""",
    'DROP INDEX CONCURRENTLY "in:\'dex $verify$ \\"',
    """CREATE INDEX CONCURRENTLY ON "a:b" (x)""",
    """DO $x$ BEGIN RAISE NOTICE '% :a', 'b;'; END $x$""",
]


@FORMS
@pytest.mark.parametrize("from_version", [None, 0])
def test_hostile_text_arrives_unchanged_in_both_forms(form, from_version, database, tmp_path):
    if from_version == 0:
        database.at_version(0)
    apply(form, render_migration(HOSTILE, from_version=from_version), database, tmp_path)
    with database.connect() as conn:
        default = """':y :z::text \\:w 50% %s %(a)s "" \"\"\" '::text"""
        assert schema_shape(conn, tables=["a:b"]).tables["a:b"].columns["x"].default == default
        assert conn.execute('SELECT x, j FROM "a:b"').fetchall() == [
            (default[1:-7], {"k": [1, ":v"], "c": {"d": 1}})
        ]
    assert database.versions() == list(range(len(HOSTILE)))
