"""Statements are cut and edited where the server would, whatever strings and comments hold."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.pq import DiagnosticField

from delta_mixin.schema import UnsupportedStatementError, render_migration
from delta_mixin.schema._sql import split

BAIT = "CREATE INDEX CONCURRENTLY i ON t (x); COMMIT;"

# Each is one statement of which nothing may be changed.
WHOLE = {
    "a string": f"SELECT '{BAIT}'",
    "a doubled quote": f"SELECT 'it''s {BAIT}'",
    "a backslash that escapes nothing": "SELECT 'C:\\' AS x, 'y;'",
    "a string that continues": f"SELECT 'a'\n'{BAIT}'",
    "an escape string": f"SELECT E'it\\'s {BAIT}'",
    "a quoted name": f'SELECT 1 AS "{BAIT}"',
    "a quoted name with a quote": f'SELECT 1 AS "a""{BAIT}"',
    "a dollar quote": f"SELECT $${BAIT}$$",
    "a tagged dollar quote": f"SELECT $a$ $b$ {BAIT} $$ $a$",
    "a tag of other letters": f"SELECT $é${BAIT}$é$",
    "a line comment": f"SELECT 1 -- {BAIT}",
    "a line comment with a quote": f"SELECT 1 -- it's {BAIT}\n + 1",
    "a block comment": f"SELECT /* {BAIT} */ 1",
    "a nested block comment": f"SELECT /* a /* {BAIT} */ b ; */ 1",
    "a comment like a hint": f"SELECT /*+ {BAIT} */ 1",
    "a do block": f"DO $do$ BEGIN EXECUTE '{BAIT}'; PERFORM $x$;$x$; END $do$",
    "a function body": (
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC "
        "SELECT CASE WHEN true THEN 1 END; SELECT 2; END"
    ),
    "a rule's actions": "CREATE RULE r AS ON INSERT TO t DO ALSO (DELETE FROM a; DELETE FROM b)",
    "json operators": "SELECT a #>> '{x;y}', b -> 'c', d @> '{}'::jsonb, e # 1 FROM t",
    "positional letters": "SELECT a$b$c, $1 FROM t",
    "an emoji": f"SELECT '😀 {BAIT}' AS é",
    "a name that is the word": 'CREATE INDEX IF NOT EXISTS "CONCURRENTLY" ON t ("CONCURRENTLY")',
    "a view refreshed concurrently": "REFRESH MATERIALIZED VIEW CONCURRENTLY v",
    "a label that is the word": "SELECT 1 AS concurrently",
}


@pytest.mark.parametrize("sql", WHOLE.values(), ids=WHOLE)
def test_nothing_in_quotes_or_comments_is_touched(sql):
    (statement,) = split(f"{sql}\n;")
    assert statement.text == sql
    assert statement.without_concurrently() == statement
    assert not statement.builds_concurrently
    (file,) = render_migration([sql]).files
    assert sql in file.text
    assert file.statements[0].removesuffix(";").rstrip() == sql


@pytest.mark.parametrize("sql", WHOLE.values(), ids=WHOLE)
def test_the_next_statement_is_told_apart(sql):
    texts = [s.text for s in split(f"{sql}\n; DROP TABLE x;\n{sql}")]
    assert texts == [sql, "DROP TABLE x", sql]


@pytest.mark.parametrize("sql", WHOLE.values(), ids=WHOLE)
def test_the_server_reads_one_statement_too(connection, sql):
    # Preparing parses and runs nothing; two statements are a syntax error there.
    result = connection.pgconn.prepare(b"", sql.encode())
    state = result.error_field(DiagnosticField.SQLSTATE) or b""
    assert state != b"42601", result.error_message


@pytest.fixture(scope="module")
def connection(server):
    with psycopg.connect(server.dsn()) as conn:
        yield conn


EDITED = {
    "plain": (
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (x)",
        "CREATE INDEX IF NOT EXISTS i ON t (x)",
    ),
    "lower case": (
        "create unique index concurrently if not exists i on t (x)",
        "create unique index if not exists i on t (x)",
    ),
    "over lines": (
        "CREATE INDEX\n    CONCURRENTLY\n    IF NOT EXISTS i ON t (x)",
        "CREATE INDEX\n    IF NOT EXISTS i ON t (x)",
    ),
    "between comments": (
        "CREATE INDEX /* CONCURRENTLY */ CONCURRENTLY/* ; */IF NOT EXISTS i ON t (x)",
        "CREATE INDEX /* CONCURRENTLY */ /* ; */IF NOT EXISTS i ON t (x)",
    ),
    "the name is the word": (
        'CREATE INDEX CONCURRENTLY IF NOT EXISTS "CONCURRENTLY" ON "CREATE INDEX" (x)',
        'CREATE INDEX IF NOT EXISTS "CONCURRENTLY" ON "CREATE INDEX" (x)',
    ),
    "no name": ("CREATE INDEX CONCURRENTLY ON t (x)", "CREATE INDEX ON t (x)"),
    "a predicate that speaks of it": (
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (x) WHERE y = 'CONCURRENTLY '",
        "CREATE INDEX IF NOT EXISTS i ON t (x) WHERE y = 'CONCURRENTLY '",
    ),
    "a drop": ("DROP INDEX CONCURRENTLY IF EXISTS i", "DROP INDEX IF EXISTS i"),
    "a table": ("CREATE TABLE t (x int)", "CREATE TABLE IF NOT EXISTS t (x int)"),
    "an index": ('CREATE INDEX "a b" ON t (x)', 'CREATE INDEX IF NOT EXISTS "a b" ON t (x)'),
    "a column": ("ALTER TABLE t ADD x int", "ALTER TABLE t ADD IF NOT EXISTS x int"),
    "columns": (
        "ALTER TABLE t ADD COLUMN x int DEFAULT (1 + 1), ADD y numeric(1, 2), ADD CHECK (x > 0)",
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS x int DEFAULT (1 + 1), "
        "ADD IF NOT EXISTS y numeric(1, 2), ADD CHECK (x > 0)",
    ),
}


@pytest.mark.parametrize(("sql", "expected"), EDITED.values(), ids=EDITED)
def test_edits_stay_at_their_token(sql, expected):
    (file,) = render_migration([sql]).files
    assert file.statements[0] == f"{expected};"


def test_a_comment_at_the_end_does_not_swallow_the_semicolon():
    (file,) = render_migration(["SELECT 1 -- done", "SELECT 2; -- for now"]).files
    assert "SELECT 1 -- done\n;" in file.text
    assert "-- for now" in file.text


def test_a_list_of_one_string_of_statements_is_split():
    (file,) = render_migration(["SELECT 1; SELECT ';'; ; SELECT 3"]).files
    assert file.statements[:3] == ("SELECT 1;", "SELECT ';';", "SELECT 3;")


def test_an_empty_statement_still_has_its_version():
    # Releases 2.0.8 and 2.0.9 carry one.
    (file,) = render_migration(["SELECT 1", "\n    ", "-- nothing"]).files
    assert file.statements[-1].startswith(
        "INSERT INTO checkpoint_migrations (v) VALUES (0), (1), (2)"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "begin",
        "ROLLBACK TO a",
        "SAVEPOINT a",
        "VACUUM checkpoints",
        "REINDEX INDEX CONCURRENTLY i",
        "REINDEX (VERBOSE) TABLE CONCURRENTLY t",
        "ALTER TABLE t DETACH PARTITION p CONCURRENTLY",
        "ALTER SYSTEM SET x = 1",
        "SELECT 1; COMMIT",
        "SELECT 'a",
        "SELECT $x$ a",
        "SELECT E'a'\n'b\\';c'",
        "SELECT E'a'\n'b\\'; SELECT \\' c'",
    ],
)
def test_what_no_file_can_carry_is_refused(sql):
    with pytest.raises(UnsupportedStatementError, match=r"(?s)^statement 1: .*by hand") as refusal:
        render_migration(["SELECT 1", sql])
    assert refusal.value.version == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX CONCURRENTLY i ON t (x); SELECT 1",
        "CREATE INDEX CONCURRENTLY i ON t (x); CREATE INDEX CONCURRENTLY j ON t (x)",
        "DROP INDEX CONCURRENTLY i, j",
    ],
)
def test_a_concurrent_step_of_several_statements_is_refused_for_upgrades(sql):
    with pytest.raises(UnsupportedStatementError, match="statement 1"):
        render_migration(["SELECT 1", sql], from_version=0)


def test_the_output_is_the_same_each_time():
    for version in (None, 4, 9):
        one, two = (render_migration(from_version=version) for _ in range(2))
        assert one == two
        assert one.files == two.files
        assert one.alembic == two.alembic


def test_the_header_names_library_release_and_statements():
    (fresh,) = render_migration().files
    first = fresh.text.splitlines()[0]
    assert first.startswith("-- Checkpointer schema of langgraph-checkpoint-postgres ")
    assert first.endswith(": statements 0 to 9 (fresh schema).")
    given = render_migration(["SELECT 1"], source="mine 1.0\n; DROP TABLE x").files[0].text
    assert given.splitlines()[0] == (
        "-- Checkpointer schema of mine 1.0 ; DROP TABLE x: statement 0 (fresh schema)."
    )
    first, second = render_migration(from_version=4).files
    assert ": statement 5 (upgrade from version 4 to 9, file 1 of 2).\n" in first.text
    assert ": statements 6 to 9 (upgrade from version 4 to 9, file 2 of 2).\n" in second.text
    (only,) = render_migration(from_version=8).files
    assert ": statement 9 (upgrade from version 8 to 9).\n" in only.text
    revision = render_migration(from_version=4).alembic
    assert revision.splitlines()[0].endswith(": statements 5 to 9 (upgrade from version 4 to 9).")


def test_files_are_named_by_version_and_marked_by_how_to_run_them():
    assert [f.name for f in render_migration().files] == ["checkpointer_v9.sql"]
    inside, outside = render_migration(from_version=4).files
    assert inside.name == "checkpointer_v4_to_v9.sql"
    assert inside.in_transaction
    assert "CONCURRENTLY" not in inside.text
    assert outside.name == "checkpointer_v4_to_v9_outside_transaction.sql"
    assert not outside.in_transaction
    assert outside.text.startswith("-- no-transaction\n")
    assert [f.name for f in render_migration(from_version=8).files] == ["checkpointer_v8_to_v9.sql"]
    (only,) = render_migration(from_version=6).files
    assert not only.in_transaction
    assert render_migration(from_version=9).files == ()


@pytest.mark.parametrize("version", [-1, 10, 99])
def test_an_unknown_version_is_refused(version):
    with pytest.raises(ValueError, match="the list has versions 0 to 9"):
        render_migration(from_version=version)
