"""`DeltaPostgresSaver` and `AsyncDeltaPostgresSaver`: the host's Postgres savers, safe cleanup.

1. A batch of threads is one transaction, in READ COMMITTED. It first takes an advisory
   transaction lock per thread, all in one statement and one order, and lists the rows in the
   next: its snapshot is younger than the lock, so it sees what a cleanup waited for has done.
   In REPEATABLE READ the snapshot is taken before the lock is granted.
2. Reads after the listing concern rows that never change; one that has vanished makes the batch
   be planned anew. Deletes name the listed ids, so what a run adds meanwhile stays.
3. A run that forks from a checkpoint which is being deleted would lose its history. After the
   deletes a look for such rows, which READ COMMITTED shows, rolls back and plans anew. A fork
   that is stored later than this look, by a run that has read its base before, is still severed.
4. Two cleanups of a thread wait for each other. Errors of a lock that is not granted in time, of
   a deadlock or of serialization are retried, then told per thread in a `CleanupFailedError`.
5. Nothing outlives the transaction but its changes, so pooling of transactions is fine; the
   role needs SELECT, INSERT, UPDATE and DELETE on the tables, which `search_path` may name.
6. On a connection with a transaction open already, cleanup is a savepoint of that transaction,
   which has to be READ COMMITTED too; locks last, and changes count, until it ends.
7. Blobs that only doomed rows reference go inside the database: plans do not list them in
   `dead_blobs`, which would mean to read the versions of every row of a long thread.

8. Fleets are mostly threads that need no plan: see `_postgres_settled`.

`delete_for_runs` reads every checkpoint unless the owner adds the index of `run_id_index_sql`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.postgres import _ainternal, _internal
from psycopg import AsyncConnection, Connection, errors
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from delta_mixin._hooks import CleanupHooks
from delta_mixin.adapters import _postgres_bodies as bodies
from delta_mixin.adapters import _postgres_inspecting as inspecting
from delta_mixin.adapters import _postgres_squash
from delta_mixin.adapters._loop import SyncMethodsOnLoop
from delta_mixin.adapters._postgres_ids import AsyncTextIdPostgresSaver, TextIdPostgresSaver
from delta_mixin.adapters._postgres_rewriting import rewrite_row
from delta_mixin.adapters._postgres_settled import prune_settled
from delta_mixin.errors import RowsUnreadError, TargetThreadExistsError
from delta_mixin.findings import HistoryEnd, Orphans
from delta_mixin.listing import Listing
from delta_mixin.mixins import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin
from delta_mixin.model import CheckpointRow, CleanupPlan, KnownChannels, Reads, T

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from typing_extensions import Self

__all__ = ["AsyncDeltaPostgresSaver", "DeltaPostgresSaver", "run_id_index_sql"]

_cursor_in_scope: ContextVar[tuple[object, Any] | None] = ContextVar("_cursor", default=None)
"""The saver whose scope the hooks run in, and the cursor of its transaction."""


def run_id_index_sql(schema: str | None = None) -> str:
    """DDL of the index that finds the checkpoints of a run, for the owner's migrations.

    Nothing creates it at run time, and nothing needs it: without it `delete_for_runs` reads
    every checkpoint once to find a run's threads. Run it outside a transaction; on a partitioned
    table without CONCURRENTLY.

    Args:
        schema: The schema of the tables; by default the one `search_path` finds.
    """
    table = "checkpoints" if schema is None else f"{_quoted(schema)}.checkpoints"
    return (
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS checkpoints_run_id_idx "
        f"ON {table} ((metadata ->> 'run_id'))"
    )


class _PostgresTraits(CleanupHooks):
    """What both savers tell the operations."""

    NEWEST_ID_IS_HEAD = True
    READS_IN_SCOPE = True
    CLEANUP_BATCH_SIZE = 500
    CLEANUP_BATCH_ROWS = 20_000

    def _retry_after(self, error: Exception) -> bool:
        return isinstance(
            error,
            (
                errors.SerializationFailure,
                errors.DeadlockDetected,
                errors.LockNotAvailable,
                errors.OutOfMemory,  # of the lock table: a smaller batch needs fewer locks
                bodies.ForkedMeanwhileError,
                RowsUnreadError,
            ),
        )


class DeltaPostgresSaver(
    _PostgresTraits,
    DeltaChannelAwarePruneMixin,
    CopyAndDeleteForRunsMixin,
    TextIdPostgresSaver,
):
    """`PostgresSaver` with `prune`, `copy_thread` and `delete_for_runs` for all threads.

    The cleanup methods' async twins work in a worker thread; other async methods are not
    supported, as upstream. Thread ids may be `str`, `int` or `UUID`.
    """

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, *, pipeline: bool = False) -> Iterator[Self]:
        """A saver on a connection of its own, closed at the end."""
        with super().from_conn_string(conn_string, pipeline=pipeline) as saver:
            yield cast("Self", saver)  # upstream's is declared to yield its own class

    @contextmanager
    def _cleanup_scope(self, thread_ids: Sequence[str]) -> Iterator[None]:
        with self._transaction(lambda nested: bodies.begin_cleanup(thread_ids, nested)):
            yield

    @contextmanager
    def _read_scope(self, thread_ids: Sequence[str]) -> Iterator[None]:
        with self._transaction(bodies.begin_reading):
            yield

    def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> Listing:
        return self._execute(bodies.list_rows(thread_ids))

    def _list_rows_with_runs(self, thread_ids: Sequence[str]) -> Listing:
        return self._execute(bodies.list_rows_with_runs(thread_ids))

    def _count_checkpoint_rows(self, thread_ids: Sequence[str]) -> Mapping[str, int]:
        return self._execute(bodies.count_rows(thread_ids))

    def _read_checkpoint_rows(self, thread_id: str, keys: Reads) -> Sequence[CheckpointRow]:
        return self._read_batch_rows({thread_id: keys})[thread_id]

    def _read_batch_rows(
        self, requests: Mapping[str, Reads]
    ) -> Mapping[str, Sequence[CheckpointRow]]:
        return self._execute(bodies.read_rows(requests))

    def _list_rows_beyond(
        self, requests: Mapping[str, KnownChannels]
    ) -> Mapping[str, Sequence[str]]:
        return self._execute(bodies.list_beyond(requests))

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        self._execute(bodies.delete_rows(plans))

    def _squash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        self._execute(_postgres_squash.squash_rows(plans))

    def _copy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        with _target_taken(target_thread_id):
            self._execute(bodies.copy_rows(source_thread_id, target_thread_id, rows))

    def _list_orphans(self, thread_id: str) -> Orphans:
        return self._execute(inspecting.list_orphans(thread_id))

    def _read_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        args = (str(thread_id), checkpoint_ns, checkpoint_id)
        return self._execute(inspecting.read_history_end(*args))

    def _rewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        self._execute(rewrite_row(self.serde, config, values, metadata))

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Any]:
        """The host's cursor; inside a scope, one on its connection."""
        scope = _cursor_in_scope.get()
        if scope is None or scope[0] is not self:
            with super()._cursor(pipeline=pipeline) as cursor:
                yield cursor
        else:
            with scope[1].connection.cursor(binary=True, row_factory=dict_row) as cursor:
                yield cursor

    def _prune_settled_threads(self, thread_ids: Sequence[str]) -> frozenset[str]:
        return self._execute(prune_settled(thread_ids))

    def _list_run_threads(self, run_ids: Sequence[str]) -> Sequence[str]:
        return self._execute(bodies.list_run_threads(run_ids))

    @contextmanager
    def _transaction(self, begin: bodies.Begin) -> Iterator[None]:
        # Connections of a pool are not shared, so the graphs on the saver need not wait.
        lock = self.lock if isinstance(self.conn, Connection) else nullcontext()
        with lock, _internal.get_connection(self.conn) as conn:
            if self.pipe:
                # Else the transaction would take in what ran since the last sync.
                self.pipe.sync()
            nested = conn.info.transaction_status != TransactionStatus.IDLE
            with conn.transaction(), conn.cursor(binary=True, row_factory=tuple_row) as cursor:
                token = _cursor_in_scope.set((self, cursor))
                try:
                    settings = self._execute(begin(nested))
                    yield
                    self._execute(bodies.end(settings))
                finally:
                    _cursor_in_scope.reset(token)

    def _execute(self, statements: bodies.Statements[T]) -> T:
        scope = _cursor_in_scope.get()
        if scope is None or scope[0] is not self:
            with self._transaction(bodies.begin_reading):
                return self._execute(statements)
        rows: list[tuple[Any, ...]] | None = None
        while True:
            try:
                statement = statements.send(rows)  # type: ignore[arg-type]
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            scope[1].execute(statement.text, statement.params, prepare=False)
            rows = scope[1].fetchall() if statement.fetch else []


