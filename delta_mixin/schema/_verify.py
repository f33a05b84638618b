"""Catalog checks that stand between a concurrent index build and its version row."""

from __future__ import annotations

from delta_mixin.schema._sql import Name

__all__ = ["verified_build", "verified_drop"]


def verified_build(index: Name | None, table: Name, record: str) -> str:
    """A block that runs `record` only if the index on the table is there and valid.

    For an index without a name, the table must hold no invalid index.
    """
    on = f"i.indrelid = to_regclass({_text(table.source)})"
    if index is None:
        valid = f"NOT EXISTS (SELECT FROM pg_index i WHERE {on} AND NOT i.indisvalid)"
        found = f"an index of {table.source}"
    else:
        valid = (
            "EXISTS (\n"
            "        SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid\n"
            f"        WHERE {on}\n"
            f"        AND c.relname = {_text(index.parts[-1])} AND i.indisvalid\n"
            "    )"
        )
        found = f"index {index.source} on {table.source}"
    return _block(
        valid,
        record,
        f"{found} is missing or invalid, so its version is not recorded",
        "DROP INDEX CONCURRENTLY the invalid index, then run this file again.",
    )


def verified_drop(index: Name, record: str) -> str:
    """A block that runs `record` only if the index is gone."""
    return _block(
        f"to_regclass({_text(index.source)}) IS NULL",
        record,
        f"index {index.source} is still there, so its version is not recorded",
        "Run this file again.",
    )


def _block(condition: str, record: str, message: str, hint: str) -> str:
    body = (
        "BEGIN\n"
        f"    IF {condition} THEN\n"
        f"        {record}\n"
        "    ELSE\n"
        f"        RAISE EXCEPTION USING MESSAGE = {_text(message)},\n"
        f"            HINT = {_text(hint)};\n"
        "    END IF;\n"
        "END"
    )
    tag = "verify"
    while f"${tag}$" in body:  # a name may hold anything
        tag += "_"
    return f"DO ${tag}$\n{body}\n${tag}$;"


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    # Read the same whatever standard_conforming_strings says.
    return f"E'{quoted}'".replace("\\", "\\\\") if "\\" in quoted else f"'{quoted}'"
