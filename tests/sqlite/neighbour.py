"""The other process: runs a graph on a file, or cleans a thread of it, again and again.

neighbour.py run FILE RUNS     threads "shared", "twin" and one more per run
neighbour.py prune FILE TIMES  thread "shared"
"""

from __future__ import annotations

import sys

import graphs
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.sqlite import DeltaSqliteSaver


def run(path: str, runs: int) -> None:
    with SqliteSaver.from_conn_string(path) as saver:
        graph = graphs.build(saver)
        print("ready", flush=True)
        for number in range(runs):
            for thread_id in ("shared", "twin", f"other-{number}"):
                graph.invoke(
                    graphs.inputs(number), graphs.config(thread_id, number), durability="sync"
                )


def prune(path: str, times: int) -> None:
    with DeltaSqliteSaver.from_conn_string(path) as saver:
        saver.setup()
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(times):
            saver.prune(["shared"])


if __name__ == "__main__":
    {"run": run, "prune": prune}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