class AsyncDeltaPostgresSaver(
    SyncMethodsOnLoop,
    _PostgresTraits,
    DeltaChannelAwarePruneMixin,
    CopyAndDeleteForRunsMixin,
    AsyncTextIdPostgresSaver,
):
    """`AsyncPostgresSaver` with `aprune`, `acopy_thread` and `adelete_for_runs` for all threads.

    As upstream's, the sync methods work from any thread but the event loop's. Thread ids may be
    `str`, `int` or `UUID`.
    """

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls, conn_string: str, *, pipeline: bool = False, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[Self]:
        """A saver on a connection of its own, closed at the end."""
        opened = super().from_conn_string(conn_string, pipeline=pipeline, serde=serde)
        async with opened as saver:
            yield cast("Self", saver)

    @asynccontextmanager
    async def _acleanup_scope(self, thread_ids: Sequence[str]) -> AsyncIterator[None]:
        async with self._transaction(lambda nested: bodies.begin_cleanup(thread_ids, nested)):
            yield

    @asynccontextmanager
    async def _aread_scope(self, thread_ids: Sequence[str]) -> AsyncIterator[None]:
        async with self._transaction(bodies.begin_reading):
            yield

    async def _alist_checkpoint_rows(self, thread_ids: Sequence[str]) -> Listing:
        return await self._execute(bodies.list_rows(thread_ids))

    async def _alist_rows_with_runs(self, thread_ids: Sequence[str]) -> Listing:
        return await self._execute(bodies.list_rows_with_runs(thread_ids))

    async def _acount_checkpoint_rows(self, thread_ids: Sequence[str]) -> Mapping[str, int]:
        return await self._execute(bodies.count_rows(thread_ids))

    async def _aread_checkpoint_rows(self, thread_id: str, keys: Reads) -> Sequence[CheckpointRow]:
        return (await self._aread_batch_rows({thread_id: keys}))[thread_id]

    async def _aread_batch_rows(
        self, requests: Mapping[str, Reads]
    ) -> Mapping[str, Sequence[CheckpointRow]]:
        return await self._execute(bodies.read_rows(requests))

    async def _alist_rows_beyond(
        self, requests: Mapping[str, KnownChannels]
    ) -> Mapping[str, Sequence[str]]:
        return await self._execute(bodies.list_beyond(requests))

    async def _adelete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        await self._execute(bodies.delete_rows(plans))

    async def _asquash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        await self._execute(_postgres_squash.squash_rows(plans))

    async def _acopy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        with _target_taken(target_thread_id):
            await self._execute(bodies.copy_rows(source_thread_id, target_thread_id, rows))

    async def _alist_orphans(self, thread_id: str) -> Orphans:
        return await self._execute(inspecting.list_orphans(thread_id))

    async def _aread_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        args = (str(thread_id), checkpoint_ns, checkpoint_id)
        return await self._execute(inspecting.read_history_end(*args))

    async def _arewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        await self._execute(rewrite_row(self.serde, config, values, metadata))

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[Any]:
        """The host's cursor; inside a scope, one on its connection."""
        scope = _cursor_in_scope.get()
        if scope is None or scope[0] is not self:
            async with super()._cursor(pipeline=pipeline) as cursor:
                yield cursor
        else:
            async with scope[1].connection.cursor(binary=True, row_factory=dict_row) as cursor:
                yield cursor

    async def _aprune_settled_threads(self, thread_ids: Sequence[str]) -> frozenset[str]:
        return await self._execute(prune_settled(thread_ids))

    async def _alist_run_threads(self, run_ids: Sequence[str]) -> Sequence[str]:
        return await self._execute(bodies.list_run_threads(run_ids))

    @asynccontextmanager
    async def _transaction(self, begin: bodies.Begin) -> AsyncIterator[None]:
        lock = self.lock if isinstance(self.conn, AsyncConnection) else nullcontext()
        async with lock, _ainternal.get_connection(self.conn) as conn:
            if self.pipe:
                await self.pipe.sync()
            nested = conn.info.transaction_status != TransactionStatus.IDLE
            async with (
                _begun(conn.transaction()),
                conn.cursor(binary=True, row_factory=tuple_row) as cursor,
            ):
                token = _cursor_in_scope.set((self, cursor))
                try:
                    settings = await self._execute(begin(nested))
                    yield
                    await self._execute(bodies.end(settings))
                finally:
                    _cursor_in_scope.reset(token)

    async def _execute(self, statements: bodies.Statements[T]) -> T:
        scope = _cursor_in_scope.get()
        if scope is None or scope[0] is not self:
            async with self._transaction(bodies.begin_reading):
                return await self._execute(statements)
        rows: list[tuple[Any, ...]] | None = None
        while True:
            try:
                statement = statements.send(rows)  # type: ignore[arg-type]
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            await scope[1].execute(statement.text, statement.params, prepare=False)
            rows = await scope[1].fetchall() if statement.fetch else []


@asynccontextmanager
async def _begun(transaction: AbstractAsyncContextManager[Any]) -> AsyncIterator[None]:
    """The transaction; a task that is cancelled while it begins sees it end first.

    psycopg before 3.3.7 leaves it open, and the connection unusable.
    """
    async with AsyncExitStack() as stack:
        begin = asyncio.ensure_future(transaction.__aenter__())
        cancelled: asyncio.CancelledError | None = None
        while not begin.done():
            try:
                await asyncio.shield(begin)
            except asyncio.CancelledError as error:
                cancelled = error
        begin.result()
        stack.push_async_exit(transaction)
        if cancelled is not None:
            raise cancelled
        yield


@contextmanager
def _target_taken(thread_id: str) -> Iterator[None]:
    """Say plainly that a run has stored rows for the target meanwhile."""
    try:
        yield
    except errors.UniqueViolation as error:
        raise TargetThreadExistsError(thread_id) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
