"""What cleanup costs, as ratios measured in one run.

Each variant works on a fresh copy of the same prepared file, opened alike, its commit included.
Variants take turns, so that a noisy machine disturbs all of them alike; the ratio of their medians
is held to its bound, and the spread of the ratios of single rounds stands beside it. Exits non-zero
if a bound is broken.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin import CheckpointRow, compaction, planner
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver

sys.path.append(str(Path(__file__).parents[1] / "sqlite"))

import threads
from runner import Report, take_turns
from squashes import graph_of_thread

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
OF_THREAD = "WHERE thread_id = 't' AND checkpoint_ns = ''"
IN_LIST = f"{OF_THREAD} AND checkpoint_id IN (SELECT value FROM json_each(?))"

Run = Callable[[Any], object]


@dataclass(frozen=True)
class Prepared:
    """A file that holds thread "t", and the ids that a prune of it deletes."""

    path: Path
    rows: int
    kept: int
    doomed: list[str]

    @classmethod
    def write(cls, folder: Path, rows: int, inline: int, frequency: int) -> Prepared:
        path = folder / f"{rows}-{inline}-{frequency}.db"
        known = path.exists()
        with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
            saver.setup()
            if not known:
                deltas = [threads.Delta("log", frequency)]
                threads.write_thread(saver.conn, "t", rows, deltas, inline=inline)
            (plan,) = saver.plan_prune(["t"])
        return cls(path, rows, len(plan.kept), [key.checkpoint_id for key in plan.doomed])

    @property
    def ids(self) -> list[str]:
        """All its checkpoints, oldest first."""
        with SqliteSaver.from_conn_string(str(self.path)) as saver:
            query = f"SELECT checkpoint_id FROM checkpoints {OF_THREAD} ORDER BY checkpoint_id"
            return [row[0] for row in saver.conn.execute(query)]

    def left_by(self, run: Run) -> tuple[int, int]:
        """Rows and bytes that `run` leaves on a copy of the file."""
        copy = self.path.with_suffix(".copy")
        shutil.copyfile(self.path, copy)
        with DeltaSqliteSaver.from_conn_string(str(copy)) as saver:
            run(saver)
            ((rows, size),) = saver.conn.execute(
                "SELECT count(*), sum(length(checkpoint) + length(metadata)) FROM checkpoints"
            )
            ((written,),) = saver.conn.execute("SELECT sum(length(value)) FROM writes")
        return rows, size + (written or 0)

    def time(self, run: Run, after: Run | None = None) -> float:
        """Seconds that `run` takes on a copy of the file, given a saver opened on it.

        Args:
            run: What to time.
            after: What to do with the copy first.
        """
        copy = self.path.with_suffix(".copy")
        shutil.copyfile(self.path, copy)
        with DeltaSqliteSaver.from_conn_string(str(copy)) as saver:
            saver.setup()
            if after is not None:
                after(saver)
            gc.collect()
            start = time.perf_counter()
            run(saver)
            return time.perf_counter() - start


def on(prepared: Prepared, variants: Mapping[str, Run]) -> dict[str, Callable[[], float]]:
    return {name: lambda run=run: prepared.time(run) for name, run in variants.items()}


# -- what is measured ------------------------------------------------------------------------


def prune(saver: Any) -> None:
    saver.prune(["t"])


def raw_delete(ids: list[str]) -> Run:
    listed = json.dumps(ids)

    def run(saver: SqliteSaver) -> None:
        for table in ("writes", "checkpoints"):
            saver.conn.execute(f"DELETE FROM {table} {IN_LIST}", (listed,))
        saver.conn.commit()

    return run


def recipe(saver: Any) -> None:
    """What one writes without a planner: `get_tuple` up to the snapshot, delete the rest."""
    found = saver.get_tuple(CONFIG)
    kept = {found.checkpoint["id"]}
    while found is not None and found.parent_config is not None:
        found = saver.get_tuple(found.parent_config)
        kept.add(found.checkpoint["id"])
        if "log" in found.checkpoint["channel_values"]:
            break
    listed = [saved.checkpoint["id"] for saved in saver.list(CONFIG)]
    raw_delete([i for i in listed if i not in kept])(saver)


def raw_copy(saver: SqliteSaver) -> None:
    for table in ("checkpoints", "writes"):
        found = saver.conn.execute(f"PRAGMA table_info({table})").fetchall()
        columns = ", ".join(row[1] for row in found if row[1] != "thread_id")
        saver.conn.execute(
            f"INSERT INTO {table} (thread_id, {columns}) "
            f"SELECT 'copy', {columns} FROM {table} {OF_THREAD}"
        )
    saver.conn.commit()


def measure_prune(report: Report, folder: Path, rounds: int, frequency: int) -> None:
    prepared = Prepared.write(folder, 2_000, 20_000, frequency)
    report.title(
        f"SQLite, prune: {prepared.rows:,} checkpoints with 20 kB each, {prepared.kept} kept"
    )
    variants: dict[str, Run] = {
        "raw DELETE of the same rows by id": raw_delete(prepared.doomed),
        "prune": prune,
        "a get_tuple per ancestor, list, DELETE": recipe,
    }
    seconds = take_turns(rounds, on(prepared, variants))
    report.times(seconds)
    raw, ours, naive = seconds.values()
    report.ratio("prune / raw DELETE", ours, raw, 1.5)
    report.ratio("get_tuple recipe / raw DELETE", naive, raw)


def measure_copy(report: Report, folder: Path, rounds: int) -> None:
    prepared = Prepared.write(folder, 2_000, 20_000, 95)
    report.title(f"SQLite, copy: {prepared.rows:,} checkpoints with 20 kB each")
    variants: dict[str, Run] = {
        "raw INSERT ... SELECT of the thread": raw_copy,
        "copy_thread": lambda saver: saver.copy_thread("t", "copy"),
    }
    seconds = take_turns(rounds, on(prepared, variants))
    report.times(seconds)
    raw, ours = seconds.values()
    report.ratio("copy_thread / raw INSERT", ours, raw, 1.5)


def measure_runs(report: Report, folder: Path, rounds: int) -> None:
    prepared = Prepared.write(folder, 2_000, 20_000, 95)
    runs = [f"run-{number}" for number in range(100)]
    with DeltaSqliteSaver.from_conn_string(str(prepared.path)) as saver:
        (plan,) = saver.plan_delete_for_runs(runs)
    doomed = [key.checkpoint_id for key in plan.doomed]
    report.title(f"SQLite, run deletion: half of {prepared.rows:,} checkpoints with 20 kB each")
    variants: dict[str, Run] = {
        "raw DELETE of the same rows by id": raw_delete(doomed),
        "delete_for_runs": lambda saver: saver.delete_for_runs(runs),
    }
    seconds = take_turns(rounds, on(prepared, variants))
    report.times(seconds)
    raw, ours = seconds.values()
    report.ratio("delete_for_runs / raw DELETE", ours, raw)


def measure_compaction(report: Report, folder: Path, rounds: int, frequency: int) -> None:
    # The newest checkpoint is as far from its snapshot as it can be, but for four.
    prepared = Prepared.write(folder, 1_996, 20_000, frequency)
    graph = graph_of_thread()

    def compact(saver: Any) -> None:
        compaction.compact(graph, ["t"], saver=saver, prune=True)

    def head(saver: Any) -> Any:
        return graph.copy({"checkpointer": saver}).get_state(CONFIG).values["log"]

    report.title(
        f"SQLite, compaction: {prepared.rows:,} checkpoints with 20 kB each, "
        f"a snapshot every {frequency:,} updates"
    )
    for name, clean in {"prune": prune, "compact and prune": compact}.items():
        rows, size = prepared.left_by(clean)
        print(f"  {'kept by ' + name:44}{rows:9,} rows, {size:12,} bytes")
    variants: dict[str, Run] = {
        "raw DELETE of all rows but the newest": raw_delete(prepared.ids[:-1]),
        "prune": prune,
        "compact and prune": compact,
    }
    seconds = take_turns(rounds, on(prepared, variants))
    report.times(seconds)
    raw, walked, compacted = seconds.values()
    report.ratio("prune / raw DELETE", walked, raw)
    report.ratio("compact and prune / raw DELETE", compacted, raw)
    reads = take_turns(
        rounds,
        {
            "state at the head, before": lambda: prepared.time(head),
            "state at the head, pruned": lambda: prepared.time(head, after=prune),
            "state at the head, compacted": lambda: prepared.time(head, after=compact),
        },
    )
    report.times(reads)
    before, _, after = reads.values()
    # Within ten updates of a snapshot there is little to gain, and noise decides.
    bound = 1.0 if frequency >= 100 else None
    report.ratio("head compacted / before", after, before, bound)


def measure_growth(report: Report, folder: Path, rounds: int) -> None:
    small, large = (Prepared.write(folder, rows, 1_000, 95) for rows in (4_000, 40_000))
    report.title("SQLite, growth: one thread of 40,000 checkpoints and ten of 4,000, 1 kB each")

    # Ten small threads take about as long as a large one, so noise weighs the same on both.
    def ten_times(run: Run) -> Callable[[], float]:
        return lambda: sum(small.time(run) for _ in range(10))

    delete_small, delete_large = raw_delete(small.doomed), raw_delete(large.doomed)
    seconds = take_turns(
        rounds,
        {
            "prune, 10 x 4,000": ten_times(prune),
            "prune, 40,000": lambda: large.time(prune),
            "raw DELETE, 10 x 4,000": ten_times(delete_small),
            "raw DELETE, 40,000": lambda: large.time(delete_large),
        },
    )
    report.times(seconds)
    ours_small, ours_large, raw_small, raw_large = seconds.values()
    report.ratio("prune: growth / linear", ours_large, ours_small, 1.2)
    report.ratio("raw DELETE: growth / linear", raw_large, raw_small)


def measure_planning(report: Report, folder: Path, rounds: int) -> None:
    prepared = Prepared.write(folder, 40_000, 1_000, 95)
    rows = list(_complete_rows(prepared.rows, 95))
    report.title(f"Planning alone: {prepared.rows:,} checkpoints")

    def pure() -> float:
        gc.collect()
        start = time.perf_counter()
        _plan(rows)
        return time.perf_counter() - start

    def plan_only(saver: Any) -> None:
        saver.plan_prune(["t"])

    timed = {"rows in memory": pure} | on(prepared, {"plan_prune on SQLite": plan_only})
    report.times(take_turns(rounds, timed), prepared.rows)
    planned: dict[str, Callable[[], object]] = {
        "rows in memory": lambda: _plan(rows),
        "plan_prune on SQLite": lambda: prepared.time(plan_only),
    }
    for name, run in planned.items():
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        per_row = f"{peak / prepared.rows:.0f} B/row"
        print(f"  {name + ', peak memory':44}{peak / 2**20:9.1f} MiB, {per_row}")


def _complete_rows(count: int, frequency: int) -> Iterator[CheckpointRow]:
    for step in range(count):
        since = (step + 1) % frequency
        populated = frozenset(() if since else ("log",))
        counters = {"counters_since_delta_snapshot": {"log": [since, since]}} if since else {}
        yield CheckpointRow(
            "t",
            "",
            f"{step:08x}",
            f"{step - 1:08x}" if step else None,
            metadata={"source": "loop", "step": step, **counters},
            v=4,
            channel_versions={"log": step + 1},
            populated=populated,
            snapshots=populated,
            write_channels=frozenset(("log",)),
        )


def _plan(rows: list[CheckpointRow]) -> None:
    views = planner.group_rows(rows)
    planning = planner.plan_prune("t", views, planner.PruneRules(), planner.SaverTraits(), {})
    try:
        next(planning)
    except StopIteration:
        return
    raise RuntimeError("complete rows must need no further reads")


def measure_memory_saver(report: Report, folder: Path, rounds: int) -> None:
    source = Prepared.write(folder, 2_000, 20_000, 95)
    with SqliteSaver.from_conn_string(str(source.path)) as saver:
        saved = list(saver.list(CONFIG))[::-1]
    report.title(f"DeltaInMemorySaver, prune: {source.rows:,} checkpoints with 20 kB each")

    def timed(run: Run) -> float:
        saver = DeltaInMemorySaver()
        for row in saved:
            fill(saver, row)
        gc.collect()
        start = time.perf_counter()
        run(saver)
        return time.perf_counter() - start

    seconds = take_turns(
        min(rounds, 3),
        {
            "list() of the thread": lambda: timed(lambda saver: list(saver.list(CONFIG))),
            "prune": lambda: timed(prune),
        },
    )
    report.times(seconds)
    listed, ours = seconds.values()
    report.ratio("prune / list()", ours, listed)


def fill(saver: InMemorySaver, row: Any) -> None:
    parent = (row.parent_config or {"configurable": {}})["configurable"].get("checkpoint_id")
    config: Any = {"configurable": {**CONFIG["configurable"], "checkpoint_id": parent}}
    stored = saver.put(config, row.checkpoint, row.metadata, row.checkpoint["channel_versions"])
    for task_id, channel, value in row.pending_writes or ():
        saver.put_writes(stored, [(channel, value)], task_id)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="how often each variant runs")
    rounds = parser.parse_args().rounds
    report = Report()
    print(f"median of {rounds} rounds (fastest - slowest)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_prune(report, folder, rounds, frequency=95)
        measure_prune(report, folder, rounds, frequency=1_500)
        measure_copy(report, folder, rounds)
        measure_runs(report, folder, rounds)
        for frequency in (10, 100, 1_000):
            measure_compaction(report, folder, max(1, rounds // 2), frequency)
        measure_growth(report, folder, max(1, rounds // 2))
        measure_planning(report, folder, max(1, rounds // 2))
        measure_memory_saver(report, folder, rounds)
    return report.verdict()


if __name__ == "__main__":
    sys.exit(main())
