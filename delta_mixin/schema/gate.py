"""Open the checkpointer only on a schema that holds what the installed library relies on.

1. Behind means that a statement is missing: refuse, before the first write fails.
2. Ahead means that the application was rolled back: the older code still fits, so serve.
3. The version is read as `PostgresSaver.setup()` reads it, the highest row, but a missing row
   below it is a step that failed or was left out, which setup() would never notice: refuse.
4. The role needs USAGE on the schema and SELECT on the version table. Nothing is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_mixin.schema._library import VERSION_TABLE
from delta_mixin.schema._query import Reading, aread, read
from delta_mixin.schema.errors import (
    SchemaBehindError,
    SchemaGapError,
    SchemaMissingError,
    SchemaPrivilegeError,
    SchemaSearchPathError,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
    from delta_mixin.schema._query import AsyncConn, Conn

__all__ = ["SchemaVersion", "aopen_checkpointer", "open_checkpointer", "read_version"]

logger = logging.getLogger("delta_mixin.schema")

_SESSION = "SELECT current_user, current_database(), current_setting('search_path')"

# Every schema that has the table; to_regclass sees only those the role may use.
_TABLES = """
SELECT n.nspname,
       c.oid = to_regclass(%(table)s),
       has_schema_privilege(n.oid, 'USAGE'),
       has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(table)s AND c.relkind IN ('r', 'p', 'v')
AND n.nspname NOT LIKE 'pg\\_temp\\_%%'
ORDER BY n.nspname
"""

_VERSIONS = f"SELECT v FROM {VERSION_TABLE} ORDER BY v"


@dataclass(frozen=True)
class SchemaVersion:
    """What the version table of a connection says.

    Attributes:
        schema: The schema it is in.
        applied: All recorded versions, in ascending order.
    """

    schema: str
    applied: tuple[int, ...]

    def require(self, expected: int) -> None:
        """Raise unless statements 0 to `expected` are all recorded.

        Raises:
            SchemaBehindError: The highest row is below `expected`, or there is none.
            SchemaGapError: It is not, but another row is missing.
        """
        recorded = set(self.applied)
        missing = [version for version in range(expected + 1) if version not in recorded]
        if not missing:
            return
        highest = self.applied[-1] if self.applied else None
        if highest is None or highest < expected:
            raise SchemaBehindError(highest, expected, missing, self.schema)
        raise SchemaGapError(missing, highest, self.schema)


def open_checkpointer(
    conn: Conn, *, schema: str | None = None, serde: SerializerProtocol | None = None
) -> DeltaPostgresSaver:
    """Check the schema's version, then return a saver; `setup()` is not needed, nor called.

    Args:
        conn: A connection or pool, as `PostgresSaver` takes it.
        schema: The schema that must hold the checkpoint tables. Default: whichever the
            connection's search_path leads to. The path itself is not changed: a pooler would
            not keep it.
        serde: Handed on to the saver.

    Raises:
        SchemaMissingError: The database has no checkpoint tables.
        SchemaSearchPathError: It has, but this connection does not look there.
        SchemaPrivilegeError: The role may not read the version.
        SchemaBehindError: Statements of the installed library are missing.
        SchemaGapError: The newest is recorded, an older one is not.
    """
    from delta_mixin.adapters.postgres import DeltaPostgresSaver

    version = read(conn, reading_version(schema))
    _admit(version, DeltaPostgresSaver.MIGRATIONS)
    return DeltaPostgresSaver(conn, serde=serde)


async def aopen_checkpointer(
    conn: AsyncConn, *, schema: str | None = None, serde: SerializerProtocol | None = None
) -> AsyncDeltaPostgresSaver:
    """Async twin of `open_checkpointer`; call it in the loop that will use the saver."""
    from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver

    version = await aread(conn, reading_version(schema))
    _admit(version, AsyncDeltaPostgresSaver.MIGRATIONS)
    return AsyncDeltaPostgresSaver(conn, serde=serde)


def read_version(conn: Conn, *, schema: str | None = None) -> SchemaVersion:
    """Read the recorded versions; see `open_checkpointer` for arguments and errors."""
    return read(conn, reading_version(schema))


def reading_version(schema: str | None) -> Reading[SchemaVersion]:
    """Body of `read_version`."""
    ((role, database, search_path),) = yield _SESSION, {}
    tables = yield _TABLES, {"table": VERSION_TABLE}
    seen = next((name for name, visible, *_ in tables if visible), None)
    wanted = seen if schema is None else schema
    if wanted is not None and wanted == seen:
        readable = next(select for name, _, _, select in tables if name == seen)
        if not readable:
            raise SchemaPrivilegeError(role, wanted, f"SELECT on {VERSION_TABLE}")
        rows = yield _VERSIONS, {}
        return SchemaVersion(wanted, tuple(version for (version,) in rows))
    raise _not_seen(tables, role, database, search_path, schema, seen)


def _not_seen(
    tables: Sequence[tuple[Any, ...]],
    role: str,
    database: str,
    search_path: str,
    schema: str | None,
    seen: str | None,
) -> Exception:
    names = [name for name, *_ in tables]
    if not names or (schema is not None and schema not in names):
        return SchemaMissingError(database, search_path, schema)
    usable = [name for name, _, usage, _ in tables if usage]
    wanted = schema or (usable or names)[0]
    if wanted not in usable:
        return SchemaPrivilegeError(role, wanted, "USAGE")
    return SchemaSearchPathError(names, search_path, wanted, seen)


def _admit(version: SchemaVersion, statements: Sequence[str]) -> None:
    expected = len(statements) - 1
    version.require(expected)
    if version.applied and version.applied[-1] > expected:
        logger.warning(
            "checkpoint schema %r is at version %s, ahead of the installed library's %s: "
            "serving, as an older build fits a newer schema",
            version.schema,
            version.applied[-1],
            expected,
        )
