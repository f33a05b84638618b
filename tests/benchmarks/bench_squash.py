"""What a squash costs and saves, beside `keep_history` and raw deletes, on SQLite and Postgres.

Rows and bytes are what a thread of 2,000 checkpoints is left with, its head as far from its last
snapshot as it can be. Reading the head means what a graph reads to rebuild its delta channel. Exits
non-zero if a bound is broken.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import CONFIG, Prepared, on, raw_delete
from bench_postgres import DURABLE, TABLES, Bench, servers, threads
from runner import Report, take_turns

from delta_mixin.adapters.postgres import DeltaPostgresSaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver

ROWS = 2_000
FREQUENCIES = (10, 100, 1_000)
READS = 20


def keep_history(saver: Any) -> None:
    saver.prune(["t"])


def squash(saver: Any) -> None:
    saver.prune(["t"], delta="squash")


MODES = {"as written": lambda saver: None, "keep_history": keep_history, "squash": squash}


def read_head(saver: Any) -> float:
    """Seconds that a graph's reader takes, of the fastest of some reads."""
    taken = []
    for _ in range(READS):
        start = time.perf_counter()
        saved = saver.get_tuple(CONFIG)
        saver.get_delta_channel_history(config=saved.config, channels=["log"])
        taken.append(time.perf_counter() - start)
    return min(taken)


def measured(report: Report, rounds: int, timed: dict[str, Callable[[], float]]) -> None:
    seconds = take_turns(rounds, timed)
    report.times(seconds)
    raw, ours, kept = seconds.values()
    report.ratio("squash / raw DELETE", ours, raw, 2.5)
    report.ratio("keep_history / raw DELETE", kept, raw)


# -- SQLite ----------------------------------------------------------------------------------


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
            told = f"snapshot every {frequency:,}, {name}"
            print(f"  {told:44}{rows:9,} checkpoints {size / 1000:12,.1f} kB")


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


def compare_reads(report: Report, rounds: int, reading: Callable[[Any], Any]) -> None:
    seconds = take_turns(
        rounds,
        {f"reading the head, {name}": reading(clean) for name, clean in MODES.items()},
    )
    report.times(seconds)
    before, _, after = seconds.values()
    report.ratio("reading the head: squash / as written", after, before, 1)


# -- Postgres --------------------------------------------------------------------------------


def postgres_bytes(bench: Bench) -> tuple[int, int]:
    """Checkpoints, and the bytes of the rows of all tables."""
    sizes = [
        bench.conn.execute(
            f"SELECT count(*), coalesce(sum(pg_column_size(t.*)), 0) FROM {table} t"
        ).fetchone()
        for table in TABLES
    ]
    return sizes[0][0], int(sum(size for _, size in sizes))


def write_postgres(bench: Bench, frequency: int) -> None:
    bench.write(
        lambda conn: threads.write_threads(conn, ["t"], ROWS, snapshot_every=frequency, size=500)
    )


def sizes_on_postgres(report: Report, bench: Bench) -> None:
    report.title(f"Postgres, what is left of {ROWS:,} checkpoints")
    for frequency in FREQUENCIES:
        write_postgres(bench, frequency)
        for name, clean in MODES.items():
            bench.time(clean)
            rows, size = postgres_bytes(bench)
            told = f"snapshot every {frequency:,}, {name}"
            print(f"  {told:44}{rows:9,} checkpoints {size / 1000:12,.1f} kB")


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
    parser.add_argument("--rounds", type=int, default=9, help="how often each variant runs")
    parser.add_argument("--sqlite-only", action="store_true", help="leave Postgres out")
    arguments = parser.parse_args()
    report = Report()
    print(f"median of {arguments.rounds} rounds (fastest - slowest)")
    with tempfile.TemporaryDirectory() as name:
        sizes_on_sqlite(report, Path(name), 1_000)
        sizes_on_sqlite(report, Path(name), 20_000)
        times_on_sqlite(report, Path(name), arguments.rounds)
    if not arguments.sqlite_only:
        servers.OPTIONS = DURABLE
        server = servers.Server(18)
        try:
            bench = Bench(server.dsn())
            sizes_on_postgres(report, bench)
            times_on_postgres(report, bench, arguments.rounds)
            bench.conn.close()
        finally:
            server.remove()
    for bound in report.broken:
        print(f"\nbroken: {bound}", file=sys.stderr)
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
