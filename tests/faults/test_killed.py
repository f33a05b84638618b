"""Processes killed with SIGKILL at random points of a cleanup: each thread is as before or done.

Three kinds of points take turns: in the midst of a statement, between two statements, and at a
moment in time, which also reaches the commit. DELTA_MIXIN_KILLS sets how many kills there are
for each operation, half of them for each side of the API.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

if not hasattr(os, "fork"):
    pytest.skip("this system cannot fork", allow_module_level=True)

KILLS = int(os.environ.get("DELTA_MIXIN_KILLS", "50")) // 2

OPERATIONS: dict[str, Any] = {
    "prune": ([["one", "two"]], {}),
    "squash": ([["one", "two"]], {"delta": "squash"}),
    "copy_thread": (["one", "copy"], {}),
    "delete_for_runs": (
        [[f"run-{number}" for number in range(2, 30)]],
        {"thread_ids": ["one", "two"]},
    ),
    "compaction.compact": ([["one", "two"]], {"prune": True}),
    "compaction.delete_for_runs": ([["run-7", "run-20"]], {"thread_ids": ["one", "two"]}),
    "compaction.copy_thread": (["one", "copy"], {"checkpoint_id": "the 200th"}),
}


@pytest.fixture(scope="module")
def victim() -> Iterator[Callable[..., dict[str, Any]]]:
    """Lets another process clean a file, and perhaps be killed."""
    script = str(Path(__file__).with_name("victim.py"))
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(**request: Any) -> dict[str, Any]:
            print(json.dumps(request), file=process.stdin, flush=True)
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            assert answer["outcome"] != "failed", request
            return answer

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, threads: Any) -> str:
    """Three threads of 305 checkpoints of 8 kB; more than SQLite's cache holds."""
    path = str(tmp_path_factory.mktemp("original") / "threads.db")
    with SqliteSaver.from_conn_string(path) as saver:
        saver.setup()
        for thread_id in ("one", "two", "bystander"):
            deltas = [threads.Delta("log", 10), threads.Delta("notes", 20, every=3)]
            threads.write_thread(saver.conn, thread_id, 305, deltas, inline=8_000)
    return path


Rows = list[tuple[Any, ...]]


def read(path: str) -> dict[str, Rows]:
    """All rows of both tables by thread."""
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        by_thread: dict[str, Rows] = {}
        for table in ("checkpoints", "writes"):
            for row in conn.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5"):
                by_thread.setdefault(row[0], []).append((table, *row))
    return by_thread


def fresh(original: str, path: str) -> None:
    for suffix in ("-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)
    shutil.copyfile(original, path)


@pytest.mark.parametrize("side", ["sync", "async"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_killed_cleanup_is_as_before_or_done(
    operation: str, side: str, original: str, victim: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "threads.db")
    method = "prune" if operation == "squash" else operation
    request: dict[str, Any] = {"path": path, "side": side, "operation": method}
    request["arguments"], request["options"] = OPERATIONS[operation]
    before = read(original)
    if "checkpoint_id" in request["options"]:
        request["options"] = {"checkpoint_id": before["one"][200][3]}
    fresh(original, path)
    whole = victim(**request)
    done = read(path)
    assert done != before
    assert whole["ticks"] > 50, "too few points to be killed at"
    assert whole["statements"] >= 6

    dice = random.Random(f"{operation} {side}")
    outcomes: Counter[str] = Counter()
    points = itertools.cycle(("ticks", "statements", "seconds"))
    for number in range(KILLS):
        point = next(points)
        most = whole[point]
        when = dice.uniform(0, most) if point == "seconds" else dice.randint(1, most)
        fresh(original, path)
        outcome = victim(**request, **{point: when})["outcome"]
        after = read(path)
        for thread_id in before.keys() | done.keys() | after.keys():
            # A call cleans one thread after the other, each of them whole.
            rows = after.get(thread_id)
            assert rows in (before.get(thread_id), done.get(thread_id)), (
                f"{thread_id} is half done: kill {number}, {point} {when} of {most}"
            )
        outcomes[outcome] += 1
        outcomes["before" if after == before else "done" if after == done else "between"] += 1
        if after != done:
            victim(**request)
            assert read(path) == done, f"not repeatable: kill {number}, {point} {when} of {most}"
    print(f"{operation} {side}: {dict(outcomes)}")
    # Two of three points are certain to lie inside.
    assert outcomes["killed"] >= KILLS * 2 // 3
    assert outcomes["before"] + outcomes["between"] >= KILLS // 3
