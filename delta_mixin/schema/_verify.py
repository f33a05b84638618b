"""Version rows that are written only once the catalog bears their statement out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delta_mixin.schema._library import VERSION_TABLE
from delta_mixin.schema._sql import Name

__all__ = ["Condition", "index_is_gone", "index_is_valid", "record", "record_after"]

Condition = tuple[str, str, str]
"""An expression, the message if it is false, and what to do about it."""


def record(versions: Iterable[int]) -> str:
    """The version rows, whatever is there already."""
    rows = ", ".join(f"({version})" for version in versions)
    return f"INSERT INTO {VERSION_TABLE} (v) VALUES {rows} ON CONFLICT DO NOTHING;"


def record_after(versions: Sequence[int], *conditions: Condition) -> str:
    """The version rows, if the one before them is there and the conditions hold; else an error.

    A runner may go on after a failed statement. Then nothing above it may be recorded.
    """
    before = versions[0] - 1
    previous = (
        f"EXISTS (SELECT FROM {VERSION_TABLE} WHERE v = {before})",
        f"version {before} is not recorded as applied",
        f"Apply what leads up to version {before} first.",
    )
    lines = []
    for expression, message, hint in (previous, *conditions):
        lines += [
            f"    IF NOT {expression} THEN",
            f"        RAISE EXCEPTION USING MESSAGE = {_text(message)},",
            f"            HINT = {_text(hint)};",
            "    END IF;",
        ]
    body = "\n".join(["BEGIN", *lines, f"    {record(versions)}", "END"])
    tag = "verify"
    while f"${tag}$" in body:  # a name may hold anything
        tag += "_"
    return f"DO ${tag}$\n{body}\n${tag}$;"


def index_is_valid(index: Name | None, table: Name) -> Condition:
    """The index on the table is there and valid; without a name, the table has no invalid one."""
    on = f"i.indrelid = to_regclass({_text(table.source)})"
    hint = "DROP INDEX CONCURRENTLY the invalid index, then run this again."
    if index is None:
        expression = (
            f"(to_regclass({_text(table.source)}) IS NOT NULL AND\n"
            f"        NOT EXISTS (SELECT FROM pg_index i WHERE {on} AND NOT i.indisvalid))"
        )
        return expression, f"an index on {table.source} is invalid", hint
    expression = (
        "EXISTS (\n"
        "        SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid\n"
        f"        WHERE {on}\n"
        f"        AND c.relname = {_text(index.parts[-1])} AND i.indisvalid\n"
        "    )"
    )
    return expression, f"index {index.source} on {table.source} is missing or invalid", hint


def index_is_gone(index: Name) -> Condition:
    """The index does not exist."""
    return (
        f"(to_regclass({_text(index.source)}) IS NULL)",
        f"index {index.source} is still there",
        "Run this again.",
    )


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    # Read the same whatever standard_conforming_strings says.
    return f"E'{quoted}'".replace("\\", "\\\\") if "\\" in quoted else f"'{quoted}'"
