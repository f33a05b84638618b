"""What the measurements of squashes on SQLite and Postgres share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from runner import Report, take_turns

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
ROWS = 2_000
FREQUENCIES = (10, 100, 1_000)
READS = 20


def keep_history(saver: Any) -> None:
    saver.prune(["t"])


def squash(saver: Any) -> None:
    saver.prune(["t"], delta="squash")


MODES = {"as written": lambda saver: None, "keep_history": keep_history, "squash": squash}


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
    before, _, after = seconds.values()
    report.ratio("reading the head: squash / as written", after, before, 1)
