"""Clean up a LangGraph thread that uses a `DeltaChannel`: the naive way, then the safe way.

Run it with `nox -s demo`, or with `python examples/quickstart/main.py`. It exits with 1 if
anything comes out differently from what the table promises.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from rich.console import Console
from rich.table import Table

from delta_mixin.adapters.sqlite import DeltaSqliteSaver

THREAD = "ticket-1042"
COPY = "ticket-1042-copy"
RUNS = ("monday", "tuesday", "wednesday", "thursday")
STEPS_PER_RUN = 7


# -- the application: an agent that keeps a log -----------------------------------------------


def extend(log: list[str], writes: list[list[str]]) -> list[str]:
    return log + [entry for write in writes for entry in write]


class State(TypedDict):
    # Only every tenth update stores the whole log; in between, its writes are all there is.
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=10)]
    steps: int


def work(state: State) -> dict[str, Any]:
    steps = state.get("steps", 0) + 1
    return {"log": [f"step {steps}: looked at another page of the manual"], "steps": steps}


def carry_on(state: State) -> str:
    return "work" if state["steps"] % STEPS_PER_RUN else END


def build_graph(saver: SqliteSaver) -> Any:
    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", carry_on, ["work", END])
    return builder.compile(checkpointer=saver)


def write_thread(path: Path) -> None:
    """Let the agent work on one thread, one run a day."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = build_graph(saver)
        for run in RUNS:
            graph.invoke(
                {"log": [f"{run}: the customer asks again"]},
                # Run deletion finds a run by its id in the metadata; this puts it there.
                {"configurable": {"thread_id": THREAD}, "metadata": {"run_id": run}},
                durability="sync",
            )


# -- what a thread holds, seen through the saver that comes with LangGraph --------------------


@dataclass(frozen=True)
class Contents:
    """A thread's size in the file, and the log and the run of each of its checkpoints."""

    rows: int
    size: int
    logs: dict[str, list[str]]
    runs: dict[str, str]

    @property
    def log(self) -> list[str]:
        return self.logs[max(self.logs)]


def contents(path: Path, thread_id: str = THREAD) -> Contents:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = build_graph(saver)
        history = list(graph.get_state_history({"configurable": {"thread_id": thread_id}}))
    ids = [state.config["configurable"]["checkpoint_id"] for state in history]
    return Contents(
        rows=len(ids),
        size=payload_bytes(path, thread_id),
        logs={i: state.values.get("log", []) for i, state in zip(ids, history, strict=True)},
        runs={i: state.metadata["run_id"] for i, state in zip(ids, history, strict=True)},
    )


def payload_bytes(path: Path, thread_id: str) -> int:
    """Bytes of the thread's checkpoints, metadata and writes."""
    with closing(sqlite3.connect(path)) as db:
        (checkpoints,) = db.execute(
            "SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints "
            "WHERE thread_id = ?",
            (thread_id,),
        ).fetchone()
        (writes,) = db.execute(
            "SELECT sum(length(value)) FROM writes WHERE thread_id = ?", (thread_id,)
        ).fetchone()
    return (checkpoints or 0) + (writes or 0)


# -- four ways to clean up, each tried on a copy of the file of its own -----------------------


def naive_keep_latest(path: Path) -> None:
    """What one would write without knowing of delta channels."""
    with closing(sqlite3.connect(path)) as db, db:
        (newest,) = db.execute("SELECT max(checkpoint_id) FROM checkpoints").fetchone()
        db.execute("DELETE FROM writes WHERE checkpoint_id <> ?", (newest,))
        db.execute("DELETE FROM checkpoints WHERE checkpoint_id <> ?", (newest,))


def prune(path: Path) -> None:
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        saver.prune([THREAD])


def copy_thread(path: Path) -> None:
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        saver.copy_thread(THREAD, COPY)


def delete_first_two_runs(path: Path) -> None:
    with DeltaSqliteSaver.from_conn_string(str(path)) as saver:
        saver.delete_for_runs(RUNS[:2])


def same_log(before: Contents, after: Contents) -> bool:
    return after.log == before.log


def same_everywhere(before: Contents, after: Contents) -> bool:
    return after.logs == before.logs


def same_in_other_runs(before: Contents, after: Contents) -> bool:
    others = [i for i, run in before.runs.items() if run not in RUNS[:2]]
    return all(after.logs.get(i) == before.logs[i] for i in others)


@dataclass(frozen=True)
class Trial:
    name: str
    act: Callable[[Path], None]
    unchanged: Callable[[Contents, Contents], bool]
    keeps: bool = True
    shrinks: bool = True
    look_at: str = THREAD


TRIALS = (
    Trial("naive keep-latest", naive_keep_latest, same_log, keeps=False),
    Trial("prune", prune, same_log),
    Trial("copy_thread", copy_thread, same_everywhere, shrinks=False, look_at=COPY),
    Trial("delete_for_runs, 2 of 4", delete_first_two_runs, same_in_other_runs),
)


def main() -> int:
    table = Table(title=f"Thread {THREAD}, before → after")
    table.add_column("clean-up", no_wrap=True)
    for heading in ("rows", "bytes", "log"):
        table.add_column(heading, justify="right")
    table.add_column("value equal")
    surprises = []
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder, "agent.sqlite")
        write_thread(original)
        before = contents(original)
        for number, trial in enumerate(TRIALS):
            path = Path(shutil.copy(original, Path(folder, f"trial-{number}.sqlite")))
            trial.act(path)
            after = contents(path, trial.look_at)
            equal = trial.unchanged(before, after)
            table.add_row(
                trial.name,
                f"{before.rows} → {after.rows}",
                f"{before.size:,} → {after.size:,}",
                f"{len(before.log)} → {len(after.log)}",
                "[green]yes[/]" if equal else "[bold red]NO, lost[/]",
            )
            if equal != trial.keeps or (after.rows < before.rows) != trial.shrinks:
                surprises.append(trial.name)
    console = Console()
    console.print(table)
    if surprises:
        console.print(f"[bold red]Not as expected:[/] {', '.join(surprises)}")
        return 1
    console.print("As expected: only the naive way loses the log.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
