"""What cleanup on Postgres costs beside the host's own and beside raw SQL, as ratios of one run.

Each variant works on the same rows, restored before it, on a server as it is installed: with
commits that wait for the disk. Variants take turns, so that a noisy machine disturbs all of them
alike. Exits non-zero if a bound is broken.
"""

from __future__ import annotations

import argparse
import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from delta_mixin.adapters.postgres import DeltaPostgresSaver, run_id_index_sql

sys.path.append(str(Path(__file__).parents[1] / "postgres"))

import servers
import threads
from runner import Report, take_turns

TABLES = {
    "checkpoints": "thread_id, checkpoint_ns, checkpoint_id",
    "checkpoint_blobs": "thread_id, checkpoint_ns, channel, version",
    "checkpoint_writes": "thread_id, checkpoint_ns, checkpoint_id, task_id, idx",
}
DURABLE = {"max_connections": "20", "shared_buffers": "256MB", "listen_addresses": ""}


class Bench:
    """A database whose tables can be set back to what was written last."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.conn = psycopg.connect(dsn, autocommit=True)
        with PostgresSaver.from_conn_string(dsn) as saver:
            saver.setup()

    def write(self, fill: Callable[[Any], object]) -> None:
        """Fill the tables, and remember it."""
        self.conn.execute(f"TRUNCATE {', '.join(TABLES)}")
        fill(self.conn)
        for table in TABLES:
            self.conn.execute(f"DROP TABLE IF EXISTS all_{table}")
            self.conn.execute(f"CREATE TABLE all_{table} AS SELECT * FROM {table}")
        self.conn.execute(f"VACUUM ANALYZE {', '.join(TABLES)}")

    def remember_dead(self, clean: Callable[[Any], object]) -> int:
        """Note by key which rows a cleanup deletes; returns how many."""
        self.set_back()
        with DeltaPostgresSaver.from_conn_string(self.dsn) as saver:
            clean(saver)
        rows = 0
        for table, key in TABLES.items():
            self.conn.execute(f"DROP TABLE IF EXISTS dead_{table}")
            self.conn.execute(
                f"CREATE TABLE dead_{table} AS SELECT {key} FROM all_{table} "
                f"EXCEPT SELECT {key} FROM {table}"
            )
            self.conn.execute(f"ANALYZE dead_{table}")
            ((count,),) = self.conn.execute(f"SELECT count(*) FROM dead_{table}").fetchall()
            rows += count
        self.set_back()
        return rows

    def set_back(self) -> None:
        self.conn.execute(f"TRUNCATE {', '.join(TABLES)}")
        for table in TABLES:
            self.conn.execute(f"INSERT INTO {table} SELECT * FROM all_{table}")
        self.conn.execute(f"VACUUM ANALYZE {', '.join(TABLES)}")
        self.conn.execute("CHECKPOINT")

    def time(self, run: Callable[[Any], object], saver_class: Any = DeltaPostgresSaver) -> float:
        """Seconds that `run` takes, given a saver; the connection is made before."""
        self.set_back()
        with saver_class.from_conn_string(self.dsn) as saver:
            gc.collect()
            start = time.perf_counter()
            run(saver)
            return time.perf_counter() - start

    def raw_delete(self, saver: Any) -> None:
        """Delete the remembered rows by their keys, in one transaction."""
        with saver.conn.transaction():
            for table, key in TABLES.items():
                same = " AND ".join(f"t.{c} = d.{c}" for c in key.split(", "))
                saver.conn.execute(f"DELETE FROM {table} t USING dead_{table} d WHERE {same}")


@contextmanager
def served_bench(rounds: int) -> Iterator[Bench]:
    """A bench on a server of its own, removed at the end."""
    servers.OPTIONS = DURABLE
    server = servers.Server(18)
    print(f"PostgreSQL 18, median of {rounds} rounds (fastest - slowest)")
    try:
        bench = Bench(server.dsn())
        yield bench
        bench.conn.close()
    finally:
        server.remove()


def prune(*thread_ids: str) -> Callable[[Any], object]:
    return lambda saver: saver.prune(thread_ids)


def recipe(thread_id: str) -> Callable[[Any], object]:
    """What one writes without a planner: `get_tuple` up to the snapshot, list, delete the rest."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

    def run(saver: Any) -> None:
        found = saver.get_tuple(config)
        kept: list[str] = []
        versions: set[tuple[str, Any]] = set()
        while found is not None:
            kept.append(found.checkpoint["id"])
            versions.update(found.checkpoint["channel_versions"].items())
            if "log" in found.checkpoint["channel_values"] or not found.parent_config:
                break
            found = saver.get_tuple(found.parent_config)
        channels, used = zip(*versions, strict=True)
        doomed = [i for s in saver.list(config) if (i := s.checkpoint["id"]) not in kept]
        with saver.conn.transaction():
            for table in ("checkpoint_writes", "checkpoints"):
                saver.conn.execute(
                    f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_id = ANY(%s)",
                    (thread_id, doomed),
                )
            saver.conn.execute(
                "DELETE FROM checkpoint_blobs b WHERE thread_id = %s AND NOT EXISTS (SELECT FROM "
                "unnest(%s::text[], %s::text[]) AS u (channel, version) WHERE u.channel = "
                "b.channel AND u.version = b.version)",
                (thread_id, list(channels), list(used)),
            )

    return run


