"""The shape of checkpoint tables: what a row must look like, and what finds it.

Columns (type, nullability, default), primary keys, and indexes with their definition and
validity; not the columns' order, comments, owners or privileges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delta_mixin.schema._library import VERSION_TABLE, installed_statements
from delta_mixin.schema._query import Reading, aread, read
from delta_mixin.schema._sql import created_tables

if TYPE_CHECKING:
    from delta_mixin.schema._query import AsyncConn, Conn

__all__ = [
    "Column",
    "Difference",
    "Index",
    "Shape",
    "Table",
    "aschema_shape",
    "compare_shapes",
    "schema_shape",
]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        type: As the server writes it.
        nullable: Whether it may be null.
        default: The expression, if there is one; a generated column's expression too, and
            `identity` for an identity column.
    """

    type: str
    nullable: bool = True
    default: str | None = None


@dataclass(frozen=True)
class Index:
    """One index that is not the primary key's.

    Attributes:
        definition: Its `CREATE INDEX` without the name of the schema.
        valid: Whether queries use it; a failed concurrent build leaves an index that is not.
    """

    definition: str
    valid: bool = True


@dataclass(frozen=True)
class Table:
    """One table, columns and indexes by name."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    indexes: Mapping[str, Index] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """The tables that exist, by name."""

    tables: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """One way in which a schema is not as expected.

    Attributes:
        kind: `"missing"`, `"unexpected"`, `"changed"` or `"invalid"`.
        what: `"table"`, `"column"`, `"primary key"` or `"index"`.
        table: The table.
        name: The column or index; the table otherwise.
        text: The difference as a sentence.
    """

    kind: str
    what: str
    table: str
    name: str
    text: str

    def __str__(self) -> str:
        return self.text


def schema_shape(
    conn: Conn, *, schema: str | None = None, tables: Sequence[str] | None = None
) -> Shape:
    """Read the shape of the checkpoint tables; any role may.

    Args:
        conn: A connection or pool.
        schema: The schema. Default: the one whose version table the connection sees, else the
            first of its search_path.
        tables: Names of the tables. Default: those that the installed library creates.
    """
    return read(conn, reading_shape(schema, tables))


async def aschema_shape(
    conn: AsyncConn, *, schema: str | None = None, tables: Sequence[str] | None = None
) -> Shape:
    """Async twin of `schema_shape`."""
    return await aread(conn, reading_shape(schema, tables))


_SCHEMA = """
SELECT coalesce(
    (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = to_regclass(%(table)s)),
    current_schema()
)
"""

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       CASE WHEN a.attidentity <> '' THEN 'identity' ELSE pg_get_expr(d.adbin, d.adrelid) END
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(tables)s) AND c.relkind IN ('r', 'p')
ORDER BY c.relname, a.attnum
"""

_INDEXES = """
SELECT t.relname, i.relname, x.indisprimary, x.indisvalid AND x.indisready,
       replace(
           pg_get_indexdef(i.oid),
           format(' %%I.%%I USING ', n.nspname, t.relname),
           format(' %%I USING ', t.relname)
       ),
       ARRAY(
           SELECT pg_get_indexdef(i.oid, k, true) FROM generate_series(1, x.indnkeyatts) AS k
           ORDER BY k
       )
FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_class t ON t.oid = x.indrelid
JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = %(schema)s AND t.relname = ANY(%(tables)s)
ORDER BY t.relname, i.relname
"""


def reading_schema(schema: str | None) -> Reading[str]:
    """The given schema, or the one this connection's checkpoint tables are in."""
    if schema is not None:
        return schema
    ((found,),) = yield _SCHEMA, {"table": VERSION_TABLE}
    return found or "public"


def reading_shape(schema: str | None, tables: Sequence[str] | None) -> Reading[Shape]:
    """Body of `schema_shape`."""
    names = created_tables(installed_statements()) if tables is None else tables
    where = {"schema": (yield from reading_schema(schema)), "tables": list(names)}
    columns: dict[str, dict[str, Column]] = {}
    for table, name, type_, nullable, default in (yield _COLUMNS, where):
        found = columns.setdefault(table, {})
        if name is not None:
            found[name] = Column(type_, nullable, default)
    keys: dict[str, tuple[str, ...]] = {}
    indexes: dict[str, dict[str, Index]] = {table: {} for table in columns}
    for table, name, primary, valid, definition, parts in (yield _INDEXES, where):
        if primary:
            keys[table] = tuple(parts)
        else:
            indexes[table][name] = Index(definition, valid)
    return Shape({t: Table(columns[t], keys.get(t, ()), indexes[t]) for t in columns})


def compare_shapes(expected: Shape, found: Shape) -> tuple[Difference, ...]:
    """What is missing, unexpected, changed or invalid in `found`; empty if nothing is."""
    return tuple(_differences(expected, found))


def _differences(expected: Shape, found: Shape) -> Iterator[Difference]:
    for name in sorted({*expected.tables, *found.tables}):
        wanted, there = expected.tables.get(name), found.tables.get(name)
        if there is None:
            yield Difference("missing", "table", name, name, f"table {name} is missing")
        elif wanted is None:
            yield Difference("unexpected", "table", name, name, f"table {name} is unexpected")
        else:
            yield from _columns(name, wanted, there)
            yield from _primary_key(name, wanted, there)
            yield from _indexes(name, wanted, there)


def _columns(table: str, wanted: Table, there: Table) -> Iterator[Difference]:
    for name in sorted({*wanted.columns, *there.columns}):
        want, have = wanted.columns.get(name), there.columns.get(name)
        what = f"column {table}.{name}"
        if have is None:
            yield Difference("missing", "column", table, name, f"{what} is missing")
        elif want is None:
            yield Difference("unexpected", "column", table, name, f"{what} is unexpected")
        elif want != have:
            text = f"{what} is {_column(have)}, expected {_column(want)}"
            yield Difference("changed", "column", table, name, text)


def _column(column: Column) -> str:
    null = "" if column.nullable else " NOT NULL"
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{column.type}{null}{default}"


def _primary_key(table: str, wanted: Table, there: Table) -> Iterator[Difference]:
    if wanted.primary_key != there.primary_key:
        want, have = (", ".join(t.primary_key) or "none" for t in (wanted, there))
        text = f"primary key of {table} is ({have}), expected ({want})"
        yield Difference("changed", "primary key", table, table, text)


def _indexes(table: str, wanted: Table, there: Table) -> Iterator[Difference]:
    for name in sorted({*wanted.indexes, *there.indexes}):
        want, have = wanted.indexes.get(name), there.indexes.get(name)
        what = f"index {name} on {table}"
        if have is None:
            yield Difference("missing", "index", table, name, f"{what} is missing")
            continue
        if not have.valid:
            text = (
                f"{what} is invalid, as a failed concurrent build leaves it: "
                "DROP INDEX CONCURRENTLY it, then build it again"
            )
            yield Difference("invalid", "index", table, name, text)
        if want is None:
            text = f"{what} is unexpected: {have.definition}"
            yield Difference("unexpected", "index", table, name, text)
        elif want.definition != have.definition:
            text = f"{what} is {have.definition}, expected {want.definition}"
            yield Difference("changed", "index", table, name, text)
