"""Databases of a real server: an owner, a runtime role, and the tools of their trade."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import sql

from delta_mixin.schema import Migration, render_migration, runtime_grants

OWNER, RUNTIME = "schema_owner", "app_runtime"


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    server = _load(Path(__file__).parents[1] / "postgres" / "servers.py").Server(18)
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for role in (OWNER, RUNTIME):
            conn.execute(f"CREATE ROLE {role} LOGIN")
    yield server
    server.remove()


@dataclass(frozen=True)
class Database:
    """A database of its own; the owner may do anything in its schemas, the runtime role nothing."""

    server: Any
    name: str
    schema: str = "public"

    def dsn(self, user: str = OWNER, **options: str) -> str:
        return self.server.dsn(self.name, **options).replace("user=postgres", f"user={user}")

    def connect(self, user: str = OWNER, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(user), **{"autocommit": True, **options})

    def saver(self, user: str = OWNER) -> Any:
        return PostgresSaver.from_conn_string(self.dsn(user))

    def look_in(self, role: str, *schemas: str) -> None:
        """Set the role's search_path, which poolers cannot lose."""
        path = sql.SQL(", ").join(map(sql.Identifier, schemas))
        names = (sql.Identifier(role), sql.Identifier(self.name), path)
        with self.connect("postgres") as conn:
            conn.execute(
                sql.SQL("ALTER ROLE {} IN DATABASE {} SET search_path = {}").format(*names)
            )

    def psql(self, file: Path, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.server._bin / "psql", self.dsn(), "-q", *args, "-f", file],
            check=check,
            capture_output=True,
            text=True,
        )

    def apply(self, migration: Migration, folder: Path) -> None:
        """As the files say: each by psql, the first kind in one transaction."""
        for file in migration.files:
            path = folder / file.name
            path.write_text(file.text)
            single = ("--single-transaction",) if file.in_transaction else ()
            self.psql(path, "-v", "ON_ERROR_STOP=1", *single)

    def grant(self, role: str = RUNTIME) -> None:
        with self.connect() as conn, conn.transaction():
            for statement in runtime_grants(role, schema=self.schema):
                conn.execute(statement)

    def grant_as_is(self, role: str = RUNTIME) -> None:
        """Grants for a schema that an older library left, so far as it goes."""
        with self.connect() as conn:
            conn.execute(f"GRANT USAGE ON SCHEMA public TO {role}")
            conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")

    def setup(self) -> None:
        with self.saver() as saver:
            saver.setup()

    def at_version(self, version: int) -> None:
        """As a library with fewer statements left it, by its own runner."""

        class Older(PostgresSaver):
            MIGRATIONS = PostgresSaver.MIGRATIONS[: version + 1]

        with Older.from_conn_string(self.dsn()) as saver:
            saver.setup()

    def versions(self) -> list[int]:
        with self.connect() as conn:
            rows = conn.execute("SELECT v FROM checkpoint_migrations ORDER BY v").fetchall()
        return [v for (v,) in rows]


@pytest.fixture(scope="session")
def temporary_database(server: Any) -> Callable[..., AbstractContextManager[Database]]:
    """Enters a database in which `schema` is the search_path of both roles."""
    numbers = itertools.count()

    @contextmanager
    def temporary_database(schema: str = "public") -> Iterator[Database]:
        database = Database(server, f"schema_test_{next(numbers)}", schema)
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {database.name} OWNER {OWNER} STRATEGY file_copy")
            try:
                if schema != "public":
                    with database.connect() as conn:
                        conn.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
                    for role in (OWNER, RUNTIME):
                        database.look_in(role, schema)
                yield database
            finally:
                admin.execute(f"DROP DATABASE {database.name} WITH (FORCE)")

    return temporary_database


@pytest.fixture
def new_database(temporary_database: Any) -> Iterator[Callable[..., Database]]:
    """Creates databases that last as long as the test."""
    with ExitStack() as stack:
        yield lambda *args: stack.enter_context(temporary_database(*args))


@pytest.fixture
def database(new_database: Callable[..., Database]) -> Database:
    """An empty database."""
    return new_database()


@pytest.fixture
def migrated(database: Database, tmp_path: Path) -> Database:
    """A database with the rendered migration applied and the runtime role's grants."""
    database.apply(render_migration(), tmp_path)
    database.grant()
    return database


@pytest.fixture
def server_log(server: Any) -> Callable[..., Any]:
    """Statements that the server executed in a database, as its log has them."""

    @contextmanager
    def server_log(database: Database, level: str = "all") -> Iterator[list[str]]:
        log = Path(server.dsn().split("host=")[1].split()[0]) / "log"
        settings = {
            "log_statement": level,
            "log_min_messages": "log",
            "log_min_error_statement": "panic",
        }
        found: list[str] = []
        with database.connect("postgres") as admin:
            for name, value in settings.items():
                admin.execute(f"ALTER DATABASE {database.name} SET {name} = '{value}'")
            start = log.stat().st_size
            try:
                yield found
            finally:
                for name in settings:
                    admin.execute(f"ALTER DATABASE {database.name} RESET {name}")
        with log.open("rb") as lines:
            lines.seek(start)
            text = lines.read().decode()
        for entry in re.split(r"^(?=\d{4}-\d\d-\d\d )", text, flags=re.MULTILINE):
            executed = re.search(r" LOG:  (?:statement|execute [^:]*): (.*)", entry, re.DOTALL)
            if executed:
                found.append(executed[1].strip())

    return server_log


@pytest.fixture
def pooled(server: Any) -> Iterator[Callable[..., str]]:
    """Connection strings that lead through a transaction pooler."""
    home = server.dsn().split("host=")[1].split()[0]
    pooler = _load(Path(__file__).with_name("pooler.py")).TransactionPooler(home)

    def pooled(database: Database, user: str = RUNTIME) -> str:
        return f"host={pooler.home} user={user} dbname={database.name}"

    pooled.pooler = pooler  # type: ignore[attr-defined]
    yield pooled
    pooler.close()