# -- what is measured ------------------------------------------------------------------------


def measure_delta(report: Report, bench: Bench, rounds: int) -> None:
    def fill(conn: Any) -> None:
        # 99 supersteps after the last snapshot, which a walk has to pass.
        threads.write_threads(conn, ["t"], 2_000, snapshot_every=100, size=500)
        threads.write_threads(conn, [f"other{n}" for n in range(50)], 100)

    bench.write(fill)
    rows = bench.remember_dead(prune("t"))
    report.title(f"Prune of a delta thread: 2,000 checkpoints, snapshot every 100, {rows:,} rows")
    seconds = take_turns(
        rounds,
        {
            "raw DELETE of the same rows": lambda: bench.time(bench.raw_delete),
            "prune": lambda: bench.time(prune("t")),
            "a get_tuple per ancestor, list, DELETE": lambda: bench.time(recipe("t")),
        },
    )
    report.times(seconds, rows)
    raw, ours, naive = seconds.values()
    report.ratio("prune / raw DELETE", ours, raw, 2)
    report.ratio("get_tuple recipe / prune", naive, ours, least=10)


def measure_plain(report: Report, bench: Bench, rounds: int) -> None:
    bench.write(lambda conn: threads.write_threads(conn, ["t"], 2_000, size=500))
    rows = bench.remember_dead(prune("t"))
    report.title(f"Prune of a plain thread: 2,000 checkpoints, {rows:,} rows")
    seconds = take_turns(
        rounds,
        {
            "the host's prune": lambda: bench.time(prune("t"), PostgresSaver),
            "prune": lambda: bench.time(prune("t")),
        },
    )
    report.times(seconds, rows)
    host, ours = seconds.values()
    report.ratio("prune / the host's prune", ours, host, 1)


def measure_fleet(report: Report, bench: Bench, rounds: int) -> None:
    names = [f"thread {n}" for n in range(3_000)]
    bench.write(lambda conn: threads.write_threads(conn, names, 10))
    rows = bench.remember_dead(prune(*names))
    report.title(f"Prune of a fleet: 3,000 threads of 10 checkpoints, {rows:,} rows")
    seconds = take_turns(
        rounds,
        {
            "raw DELETE of the same rows": lambda: bench.time(bench.raw_delete),
            "prune": lambda: bench.time(prune(*names)),
            "the host's prune": lambda: bench.time(prune(*names), PostgresSaver),
        },
    )
    report.times(seconds, rows)
    raw, ours, host = seconds.values()
    report.ratio("the host's prune / prune", host, ours, least=20)
    report.ratio("prune / raw DELETE", ours, raw, 2)


