"""Cleaning a file that others write to: another process, another thread, other tasks."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver

RUNS = 25


def past_runs(path: str) -> list[str]:
    """Runs of thread "shared" that it has moved on from, as its newest row tells."""
    query = (
        "SELECT json_extract(CAST(metadata AS TEXT), '$.run_id') FROM checkpoints "
        "WHERE thread_id = 'shared' ORDER BY checkpoint_id DESC"
    )
    with closing(sqlite3.connect(path)) as conn:
        found = [run for (run,) in conn.execute(query)]
    return sorted({run for run in found if run != found[0]})


def check_nothing_lost(path: str, graphs: Any, rows_of: Any, copies: int) -> None:
    everything = rows_of(path)
    checkpoints = {row[:3] for row in everything["checkpoints"]}
    assert {row[:3] for row in everything["writes"]} <= checkpoints, "orphaned writes"
    with SqliteSaver.from_conn_string(path) as saver:
        graph = graphs.build(saver)

        def values(thread_id: str) -> Any:
            return graph.get_state(graphs.config(thread_id)).values

        assert values("shared") == values("twin") == graphs.expected(RUNS)
        for number in range(RUNS):
            log = values(f"other-{number}")["log"]
            assert log == [-number, *range(3 * number + 1, 3 * number + 4)]
        whole = values("twin")["log"]
        for number in range(copies):
            copied = values(f"copy-{number}")["log"]
            assert copied == whole[: len(copied)], f"copy-{number}"
    assert len(rows_of(path, "twin")["checkpoints"]) == 5 * RUNS
    assert len(rows_of(path, "shared")["checkpoints"]) < 2 * RUNS


def test_another_process_writes_while_sync_methods_clean(
    path: str, graphs: Any, neighbour: Any, rows_of: Any
) -> None:
    process = neighbour("run", path, RUNS)
    rounds = copies = 0
    with DeltaSqliteSaver.from_conn_string(path) as saver:
        while process.poll() is None:
            saver.prune(["shared"])
            if rounds % 5 == 4 and (past := past_runs(path)):
                saver.delete_for_runs(past, thread_ids=["shared"])
            if rounds % 10 == 9 and past_runs(path):
                saver.copy_thread("shared", f"copy-{copies}")
                copies += 1
            rounds += 1
            time.sleep(0.002)
        saver.prune(["shared"])
    assert process.returncode == 0
    assert rounds > 10
    assert copies > 0
    check_nothing_lost(path, graphs, rows_of, copies)


def test_another_process_writes_while_async_methods_clean(
    path: str, graphs: Any, neighbour: Any, rows_of: Any
) -> None:
    async def clean(process: Any) -> tuple[int, int]:
        rounds = copies = 0
        async with AsyncDeltaSqliteSaver.from_conn_string(path) as saver:
            while process.poll() is None:
                await saver.aprune(["shared"])
                if rounds % 5 == 4 and (past := past_runs(path)):
                    await saver.adelete_for_runs(past, thread_ids=["shared"])
                if rounds % 10 == 9 and past_runs(path):
                    await saver.acopy_thread("shared", f"copy-{copies}")
                    copies += 1
                rounds += 1
                await asyncio.sleep(0.002)
            await saver.aprune(["shared"])
        return rounds, copies

    process = neighbour("run", path, RUNS)
    rounds, copies = asyncio.run(clean(process))
    assert process.returncode == 0
    assert rounds > 10
    assert copies > 0
    check_nothing_lost(path, graphs, rows_of, copies)


def test_two_processes_prune_one_thread_at_once(
    path: str, threads: Any, neighbour: Any, history_of: Any, ids_of: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "shared", 1_995, inline=500)
        threads.write_thread(conn, "twin", 1_995)
    before = history_of(path, "shared")
    process = neighbour("prune", path, 20)
    process.stdin.write("go\n")
    process.stdin.flush()
    with DeltaSqliteSaver.from_conn_string(path) as saver:
        for _ in range(20):
            saver.prune(["shared"])
    assert process.wait(timeout=60) == 0
    assert history_of(path, "shared") == before
    assert len(ids_of(path, "shared")) == 6
    assert len(ids_of(path, "twin")) == 1_995


def test_a_graph_runs_in_another_thread_on_the_same_saver(
    path: str, graphs: Any, rows_of: Any
) -> None:
    failures: list[BaseException] = []

    def work(saver: DeltaSqliteSaver) -> None:
        graph = graphs.build(saver)
        try:
            for run in range(RUNS):
                for thread_id in ("shared", "twin", f"other-{run}"):
                    graph.invoke(
                        graphs.inputs(run), graphs.config(thread_id, run), durability="sync"
                    )
        except BaseException as error:
            failures.append(error)

    rounds = copies = 0
    with DeltaSqliteSaver.from_conn_string(path) as saver:
        thread = threading.Thread(target=work, args=(saver,))
        thread.start()
        while thread.is_alive():
            saver.prune(["shared"])
            if rounds % 10 == 9 and (past := past_runs(path)):
                saver.delete_for_runs(past, thread_ids=["shared"])
                saver.copy_thread("shared", f"copy-{copies}")
                copies += 1
            rounds += 1
            time.sleep(0.002)
        thread.join()
        saver.prune(["shared"])
    assert not failures
    assert rounds > 10
    assert copies > 0
    check_nothing_lost(path, graphs, rows_of, copies)


def test_graphs_run_in_other_tasks_on_the_same_saver(path: str, graphs: Any, rows_of: Any) -> None:
    async def work(saver: AsyncDeltaSqliteSaver) -> None:
        graph = graphs.build(saver)
        for run in range(RUNS):
            for thread_id in ("shared", "twin", f"other-{run}"):
                await graph.ainvoke(graphs.inputs(run), graphs.config(thread_id, run))

    async def main() -> int:
        copies = rounds = 0
        async with AsyncDeltaSqliteSaver.from_conn_string(path) as saver:
            task = asyncio.create_task(work(saver))
            while not task.done():
                await saver.aprune(["shared"])
                if rounds % 10 == 9 and (past := past_runs(path)):
                    await saver.adelete_for_runs(past, thread_ids=["shared"])
                    await saver.acopy_thread("shared", f"copy-{copies}")
                    copies += 1
                rounds += 1
                await asyncio.sleep(0.002)
            await task
            await saver.aprune(["shared"])
        return copies

    copies = asyncio.run(main())
    assert copies > 0
    check_nothing_lost(path, graphs, rows_of, copies)


@pytest.mark.parametrize("operation", ["prune", "copy_thread", "delete_for_runs"])
def test_a_writer_that_holds_the_file_is_reported_and_harms_nothing(
    operation: str, path: str, threads: Any, rows_of: Any, call: Any
) -> None:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 100)
    before = rows_of(path)
    arguments: Any = {
        "prune": (["t"],),
        "copy_thread": ("t", "copy"),
        "delete_for_runs": (["run-2"],),
    }[operation]
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            call(path, operation, *arguments, connect={"timeout": 0.05})
    assert rows_of(path) == before
    call(path, operation, *arguments)
    assert rows_of(path) != before
