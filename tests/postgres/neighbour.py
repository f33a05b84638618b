"""Another process on the database of a test: `neighbour.py TASK DSN THREAD ...`.

`forks` forks a child for each line it reads, which does what the line says, and tells the
child's process id, then that it has ended. `prune_on` says "ready", prunes from the first line
to the end of its input, and tells how often it did.
"""

from __future__ import annotations

import os
import sys
import threading
from itertools import chain, count
from typing import Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from delta_mixin import compaction
from delta_mixin.adapters.postgres import DeltaPostgresSaver


def prune(saver: Any, thread_ids: list[str]) -> None:
    saver.prune(thread_ids)


def squash(saver: Any, thread_ids: list[str]) -> None:
    saver.prune(thread_ids, delta="squash")


def copy(saver: Any, thread_ids: list[str]) -> None:
    for thread_id in thread_ids:
        saver.copy_thread(thread_id, f"copy of {thread_id}")


def delete(saver: Any, thread_ids: list[str]) -> None:
    saver.delete_for_runs([f"{t}-1" for t in thread_ids])


class State(TypedDict):
    log: Annotated[list, DeltaChannel(lambda state, writes: [*state, *chain(*writes)])]


def compiled() -> Any:
    """A graph with the delta channel that `threads.py` writes."""
    builder = StateGraph(State)
    builder.add_node("node", lambda values: {})
    builder.add_edge(START, "node")
    return builder.compile()


def compact(saver: Any, thread_ids: list[str]) -> None:
    compaction.compact(compiled(), thread_ids, saver=saver, prune=True)


def compact_for_runs(saver: Any, thread_ids: list[str]) -> None:
    compaction.delete_for_runs(compiled(), [f"{t}-1" for t in thread_ids], saver=saver)


def forks(dsn: str, thread_ids: list[str]) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            with DeltaPostgresSaver.from_conn_string(dsn) as saver:
                globals()[line.strip()](saver, thread_ids)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


def prune_on(dsn: str, thread_ids: list[str]) -> None:
    ended = threading.Event()
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        print("ready", flush=True)
        sys.stdin.readline()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        for times in count():
            if ended.is_set():
                print(times, flush=True)
                return
            saver.prune(thread_ids)


if __name__ == "__main__":
    task, dsn, *thread_ids = sys.argv[1:]
    {"forks": forks, "prune_on": prune_on}[task](dsn, thread_ids)