def measure_copy(report: Report, bench: Bench, rounds: int) -> None:
    bench.write(
        lambda conn: threads.write_threads(conn, ["t"], 5_000, snapshot_every=100, size=500)
    )
    report.title("Copy of a thread: 5,000 checkpoints")

    def raw(saver: Any) -> None:
        columns = {
            "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, "
            "metadata",
            "checkpoint_blobs": "checkpoint_ns, channel, version, type, blob",
            "checkpoint_writes": "checkpoint_ns, checkpoint_id, task_id, idx, channel, type, "
            "blob, task_path",
        }
        with saver.conn.transaction():
            for table, names in columns.items():
                saver.conn.execute(
                    f"INSERT INTO {table} (thread_id, {names}) SELECT 'copy', {names} "
                    f"FROM {table} WHERE thread_id = 't'"
                )

    seconds = take_turns(
        rounds,
        {
            "raw INSERT ... SELECT": lambda: bench.time(raw),
            "copy_thread": lambda: bench.time(lambda saver: saver.copy_thread("t", "copy")),
        },
    )
    report.times(seconds)
    of_sql, ours = seconds.values()
    report.ratio("copy_thread / raw INSERT", ours, of_sql, 1.5)


def measure_growth(report: Report, bench: Bench, rounds: int) -> None:
    report.title("Growth: a delta thread of 100,000 checkpoints and one of 10,000")
    times: dict[int, list[float]] = {}
    for length in (10_000, 100_000):
        bench.write(
            lambda conn, length=length: threads.write_threads(
                conn, ["t"], length, snapshot_every=100
            )
        )
        times[length] = take_turns(rounds, {"prune": lambda: bench.time(prune("t"))})["prune"]
    report.times({f"prune of {length:,}": values for length, values in times.items()})
    report.ratio("100,000 / 10,000", times[100_000], times[10_000], 12)
    bench.set_back()
    program = [sys.executable, __file__, "--prune-and-tell-memory", bench.dsn]
    peak = float(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    report.ratio("peak memory of the client, MB", [peak], [1], 300)


def measure_runs(report: Report, bench: Bench, rounds: int) -> None:
    names = [f"thread {n}" for n in range(2_000)]
    bench.write(
        lambda conn: threads.write_threads(conn, names, 100, snapshot_every=20, run_length=20)
    )
    bench.conn.execute(run_id_index_sql())
    for which, number in (("newest", 4), ("second", 1), ("first", 0)):
        runs = [f"{name}-{number}" for name in names[::10]]

        def delete(saver: Any, runs: list[str] = runs) -> None:
            saver.delete_for_runs(runs)

        rows = bench.remember_dead(delete)
        report.title(
            f"Run deletion: the {which} of 5 runs of 200 threads, in an indexed table of "
            f"200,000 checkpoints, {rows:,} rows"
        )
        seconds = take_turns(
            rounds,
            {
                "raw DELETE of the same rows": lambda: bench.time(bench.raw_delete),
                "delete_for_runs": lambda delete=delete: bench.time(delete),
            },
        )
        report.times(seconds, rows)
        raw, ours = seconds.values()
        report.ratio("delete_for_runs / raw DELETE", ours, raw, 3)


def prune_and_tell_memory(dsn: str) -> int:
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t"])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return 0


MEASURED: dict[str, Callable[[Report, Bench, int], None]] = {
    "delta": measure_delta,
    "plain": measure_plain,
    "fleet": measure_fleet,
    "copy": measure_copy,
    "growth": measure_growth,
    "runs": measure_runs,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each variant runs")
    parser.add_argument("--only", choices=MEASURED, nargs="+", default=list(MEASURED))
    parser.add_argument("--prune-and-tell-memory", metavar="DSN", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.prune_and_tell_memory:
        return prune_and_tell_memory(given.prune_and_tell_memory)
    report = Report()
    with served_bench(given.rounds) as bench:
        for name in given.only:
            MEASURED[name](report, bench, given.rounds)
    return report.verdict()


if __name__ == "__main__":
    sys.exit(main())
