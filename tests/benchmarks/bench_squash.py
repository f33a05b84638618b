"""What a squash costs and saves on SQLite, beside `keep_history` and raw deletes.

Rows and bytes are what a thread of 2,000 checkpoints is left with, its head as far from its last
snapshot as it can be. Reading the head means what a graph reads to rebuild its delta channel. Exits
non-zero if a bound is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import Prepared, on, raw_delete
from runner import Report
from squashes import (
    FREQUENCIES,
    MODES,
    ROWS,
    compare_reads,
    keep_history,
    measured,
    read_head,
    squash,
    tell_size,
)

from delta_mixin.adapters.sqlite import DeltaSqliteSaver


def sqlite_bytes(saver: Any) -> tuple[int, int]:
    """Rows of both tables, and the bytes in them."""
    found = [
        saver.conn.execute(f"SELECT count(*), coalesce(sum({bytes_}), 0) FROM {table}").fetchone()
        for table, bytes_ in (
            ("checkpoints", "length(checkpoint) + length(metadata)"),
            ("writes", "length(value)"),
        )
    ]
    return found[0][0], sum(size for _, size in found)


def sizes_on_sqlite(report: Report, folder: Path, inline: int) -> None:
    report.title(f"SQLite, what is left of {ROWS:,} checkpoints with {inline / 1000:.0f} kB each")
    for frequency in FREQUENCIES:
        prepared = Prepared.write(folder, ROWS - 1, inline, frequency)
        for name, clean in MODES.items():
            found: list[tuple[int, int]] = []

            def run(saver: Any, clean: Any = clean, found: Any = found) -> None:
                clean(saver)
                found.append(sqlite_bytes(saver))

            prepared.time(run)
            rows, size = found[0]
            tell_size(f"snapshot every {frequency:,}, {name}", rows, size)


def times_on_sqlite(report: Report, folder: Path, rounds: int) -> None:
    prepared = Prepared.write(folder, ROWS - 1, 20_000, 100)
    with DeltaSqliteSaver.from_conn_string(str(prepared.path)) as saver:
        (plan,) = saver.plan_prune(["t"], delta="squash")
    doomed = [key.checkpoint_id for key in plan.doomed]
    report.title(f"SQLite, squash: {prepared.rows:,} checkpoints with 20 kB each, snapshot 100")
    variants = {
        "raw DELETE of the same rows by id": raw_delete(doomed),
        "squash": squash,
        "keep_history": keep_history,
    }
    measured(report, rounds, on(prepared, variants))

    def reading(clean: Any) -> Callable[[], float]:
        def timed() -> float:
            found: list[float] = []

            def run(saver: Any) -> None:
                clean(saver)
                found.append(read_head(saver))

            prepared.time(run)
            return found[0]

        return timed

    compare_reads(report, rounds, reading)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="how often each variant runs")
    rounds = parser.parse_args().rounds
    report = Report()
    print(f"median of {rounds} rounds (fastest - slowest)")
    with tempfile.TemporaryDirectory() as name:
        sizes_on_sqlite(report, Path(name), 1_000)
        sizes_on_sqlite(report, Path(name), 20_000)
        times_on_sqlite(report, Path(name), rounds)
    return report.verdict()


if __name__ == "__main__":
    sys.exit(main())
