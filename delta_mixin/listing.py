"""Listings: the rows of threads, told so leanly that a long thread costs little to list.

A hook that lists rows may return any iterable of `CheckpointRow`. A `Listing` is one that keeps
ids and parents as they are until a row is asked for: most rows of a cleanup never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from delta_mixin.model import CheckpointRow

__all__ = ["Listing", "Outline"]


class Outline(NamedTuple):
    """What a listing tells of one namespace of a thread.

    Attributes:
        thread_id: The thread, spelt as `str`.
        checkpoint_ns: The namespace.
        parents: Id of the parent, or `None`, by the id of each row.
        rows: Rows of these that have been read further.
        runs: Metadata `run_id` by id, for rows whose metadata need not be read to know it: it is
            a string there, and the row no base row (see `is_base_row`).
    """

    thread_id: str
    checkpoint_ns: str
    parents: Mapping[str, str | None]
    rows: Sequence[CheckpointRow] = ()
    runs: Mapping[str, str] = {}


class Listing:
    """Rows by namespace; iterates as `CheckpointRow`.

    Args:
        outlines: One per thread and namespace.
    """

    def __init__(self, outlines: Iterable[Outline]) -> None:
        self.outlines = tuple(outlines)

    @classmethod
    def of(cls, rows: Iterable[CheckpointRow]) -> Listing:
        """These rows as a listing, or the listing that they are; of duplicates the first counts."""
        if isinstance(rows, Listing):
            return rows
        grouped: dict[tuple[str, str], dict[str, CheckpointRow]] = {}
        for row in rows:
            of = grouped.setdefault((row.thread_id, row.checkpoint_ns), {})
            of.setdefault(row.checkpoint_id, row)
        return cls(
            Outline(t, ns, {i: r.parent_id for i, r in of.items()}, tuple(of.values()))
            for (t, ns), of in grouped.items()
        )

    def __iter__(self) -> Iterator[CheckpointRow]:
        for thread_id, ns, parents, rows, _ in self.outlines:
            read = {row.checkpoint_id: row for row in rows}
            for i, parent in parents.items():
                yield read.get(i) or CheckpointRow(thread_id, ns, i, parent)
