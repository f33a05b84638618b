"""One namespace of a thread as planning sees it: its rows, read further on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from delta_mixin.errors import RowsUnreadError
from delta_mixin.listing import Outline
from delta_mixin.model import CheckpointRow, Part, Planning, Reads


class NamespaceView:
    """The rows of one namespace by id, newest id last.

    Args:
        outline: What a listing tells of them.

    Attributes:
        parents: Parent by id, for every row.
        runs: Run by id, for the rows whose listing tells it.
        fleeting: Channels that a graph is known to keep for a moment only, so that no reader
            rebuilds them. Where counters or snapshots name one all the same, they count.
    """

    def __init__(self, outline: Outline) -> None:
        self._thread_id, self.checkpoint_ns = outline.thread_id, outline.checkpoint_ns
        self.parents = {i: outline.parents[i] for i in sorted(outline.parents)}
        self.runs: Mapping[str, str] = outline.runs
        self.fleeting: frozenset[str] = frozenset()
        # Rows that nothing has been read of are made when asked for; most never are.
        self._rows = {row.checkpoint_id: row for row in outline.rows}

    def __contains__(self, checkpoint_id: object) -> bool:
        return checkpoint_id in self.parents

    def __iter__(self) -> Iterator[CheckpointRow]:
        return map(self.__getitem__, self.parents)

    def __len__(self) -> int:
        return len(self.parents)

    def __getitem__(self, checkpoint_id: str) -> CheckpointRow:
        if (row := self._rows.get(checkpoint_id)) is not None:
            return row
        parent_id = self.parents[checkpoint_id]
        return CheckpointRow(self._thread_id, self.checkpoint_ns, checkpoint_id, parent_id)

    def get(self, checkpoint_id: str | None) -> CheckpointRow | None:
        """The row, or `None` if it is not stored."""
        return self[checkpoint_id] if checkpoint_id in self.parents else None

    @property
    def ids(self) -> list[str]:
        """All ids, oldest first by id."""
        return list(self.parents)

    @property
    def read(self) -> Collection[CheckpointRow]:
        """The rows that something has been read of."""
        return self._rows.values()

    @cached_property
    def children(self) -> Mapping[str, Sequence[str]]:
        """Ids of the rows that name a parent, by that parent."""
        children: dict[str, list[str]] = {}
        for row_id, parent in self.parents.items():
            if parent in children:
                children[parent].append(row_id)
            elif parent is not None:
                children[parent] = [row_id]
        return children

    @property
    def newest(self) -> CheckpointRow:
        """The row with the greatest id."""
        return self[next(reversed(self.parents))]

    def upwards(self, start: str) -> Iterator[str]:
        """The id and its stored ancestors, nearest first; a repeat ends it."""
        seen: set[str] = set()
        row = self.get(start)
        while row is not None and row.checkpoint_id not in seen:
            seen.add(row.checkpoint_id)
            yield row.checkpoint_id
            row = self.get(row.parent_id)

    def need(self, ids: Iterable[str], *parts: Part) -> Planning[None]:
        """Read the given parts of the given rows, as far as they are still unread.

        Raises:
            RowsUnreadError: If the backend answers a request without the part asked for.
        """
        reads: Reads = {
            row.key: frozenset(lacking)
            for row in map(self.__getitem__, ids)
            if (lacking := [p for p in parts if not row.has(p)])
        }
        if not reads:
            return
        for row in (yield reads):
            known = self.get(row.checkpoint_id)
            if known is not None and row.checkpoint_ns == self.checkpoint_ns:
                self._rows[row.checkpoint_id] = known.merged(row)
        for key, asked in reads.items():
            row = self[key.checkpoint_id]
            if unread := sorted(p for p in asked if not row.has(p)):
                raise RowsUnreadError(
                    f"_read_checkpoint_rows did not fill {', '.join(unread)} of checkpoint "
                    f"{key.checkpoint_id} in thread {row.thread_id!r}, namespace "
                    f"{key.checkpoint_ns!r}: the row is gone, or the hook reads too little"
                )
