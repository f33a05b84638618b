"""What a squash costs and saves on Postgres, as `bench_squash` measures it on SQLite."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from typing import Any

from bench_postgres import TABLES, Bench, served_bench, threads
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

from delta_mixin.adapters.postgres import DeltaPostgresSaver


def postgres_bytes(bench: Bench) -> tuple[int, int]:
    """Checkpoints of the thread, and the bytes of its rows in all tables."""
    sizes = [
        bench.conn.execute(
            f"SELECT count(*), coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t "
            "WHERE thread_id = 't'"
        ).fetchone()
        for table in TABLES
    ]
    return sizes[0][0], int(sum(size for _, size in sizes))


def write_postgres(bench: Bench, frequency: int) -> None:
    def fill(conn: Any) -> None:
        threads.write_threads(conn, ["t"], ROWS, snapshot_every=frequency, size=500)
        threads.write_threads(conn, [f"other{n}" for n in range(50)], 100)

    bench.write(fill)


def sizes_on_postgres(report: Report, bench: Bench) -> None:
    report.title(f"Postgres, what is left of {ROWS:,} checkpoints")
    for frequency in FREQUENCIES:
        write_postgres(bench, frequency)
        for name, clean in MODES.items():
            bench.time(clean)
            rows, size = postgres_bytes(bench)
            tell_size(f"snapshot every {frequency:,}, {name}", rows, size)


def times_on_postgres(report: Report, bench: Bench, rounds: int) -> None:
    write_postgres(bench, 100)
    rows = bench.remember_dead(squash)
    report.title(f"Postgres, squash: {ROWS:,} checkpoints, snapshot every 100, {rows:,} rows")
    measured(
        report,
        rounds,
        {
            "raw DELETE of the same rows": lambda: bench.time(bench.raw_delete),
            "squash": lambda: bench.time(squash),
            "keep_history": lambda: bench.time(keep_history),
        },
    )

    def reading(clean: Any) -> Callable[[], float]:
        def timed() -> float:
            bench.time(clean)
            gc.collect()
            with DeltaPostgresSaver.from_conn_string(bench.dsn) as saver:
                return read_head(saver)

        return timed

    compare_reads(report, rounds, reading)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each variant runs")
    rounds = parser.parse_args().rounds
    report = Report()
    with served_bench(rounds) as bench:
        sizes_on_postgres(report, bench)
        times_on_postgres(report, bench, rounds)
    return report.verdict()


if __name__ == "__main__":
    sys.exit(main())
