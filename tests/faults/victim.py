"""Cleans threads in processes of its own that are killed half-way, as asked on stdin.

It imports everything once and forks for each trial. A request is a line of JSON: `path`, `side`
("sync" or "async"), `operation`, `arguments`, `options`, and when to kill: `ticks` (in the midst
of a statement, counted in virtual machine instructions), `statements` (just before the n-th),
`seconds` (after the operation began), or none of them. It answers with what the process did
(`killed` or `done`) and, if it got through, with its own `ticks`, `statements` and `seconds`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from delta_mixin import compaction
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver

INSTRUCTIONS_PER_TICK = 50


def extend(state: list[Any], writes: list[Any]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list, DeltaChannel(extend)]
    notes: Annotated[list, DeltaChannel(extend)]


def compiled() -> Any:
    """The graph of the threads."""
    builder = StateGraph(State)
    builder.add_node("node", lambda values: {})
    builder.add_edge(START, "node")
    return builder.compile()


GRAPH = compiled()


def operation_of(saver: Any, request: dict[str, Any]) -> Any:
    """What to call: a method of the saver, or a function of the compaction module."""
    prefix = "a" if request["side"] == "async" else ""
    module, _, name = request["operation"].rpartition(".")
    if not module:
        return getattr(saver, prefix + name)
    function = getattr(compaction, prefix + name)
    return lambda *args, **options: function(GRAPH, *args, saver=saver, **options)


class Counter:
    """Counts what SQLite does, and kills its own process when the count is full."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.limits = {name: request.get(name) for name in ("ticks", "statements")}
        self.counts = {"ticks": 0, "statements": 0}

    def _count(self, what: str) -> None:
        self.counts[what] += 1
        if self.counts[what] == self.limits[what]:
            os.kill(os.getpid(), signal.SIGKILL)

    def tick(self) -> int:
        self._count("ticks")
        return 0

    def statement(self, _: str) -> None:
        self._count("statements")


def work(request: dict[str, Any], began: int) -> dict[str, Any]:
    counter = Counter(request)
    arguments, options = request["arguments"], request["options"]

    def begin() -> None:
        os.write(began, b"!")

    async def work_async() -> float:
        async with AsyncDeltaSqliteSaver.from_conn_string(request["path"]) as saver:
            await saver.setup()
            await saver.conn.set_progress_handler(counter.tick, INSTRUCTIONS_PER_TICK)
            await saver.conn.set_trace_callback(counter.statement)
            begin()
            start = time.perf_counter()
            await operation_of(saver, request)(*arguments, **options)
            return time.perf_counter() - start

    if request["side"] == "async":
        seconds = asyncio.run(work_async())
    else:
        with DeltaSqliteSaver.from_conn_string(request["path"]) as saver:
            saver.setup()
            saver.conn.set_progress_handler(counter.tick, INSTRUCTIONS_PER_TICK)
            saver.conn.set_trace_callback(counter.statement)
            begin()
            start = time.perf_counter()
            operation_of(saver, request)(*arguments, **options)
            seconds = time.perf_counter() - start
    return {"seconds": seconds, **counter.counts}


def try_once(request: dict[str, Any]) -> dict[str, Any]:
    began, begin = os.pipe()
    result, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = work(request, begin)
            os.write(report, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(begin)
    os.close(report)
    if request.get("seconds") is not None and os.read(began, 1):
        time.sleep(request["seconds"])
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    answered = os.read(result, 10_000)
    os.close(began)
    os.close(result)
    if answered:
        return {"outcome": "done", **json.loads(answered)}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return {"outcome": "killed"}
    return {"outcome": "failed"}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(try_once(json.loads(line))), flush=True)
