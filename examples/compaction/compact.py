"""One checkpoint is enough: prune a long chat by walking, and by compaction, side by side.

A chat of sixty turns keeps its log in a `DeltaChannel`, which stores a whole snapshot only at
every hundredth update. Copies of its file are cleaned up in several ways; each is read back with
the saver that LangGraph ships and goes on with another turn.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from delta_mixin import CompactionError, compaction
from delta_mixin.adapters.sqlite import DeltaSqliteSaver

TURNS = 60
CHAT: Any = {"configurable": {"thread_id": "chat"}}
OLD_RUNS = [f"turn {number}" for number in range(TURNS - 5)]


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return log + [entry for write in writes for entry in write]


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=100)]


builder = StateGraph(State)
builder.add_node("answer", lambda state: {"log": [f"answer {len(state['log'])}"]})
builder.add_edge(START, "answer")
builder.add_edge("answer", END)


def turn(graph: Any, number: int) -> None:
    config = {**CHAT, "metadata": {"run_id": f"turn {number}"}}
    graph.invoke({"log": [f"question {number}"]}, config, durability="sync")


def log_of(path: Path) -> list[str]:
    """The log as an application reads it that has never heard of compaction."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = builder.compile(checkpointer=saver)
        log: list[str] = graph.get_state(CHAT).values["log"]
        return log


def log_after_one_more_turn(path: Path) -> list[str]:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        turn(builder.compile(checkpointer=saver), TURNS)
    return log_of(path)


def rows_and_bytes(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as conn:
        ((rows, size),) = conn.execute(
            "SELECT count(*), sum(length(checkpoint) + length(metadata)) FROM checkpoints"
        )
        ((written,),) = conn.execute("SELECT coalesce(sum(length(value)), 0) FROM writes")
    return rows, size + written


def prune(graph: Any) -> None:
    graph.checkpointer.prune(["chat"])


def compact(graph: Any) -> None:
    compaction.compact(graph, ["chat"], prune=True)


def delete_old_runs(graph: Any) -> None:
    graph.checkpointer.delete_for_runs(OLD_RUNS)


def compact_and_delete_old_runs(graph: Any) -> None:
    compaction.delete_for_runs(graph, OLD_RUNS)


WAYS: Sequence[tuple[str, Callable[[Any], None]]] = (
    ("as it is", lambda graph: None),
    ("prune", prune),
    ("compact and prune", compact),
    ("delete 55 of 60 runs", delete_old_runs),
    ("compact and delete them", compact_and_delete_old_runs),
)


def count(log: list[int], writes: Sequence[Any]) -> list[int]:
    """What a reducer must not do: its result depends on how many writes come at once."""
    return [*log, len(writes)]


class Careless(TypedDict):
    log: Annotated[list[int], DeltaChannel(count)]


def refused(path: Path) -> str:
    """What is said of a reducer that cannot be replayed from a value in between."""
    careless = StateGraph(Careless)
    careless.add_node("answer", lambda state: {})
    careless.add_edge(START, "answer")
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        try:
            compaction.compact(careless.compile(checkpointer=saver), ["chat"], prune=True)
        except CompactionError as error:
            return error.failures["chat"]
    return "nothing"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        original = Path(name) / "chat.sqlite"
        with DeltaSqliteSaver.from_conn_string(str(original)) as saver:
            graph = builder.compile(checkpointer=saver)
            for number in range(TURNS):
                turn(graph, number)
        before = log_of(original)
        well = True
        print(f"{'':25}{'rows':>6}{'bytes':>10}  log")
        for way, clean in WAYS:
            path = Path(name) / "copy.sqlite"
            shutil.copyfile(original, path)
            with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
                clean(builder.compile(checkpointer=saver))
            rows, size = rows_and_bytes(path)
            equal = log_of(path) == before
            equal &= log_after_one_more_turn(path)[: len(before)] == before
            print(f"{way:25}{rows:6}{size:10,}  {'equal' if equal else 'LOST'}")
            well &= equal
        said = refused(original)
        print(f"\na careless reducer is refused: {said}")
        well &= "one by one" in said and log_of(original) == before
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
