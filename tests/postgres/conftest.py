from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

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
