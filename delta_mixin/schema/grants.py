"""The rights of the role that the application runs as: rows, and nothing of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delta_mixin.schema._library import VERSION_TABLE, installed_statements
from delta_mixin.schema._sql import created_tables

if TYPE_CHECKING:
    from psycopg.sql import Composed

__all__ = ["runtime_grants"]

_LONGEST_NAME = 63


def runtime_grants(
    role: str, *, schema: str = "public", statements: Sequence[str] | None = None
) -> tuple[Composed, ...]:
    """Statements for the schema owner that leave a role what serving takes.

    The role may use the schema, read and write rows of the checkpoint tables, and read the
    version table. What it had beyond that on them is revoked, as is the right of everybody to
    create in the schema, which PostgreSQL before 15 gives on `public`. Rights that come
    from being owner, superuser or member of another role cannot be revoked here.

    Args:
        role: An existing role, spelled as the server stores it.
        schema: The schema of the checkpoint tables.
        statements: The migration list. Default: the installed `PostgresSaver.MIGRATIONS`.

    Returns:
        Statements to run in order, in one transaction; `as_string()` gives the text.

    Raises:
        ValueError: The name cannot be that of one role or schema.
    """
    from psycopg.sql import SQL, Identifier

    _one_name(role, "role")
    _one_name(schema, "schema")
    if role in ("public", "none"):
        # PUBLIC stays the keyword for everybody even in quotes.
        raise ValueError(f"role {role!r} is not a role of its own; name the application's role")
    tables = created_tables(installed_statements() if statements is None else statements)
    rows = [Identifier(schema, table) for table in tables if table != VERSION_TABLE]
    names = {
        "role": Identifier(role),
        "schema": Identifier(schema),
        "version": Identifier(schema, VERSION_TABLE),
        "rows": SQL(", ").join(rows),
        "all": SQL(", ").join(Identifier(schema, table) for table in tables),
    }
    return tuple(
        SQL(text).format(**names)
        for text in (
            "REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC",
            "REVOKE CREATE ON SCHEMA {schema} FROM {role}",
            "REVOKE ALL ON TABLE {all} FROM PUBLIC",
            "REVOKE ALL ON TABLE {all} FROM {role}",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {rows} TO {role}",
            "GRANT SELECT ON TABLE {version} TO {role}",
        )
    )


def _one_name(name: str, what: str) -> None:
    if not name or "\0" in name:
        raise ValueError(f"{what} name {name!r} is empty or holds a NUL character")
    if len(name.encode()) > _LONGEST_NAME:
        # The server would cut it, and might find another role by what is left.
        raise ValueError(f"{what} name {name!r} is longer than {_LONGEST_NAME} bytes")
