from __future__ import annotations

import asyncio
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def _load(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"postgres_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[int], Any]]:
    """The server of a major version, started when it is first asked for."""
    servers = _load("servers")
    running: dict[int, Any] = {}

    def server_of(version: int) -> Any:
        if version == 15 and not servers.SYSTEM_15.exists():
            pytest.skip(f"no PostgreSQL 15 in {servers.SYSTEM_15}")
        if version not in running:
            running[version] = servers.Server(version)
        return running[version]

    yield server_of
    for server in running.values():
        server.remove()


@pytest.fixture(scope="session")
def server(server_of: Callable[[int], Any]) -> Any:
    """The newest server."""
    return server_of(18)


@pytest.fixture(scope="session")
def fresh_schema() -> Callable[..., Any]:
    """Enters a new schema with the host's tables; yields a connection string that names it."""
    numbers = itertools.count()

    @contextmanager
    def fresh_schema(server: Any) -> Iterator[str]:
        schema = f"test_{next(numbers)}"
        dsn = server.dsn(options=f"'-c search_path={schema}'")
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute(f"CREATE SCHEMA {schema}")
            try:
                with PostgresSaver.from_conn_string(dsn) as saver:
                    saver.setup()
                yield dsn
            finally:
                conn.execute(f"DROP SCHEMA {schema} CASCADE")

    return fresh_schema


@pytest.fixture
def dsn(server: Any, fresh_schema: Any) -> Iterator[str]:
    """A connection string of a database that holds nothing but the host's tables."""
    with fresh_schema(server) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def rows_of() -> Callable[..., dict[str, list[tuple[Any, ...]]]]:
    """Every row of the three tables, whole, of one thread or of all."""

    def rows_of(dsn: str, thread_id: str | None = None) -> dict[str, list[tuple[Any, ...]]]:
        where = "" if thread_id is None else "WHERE t.thread_id = %(thread)s"
        with psycopg.connect(dsn) as conn:
            return {
                table: conn.execute(
                    f"SELECT t.* FROM {table} t {where} ORDER BY t::text", {"thread": thread_id}
                ).fetchall()
                for table in TABLES
            }

    return rows_of


@pytest.fixture(scope="session")
def threads() -> ModuleType:
    """The module that writes threads into tables."""
    return _load("threads")


@pytest.fixture(scope="session")
def ids_of() -> Callable[[str, str], list[str]]:
    """The checkpoint ids of a thread, oldest first."""

    def ids_of(dsn: str, thread_id: str) -> list[str]:
        query = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = %s ORDER BY checkpoint_id"
        with psycopg.connect(dsn) as conn:
            return [row[0] for row in conn.execute(query, (thread_id,))]

    return ids_of


@pytest.fixture(scope="session")
def orphans_of() -> Callable[[str], dict[str, int]]:
    """How many writes and blobs belong to no checkpoint."""

    def orphans_of(dsn: str) -> dict[str, int]:
        with psycopg.connect(dsn) as conn:
            return {
                "writes": conn.execute(
                    "SELECT count(*) FROM checkpoint_writes w WHERE NOT EXISTS "
                    "(SELECT FROM checkpoints c WHERE (c.thread_id, c.checkpoint_ns, "
                    "c.checkpoint_id) = (w.thread_id, w.checkpoint_ns, w.checkpoint_id))"
                ).fetchone()[0],  # type: ignore[index]
                "blobs": conn.execute(
                    "SELECT count(*) FROM checkpoint_blobs b WHERE NOT EXISTS "
                    "(SELECT FROM checkpoints c WHERE c.thread_id = b.thread_id AND "
                    "c.checkpoint_ns = b.checkpoint_ns AND "
                    "c.checkpoint -> 'channel_versions' ->> b.channel = b.version)"
                ).fetchone()[0],  # type: ignore[index]
            }

    return orphans_of


@pytest.fixture(params=["connection", "pipeline", "pool", "async connection", "async pool"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls one method of a saver of our own, opened for this one call."""
    kind = request.param
    options = {"autocommit": True, "prepare_threshold": 0}

    async def acall(dsn: str, name: str, *args: Any, **kwargs: Any) -> Any:
        if kind == "async connection":
            async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
                return await getattr(saver, f"a{name}")(*args, **kwargs)
        async with AsyncConnectionPool(dsn, min_size=1, kwargs=options) as pool:
            return await getattr(AsyncDeltaPostgresSaver(pool), f"a{name}")(*args, **kwargs)

    def call(dsn: str, name: str, *args: Any, **kwargs: Any) -> Any:
        if kind.startswith("async"):
            return asyncio.run(acall(dsn, name, *args, **kwargs))
        if kind == "pool":
            with ConnectionPool(dsn, min_size=1, kwargs=options) as pool:
                return getattr(DeltaPostgresSaver(pool), name)(*args, **kwargs)
        piped = kind == "pipeline"
        with DeltaPostgresSaver.from_conn_string(dsn, pipeline=piped) as saver:
            return getattr(saver, name)(*args, **kwargs)

    return call


@pytest.fixture
def neighbour() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts another process on the database: see `neighbour.py`."""
    started: list[subprocess.Popen[str]] = []

    def start(task: str, dsn: str, *thread_ids: str) -> subprocess.Popen[str]:
        script = str(Path(__file__).with_name("neighbour.py"))
        process = subprocess.Popen(
            [sys.executable, script, task, dsn, *thread_ids],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:  # closes its pipes and waits
            pass
