"""Compare a live schema with what the installed library expects; nothing is changed.

Version rows say what somebody recorded, the catalog says what is there. Both are looked at:
rows over an incomplete schema, or over an invalid index, pass every version check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_mixin.schema._library import installed_statements
from delta_mixin.schema._query import Reading, aread, read
from delta_mixin.schema.errors import SchemaNotReadyError
from delta_mixin.schema.expected import expected_shape, normalized
from delta_mixin.schema.gate import reading_version
from delta_mixin.schema.shape import (
    Difference,
    Shape,
    compare_shapes,
    reading_schema,
    reading_shape,
)

if TYPE_CHECKING:
    from delta_mixin.schema._query import AsyncConn, Conn

__all__ = ["SchemaCheck", "acheck_schema", "check_schema"]


@dataclass(frozen=True)
class SchemaCheck:
    """What `check_schema` found.

    Attributes:
        schema: The schema that was looked at.
        problems: Sentences; the application must not run before they are dealt with.
        notes: Sentences about what is unusual and does no harm.
    """

    schema: str
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing needs to be done."""
        return not self.problems

    def __str__(self) -> str:
        state = "as expected" if self.ok else f"{len(self.problems)} problem(s)"
        lines = [f"checkpoint schema {self.schema!r}: {state}"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def check_schema(
    conn: Conn, *, schema: str | None = None, statements: Sequence[str] | None = None
) -> SchemaCheck:
    """Compare version rows, tables, columns, keys and indexes with what the library expects.

    Needs the right to read the version table, and no DDL.

    Args:
        conn: A connection or pool.
        schema: The schema. Default: the one the connection's search_path leads to.
        statements: The migration list. Default: the installed `PostgresSaver.MIGRATIONS`.

    Raises:
        UnsupportedStatementError: A statement's effect cannot be told without running it.
            Compare `schema_shape` with that of a scratch schema instead.
    """
    return read(conn, _checking(schema, statements))


async def acheck_schema(
    conn: AsyncConn, *, schema: str | None = None, statements: Sequence[str] | None = None
) -> SchemaCheck:
    """Async twin of `check_schema`."""
    return await aread(conn, _checking(schema, statements))


def _checking(schema: str | None, statements: Sequence[str] | None) -> Reading[SchemaCheck]:
    listed = installed_statements() if statements is None else statements
    expected = expected_shape(listed)
    problems: list[str] = []
    notes: list[str] = []
    last = len(listed) - 1
    try:
        version = yield from reading_version(schema)
        version.require(last)
        if version.applied and version.applied[-1] > last:
            notes.append(
                f"it is at version {version.applied[-1]}, ahead of the {last} that is expected"
            )
    except SchemaNotReadyError as refusal:
        problems.append(str(refusal))
    where = yield from reading_schema(schema)
    found = yield from reading_shape(where, list(expected.tables))
    for difference in compare_shapes(expected, normalized(found)):
        (problems if _breaks(difference, found) else notes).append(difference.text)
    return SchemaCheck(where, tuple(problems), tuple(notes))


def _breaks(difference: Difference, found: Shape) -> bool:
    """Whether the library's own statements can fail or slow down over it."""
    if difference.kind != "unexpected":
        return True
    table = found.tables[difference.table]
    if difference.what == "column":
        column = table.columns[difference.name]
        return not column.nullable and column.default is None
    return table.indexes[difference.name].definition.startswith("CREATE UNIQUE")
