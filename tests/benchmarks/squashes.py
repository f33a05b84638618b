"""What the measurements of squashes and compaction on SQLite and Postgres share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from runner import Report, take_turns

from delta_mixin import compaction

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
ROWS = 2_000
FREQUENCIES = (10, 100, 1_000)
READS = 20


def keep_history(saver: Any) -> None:
    saver.prune(["t"])


def squash(saver: Any) -> None:
    saver.prune(["t"], delta="squash")


def extend(state: list[int], writes: list[list[int]]) -> list[int]:
    return [*state, *(item for write in writes for item in write)]


def graph_of_thread() -> Any:
    """A graph with the delta channel of the prepared threads."""
    builder = StateGraph(TypedDict("State", {"log": Annotated[list, DeltaChannel(extend)]}))
    builder.add_node("node", lambda values: {})
    builder.add_edge(START, "node")
    return builder.compile()


def compact(saver: Any) -> None:
    compaction.compact(graph_of_thread(), ["t"], saver=saver, prune=True)


MODES = {
    "as written": lambda saver: None,
    "keep_history": keep_history,
    "squash": squash,
    "compaction": compact,
}


def tell_size(what: str, rows: int, size: int) -> None:
    print(f"  {what:44}{rows:9,} checkpoints {size / 1000:12,.1f} kB")


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


def compare_reads(report: Report, rounds: int, reading: Callable[[Any], Any]) -> None:
    seconds = take_turns(
        rounds,
        {f"reading the head, {name}": reading(clean) for name, clean in MODES.items()},
    )
    report.times(seconds)
    before, _, squashed, compacted = seconds.values()
    report.ratio("reading the head: squash / as written", squashed, before, 1)
    report.ratio("reading the head: compaction / as written", compacted, before, 1)
