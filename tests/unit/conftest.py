"""Threads as plain rows, and a stand-in for the backend that counts what it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from delta_mixin import CheckpointRow, KnownChannels
from delta_mixin.channels import COUNTERS
from delta_mixin.planner import group_rows


def _row(
    checkpoint_id: str,
    parent_id: str | None = None,
    ns: str = "",
    *,
    source: str = "loop",
    counters: Mapping[str, Any] | None = None,
    versions: Iterable[str] = ("m",),
    populated: Iterable[str] = (),
    snapshots: Iterable[str] = (),
    writes: Iterable[str] = (),
    v: int = 4,
    **metadata: Any,
) -> CheckpointRow:
    if counters:
        metadata[COUNTERS] = counters
    return CheckpointRow(
        "t",
        ns,
        checkpoint_id,
        parent_id,
        metadata={"source": source, **metadata},
        v=v,
        channel_versions=dict.fromkeys(versions, "1"),
        populated=frozenset(populated) | frozenset(snapshots),
        snapshots=frozenset(snapshots),
        write_channels=frozenset(writes),
    )


class Backend:
    """Answers a planner's reads from full rows, lean or full at first, and counts them."""

    def __init__(self, rows: Iterable[CheckpointRow], *, lean: bool) -> None:
        self.rows = {row.key: row for row in rows}
        self.lean = lean
        self.reads: Counter[str] = Counter()

    def views(self) -> Any:
        rows = self.rows.values()
        if self.lean:
            rows = [
                CheckpointRow(r.thread_id, r.checkpoint_ns, r.checkpoint_id, r.parent_id)
                for r in rows
            ]
        return group_rows(rows)

    def run(self, planning: Any) -> Any:
        answer: Any = None
        while True:
            try:
                asked = planning.send(answer)
            except StopIteration as done:
                return done.value
            if isinstance(asked, KnownChannels):
                answer = self.beyond(asked)
            else:
                answer = [self._read(key, parts) for key, parts in asked.items()]

    def beyond(self, known: KnownChannels) -> list[str]:
        self.reads["beyond"] += 1
        return [
            row.checkpoint_id
            for row in self.rows.values()
            if row.checkpoint_ns == known.checkpoint_ns
            and (
                not row.channel_versions
                or set(row.channel_versions) - known.channels - known.unless_counted
                or known.unless_counted & row.metadata.get(COUNTERS, {}).keys()
            )
        ]

    def _read(self, key: Any, parts: Iterable[str]) -> CheckpointRow:
        full, blank = self.rows[key], CheckpointRow("t", *key)
        fields = {
            "metadata": ("metadata",),
            "checkpoint": ("v", "channel_versions", "populated", "snapshots", "nones"),
            "writes": ("write_channels",),
        }
        self.reads.update(parts)
        names = [name for part in parts for name in fields[part]]
        return blank._replace(**{name: getattr(full, name) for name in names})


@pytest.fixture
def row() -> Callable[..., CheckpointRow]:
    return _row


@pytest.fixture
def chain() -> Callable[..., list[CheckpointRow]]:
    """`chain(n, every)`: a linear thread whose channel `m` is written at every row and
    snapshot at every `every`-th; ids are `000`, `001`, ..."""

    def build(n: int, every: int, ns: str = "") -> list[CheckpointRow]:
        rows = []
        for i in range(n):
            since = i % every
            rows.append(
                _row(
                    f"{i:03}",
                    f"{i - 1:03}" if i else None,
                    ns,
                    counters={"m": [since, since]} if since else None,
                    snapshots=() if since else ("m",),
                    writes=("m",),
                    run_id=f"r{i // 10}",
                )
            )
        return rows

    return build


@pytest.fixture(params=["lean", "full"])
def backend(request: pytest.FixtureRequest) -> Callable[..., Backend]:
    """Makes a backend over rows, listing them lean or full."""
    return lambda rows: Backend(rows, lean=request.param == "lean")


@pytest.fixture
def lean() -> Callable[..., Backend]:
    return lambda rows: Backend(rows, lean=True)
