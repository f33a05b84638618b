from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"sqlite_{name}", Path(__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(f"sqlite_{name}", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def threads() -> ModuleType:
    """The module that writes threads into files."""
    return _load("threads")


@pytest.fixture(scope="session")
def graphs() -> ModuleType:
    """The module with the graph that this and the other process run."""
    return _load("graphs")


@pytest.fixture
def neighbour() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the other process, and waits until it is ready to work."""
    started: list[subprocess.Popen[str]] = []

    def start(task: str, path: str, times: int) -> subprocess.Popen[str]:
        script = str(Path(__file__).with_name("neighbour.py"))
        process = subprocess.Popen(
            [sys.executable, script, task, path, str(times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with upstream's tables."""
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        saver.setup()
    return str(tmp_path / "threads.db")


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., dict[str, list[tuple[Any, ...]]]]:
    """Every row of both tables, whole, of one thread or of all."""

    def rows_of(path: str, thread_id: str | None = None) -> dict[str, list[tuple[Any, ...]]]:
        where = "" if thread_id is None else "WHERE thread_id = :thread"
        with closing(sqlite3.connect(path)) as conn:
            return {
                table: conn.execute(
                    f"SELECT * FROM {table} {where} ORDER BY 1, 2, 3, 4, 5", {"thread": thread_id}
                ).fetchall()
                for table in ("checkpoints", "writes")
            }

    return rows_of


@pytest.fixture(scope="session")
def ids_of(rows_of: Any) -> Callable[[str, str], list[str]]:
    """The checkpoint ids of a thread."""
    return lambda path, thread_id: [row[2] for row in rows_of(path, thread_id)["checkpoints"]]


@pytest.fixture(scope="session")
def history_of() -> Callable[..., Any]:
    """What upstream's own reader finds for delta channels of a checkpoint."""

    def history_of(
        path: str, thread_id: str, channels: tuple[str, ...] = ("log",), **conf: str
    ) -> Any:
        with SqliteSaver.from_conn_string(path) as saver:
            config = saver.get_tuple(
                {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **conf}}
            ).config
            return saver.get_delta_channel_history(config=config, channels=list(channels))

    return history_of


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls one method of a saver of our own, opened on a file for this one call."""

    def call(
        path: str, name: str, *args: Any, connect: dict[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        if request.param == "sync":
            with closing(sqlite3.connect(path, **(connect or {}))) as conn:
                return getattr(DeltaSqliteSaver(conn), name)(*args, **kwargs)

        async def main() -> Any:
            async with aiosqlite.connect(path, **(connect or {})) as conn:
                return await getattr(AsyncDeltaSqliteSaver(conn), f"a{name}")(*args, **kwargs)

        return asyncio.run(main())

    return call
