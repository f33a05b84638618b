"""Reads of the database: one body as a generator, answered by a sync or an async connection.

A body yields statements with their parameters and receives rows. The shells run it in one
transaction that reads only, whatever the connection's row factory and autocommit are, and
prepare nothing, so that it also works through a transaction pooler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    Conn: TypeAlias = Connection[Any] | ConnectionPool[Any]
    AsyncConn: TypeAlias = AsyncConnection[Any] | AsyncConnectionPool[Any]

__all__ = ["Query", "Reading", "aread", "read"]

T = TypeVar("T")

Query: TypeAlias = tuple[str, Mapping[str, object]]
Reading: TypeAlias = Generator[Query, list[tuple[Any, ...]], T]


def read(conn: Conn, body: Reading[T]) -> T:
    """Run a body on a connection, or on one of a pool."""
    from psycopg.rows import tuple_row

    with _one(conn) as one, one.transaction(), one.cursor(row_factory=tuple_row) as cursor:
        try:
            query, params = next(body)
            while True:
                # The text is a constant of this package; values go as parameters.
                cursor.execute(query.encode(), params, prepare=False)
                query, params = body.send(cursor.fetchall())
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def aread(conn: AsyncConn, body: Reading[T]) -> T:
    """Async twin of `read`."""
    from psycopg.rows import tuple_row

    async with (
        _aone(conn) as one,
        one.transaction(),
        one.cursor(row_factory=tuple_row) as cursor,
    ):
        try:
            query, params = next(body)
            while True:
                await cursor.execute(query.encode(), params, prepare=False)
                query, params = body.send(await cursor.fetchall())
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


@contextmanager
def _one(conn: Conn) -> Iterator[Connection[Any]]:
    from psycopg import Connection

    if isinstance(conn, Connection):
        yield conn
    else:
        with conn.connection() as one:
            yield one


@asynccontextmanager
async def _aone(conn: AsyncConn) -> AsyncIterator[AsyncConnection[Any]]:
    from psycopg import AsyncConnection

    if isinstance(conn, AsyncConnection):
        yield conn
    else:
        async with conn.connection() as one:
            yield one
