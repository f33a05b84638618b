"""What the runtime role may do after `runtime_grants`, and that names stay names."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from delta_mixin.schema import open_checkpointer, render_migration, runtime_grants

ALLOWED = [
    "SELECT count(*) FROM {}.checkpoint_migrations",
    "SELECT count(*) FROM {}.checkpoints",
    "INSERT INTO {}.checkpoints (thread_id, checkpoint_id, checkpoint) VALUES ('a', 'b', '{{}}')",
    "UPDATE {}.checkpoint_writes SET channel = 'x'",
    "DELETE FROM {}.checkpoint_blobs",
]
FORBIDDEN = [
    "INSERT INTO {}.checkpoint_migrations VALUES (99)",
    "DELETE FROM {}.checkpoint_migrations",
    "UPDATE {}.checkpoint_migrations SET v = v + 1",
    "TRUNCATE {}.checkpoints",
    "CREATE TABLE {}.mine (x int)",
    "ALTER TABLE {}.checkpoints ADD x int",
    "DROP TABLE {}.checkpoint_writes",
    "CREATE INDEX ON {}.checkpoints (type)",
    "CREATE TABLE elsewhere (LIKE {}.checkpoints)",
]


@pytest.fixture(params=["public", "app", 'a"b; DROP TABLE checkpoints; --'])
def schema(request):
    return request.param


@pytest.fixture
def granted(new_database, schema, tmp_path):
    database = new_database(schema)
    database.apply(render_migration(), tmp_path)
    # As much as a role can hold that was once given everything.
    with database.connect("postgres") as conn:
        name = sql.Identifier(schema)
        for statement in (
            "GRANT ALL ON SCHEMA {} TO app_runtime",
            "GRANT ALL ON SCHEMA {} TO PUBLIC",
            "GRANT ALL ON ALL TABLES IN SCHEMA {} TO app_runtime",
            "GRANT ALL ON ALL TABLES IN SCHEMA {} TO PUBLIC",
            "GRANT UPDATE (v) ON {}.checkpoint_migrations TO app_runtime",
            "ALTER SCHEMA {} OWNER TO schema_owner",
        ):
            conn.execute(sql.SQL(statement).format(name))
    database.grant()
    return database


def run(database, statement):
    with database.connect("app_runtime") as conn:
        conn.execute(sql.SQL(statement).format(sql.Identifier(database.schema)))


@pytest.mark.parametrize("statement", ALLOWED)
def test_rows_are_the_roles_to_read_and_write(granted, statement):
    run(granted, statement)


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_schema_is_not(granted, statement):
    with pytest.raises(InsufficientPrivilege):
        run(granted, statement)


def test_the_application_serves(granted):
    with granted.connect("app_runtime") as conn:
        assert list(open_checkpointer(conn, schema=granted.schema).list(None)) == []


def test_granted_twice_is_granted_once(granted):
    granted.grant()
    run(granted, ALLOWED[0])


ROLES = ['x"; DROP TABLE checkpoints; --', "a'b", "Mixed Case", "current_user", "é" * 31, "%s %"]


@pytest.mark.parametrize("role", ROLES)
def test_a_hostile_name_is_a_name(migrated, role):
    with migrated.connect("postgres") as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        try:
            migrated.grant(role)
            dsn = psycopg.conninfo.make_conninfo(migrated.dsn(), user=role)
            with psycopg.connect(dsn, autocommit=True) as conn:
                assert list(open_checkpointer(conn).list(None)) == []
                with pytest.raises(InsufficientPrivilege):
                    conn.execute("DELETE FROM checkpoint_migrations")
        finally:
            admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "é" * 32])
def test_what_can_be_no_name_is_refused(name):
    with pytest.raises(ValueError, match="role name"):
        runtime_grants(name)
    with pytest.raises(ValueError, match="schema name"):
        runtime_grants("app", schema=name)


@pytest.mark.parametrize("role", ["public", "none"])
def test_everybody_is_not_a_role(role):
    with pytest.raises(ValueError, match="not a role of its own"):
        runtime_grants(role)


def test_the_text_is_what_an_owner_would_review():
    assert [statement.as_string() for statement in runtime_grants("app", schema="s")] == [
        'REVOKE CREATE ON SCHEMA "s" FROM PUBLIC',
        'REVOKE CREATE ON SCHEMA "s" FROM "app"',
        'REVOKE ALL ON TABLE "s"."checkpoint_migrations", "s"."checkpoints", '
        '"s"."checkpoint_blobs", "s"."checkpoint_writes" FROM PUBLIC',
        'REVOKE ALL ON TABLE "s"."checkpoint_migrations", "s"."checkpoints", '
        '"s"."checkpoint_blobs", "s"."checkpoint_writes" FROM "app"',
        'GRANT USAGE ON SCHEMA "s" TO "app"',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "s"."checkpoints", '
        '"s"."checkpoint_blobs", "s"."checkpoint_writes" TO "app"',
        'GRANT SELECT ON TABLE "s"."checkpoint_migrations" TO "app"',
    ]
