"""For the tests of an application that owns its schema; needs no test framework.

This is the one place that calls `setup()`, in a scratch schema that is dropped again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from delta_mixin.schema._library import LIBRARY, installed_version
from delta_mixin.schema._sql import split
from delta_mixin.schema.shape import Shape, compare_shapes, schema_shape

if TYPE_CHECKING:
    from psycopg import Connection

    Migrate: TypeAlias = Callable[[Connection[Any]], object]

__all__ = ["assert_migrations_match_setup"]


def assert_migrations_match_setup(
    conn: Connection[Any], migrations: Sequence[str | Path] | Migrate
) -> None:
    """Compare the schema of committed migrations with the one that `setup()` makes.

    Both are built in scratch schemas on the given connection. Then one index (without any, one
    column) of the migrated schema is dropped, and the comparison has to notice: a comparison
    that cannot fail proves nothing.

    Args:
        conn: An autocommit connection to a test database, with the right to create schemas.
        migrations: The committed SQL in order, as texts or paths; or a callable that
            migrates on the connection, whose search_path is the scratch schema.

    Raises:
        AssertionError: The schemas differ, or the planted fault goes unnoticed.
        ValueError: The connection is not in autocommit mode.
    """
    from langgraph.checkpoint.postgres import PostgresSaver

    if not conn.autocommit:
        raise ValueError("concurrent index builds need a connection with autocommit=True")
    with _scratch_schema(conn) as schema:
        PostgresSaver(conn).setup()
        expected = schema_shape(conn, schema=schema)
    with _scratch_schema(conn) as schema:
        if callable(migrations):
            migrations(conn)
        else:
            _run(conn, migrations)
        found = schema_shape(conn, schema=schema)
        if differences := compare_shapes(expected, found):
            lines = "\n".join(f"  {difference}" for difference in differences)
            raise AssertionError(
                f"the migrations do not end in the schema of {LIBRARY} {installed_version()}:\n"
                f"{lines}\nRender what is missing: python -m delta_mixin schema render"
            )
        fault = _plant_fault(conn, found)
        if not compare_shapes(expected, schema_shape(conn, schema=schema)):
            raise AssertionError(f"planted fault not noticed: {fault}")


@contextmanager
def _scratch_schema(conn: Connection[Any]) -> Iterator[str]:
    from psycopg.sql import SQL, Identifier

    name = f"scratch_{uuid4().hex}"
    before = _search_path(conn)
    conn.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
    try:
        conn.execute(SQL("SET search_path = {}").format(Identifier(name)))
        yield name
    finally:
        conn.execute("SELECT set_config('search_path', %s, false)", [before])
        conn.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(name)))


def _search_path(conn: Connection[Any]) -> str:
    from psycopg.rows import scalar_row

    with conn.cursor(row_factory=scalar_row) as cursor:
        cursor.execute("SELECT current_setting('search_path')")
        return str(cursor.fetchone())


def _run(conn: Connection[Any], migrations: Sequence[str | Path]) -> None:
    for migration in migrations:
        text = migration.read_text() if isinstance(migration, Path) else migration
        # One at a time, as a file that is marked to run outside a transaction needs it.
        for statement in split(text):
            if not statement.is_comment:
                conn.execute(statement.terminated.encode())


def _plant_fault(conn: Connection[Any], shape: Shape) -> str:
    from psycopg.sql import SQL, Identifier

    indexes = [name for table in shape.tables.values() for name in table.indexes]
    if indexes:
        conn.execute(SQL("DROP INDEX {}").format(Identifier(indexes[0])))
        return f"index {indexes[0]} dropped"
    table, columns = next((n, t.columns) for n, t in shape.tables.items())
    column = next(iter(columns))
    statement = SQL("ALTER TABLE {} DROP COLUMN {} CASCADE")
    conn.execute(statement.format(Identifier(table), Identifier(column)))
    return f"column {table}.{column} dropped"
