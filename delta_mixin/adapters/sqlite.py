"""`DeltaSqliteSaver` and `AsyncDeltaSqliteSaver`: the host's SQLite savers with safe cleanup.

Reading, planning and sweeping of a thread are one `BEGIN IMMEDIATE` transaction under the
saver's own lock: a second process that writes to the file waits, and sees all or nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Any, TypeVar, cast

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from typing_extensions import Self

from delta_mixin.adapters import _sqlite_inspecting as inspecting
from delta_mixin.adapters import _sqlite_sql as sql
from delta_mixin.adapters import _sqlite_squash
from delta_mixin.adapters._loop import SyncMethodsOnLoop
from delta_mixin.adapters._sqlite_rewriting import ScopedLock, rewrite_row
from delta_mixin.errors import ReadOnlyDatabaseError
from delta_mixin.findings import HistoryEnd, Orphans
from delta_mixin.listing import Listing
from delta_mixin.mixins import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin
from delta_mixin.model import CheckpointRow, CleanupPlan, Reads

__all__ = ["AsyncDeltaSqliteSaver", "DeltaSqliteSaver"]

T = TypeVar("T")


class DeltaSqliteSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, SqliteSaver):
    """`SqliteSaver` with `prune`, `copy_thread` and `delete_for_runs`.

    The cleanup methods' async twins work in a worker thread; other async methods are not
    supported, as upstream. A transaction left open on the connection is committed first.
    """

    NEWEST_ID_IS_HEAD = True
    VALUES_BY_VERSION = False
    READS_IN_SCOPE = True

    _scope_thread: int | None = None
    """The thread that has a scope open, and with it the lock."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str) -> Iterator[Self]:
        """A saver on a new connection to a file, or to `":memory:"`, closed at the end."""
        with super().from_conn_string(conn_string) as saver:
            yield cast("Self", saver)  # upstream's is declared to yield its own class

    @contextmanager
    def _cleanup_scope(self, thread_ids: Sequence[str]) -> Iterator[None]:
        with self._transaction("IMMEDIATE"):
            yield

    @contextmanager
    def _read_scope(self, thread_ids: Sequence[str]) -> Iterator[None]:
        with self._transaction("DEFERRED"):
            yield

    def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> Listing:
        return self._execute(sql.list_rows(thread_ids))

    def _read_checkpoint_rows(self, thread_id: str, keys: Reads) -> list[CheckpointRow]:
        return self._execute(sql.read_rows(self.serde, thread_id, keys))

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        self._execute(sql.delete_rows(plans))

    def _squash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        self._execute(_sqlite_squash.squash_rows(self.serde, plans))

    def _copy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        self._execute(sql.copy_rows(source_thread_id, target_thread_id, rows))

    def _list_orphans(self, thread_id: str) -> Orphans:
        return self._execute(inspecting.list_orphans(thread_id))

    def _read_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        args = (str(thread_id), checkpoint_ns, checkpoint_id)
        with self.cursor(transaction=False):  # takes the lock
            return self._execute(inspecting.read_history_end(self.serde, *args))

    def _rewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        self._execute(rewrite_row(self.serde, config, values, metadata))

    def _list_run_threads(self, run_ids: Sequence[str]) -> list[str]:
        with self._read_scope(()):
            return self._execute(sql.list_run_threads(run_ids))

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """The host's cursor; inside a scope, without its lock and its commit."""
        if self._scope_thread == threading.get_ident():
            with closing(self.conn.cursor()) as cursor:
                yield cursor
        else:
            with super().cursor(transaction) as cursor:
                yield cursor

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        with self.lock, _read_only_named():
            self.setup()
            self.conn.commit()
            # Where connections have autocommit=False, the next transaction has begun already.
            always_open = self.conn.in_transaction
            try:
                if always_open:
                    self.conn.execute("COMMIT")
                self.conn.execute(f"BEGIN {kind}")
                self._scope_thread = threading.get_ident()
                yield
                self.conn.execute("COMMIT")  # commit() does nothing with autocommit=True
            except BaseException:
                with suppress(sqlite3.OperationalError):  # none is open if BEGIN failed
                    self.conn.execute("ROLLBACK")
                raise
            finally:
                self._scope_thread = None
                if always_open:
                    self.conn.execute("BEGIN")

    def _execute(self, statements: sql.Statements[T]) -> T:
        rows: Any = None
        while True:
            try:
                statement, parameters = statements.send(rows)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            rows = self.conn.execute(statement, parameters).fetchall()


class AsyncDeltaSqliteSaver(
    SyncMethodsOnLoop, DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, AsyncSqliteSaver
):
    """`AsyncSqliteSaver` with `aprune`, `acopy_thread` and `adelete_for_runs`.

    As upstream's, the sync methods work from any thread but the event loop's.
    """

    NEWEST_ID_IS_HEAD = True
    VALUES_BY_VERSION = False
    READS_IN_SCOPE = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lock = self._scoped_lock = ScopedLock()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string: str) -> AsyncIterator[Self]:
        """A saver on a new connection to a file, or to `":memory:"`, closed at the end."""
        async with super().from_conn_string(conn_string) as saver:
            yield cast("Self", saver)  # upstream's is declared to yield its own class

    @asynccontextmanager
    async def _acleanup_scope(self, thread_ids: Sequence[str]) -> AsyncIterator[None]:
        async with self._transaction("IMMEDIATE"):
            yield

    @asynccontextmanager
    async def _aread_scope(self, thread_ids: Sequence[str]) -> AsyncIterator[None]:
        async with self._transaction("DEFERRED"):
            yield

    async def _alist_checkpoint_rows(self, thread_ids: Sequence[str]) -> Listing:
        return await self._aexecute(sql.list_rows(thread_ids))

    async def _aread_checkpoint_rows(self, thread_id: str, keys: Reads) -> list[CheckpointRow]:
        return await self._aexecute(sql.read_rows(self.serde, thread_id, keys))

    async def _adelete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        await self._aexecute(sql.delete_rows(plans))

    async def _asquash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        await self._aexecute(_sqlite_squash.squash_rows(self.serde, plans))

    async def _acopy_checkpoint_rows(
        self, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
    ) -> None:
        await self._aexecute(sql.copy_rows(source_thread_id, target_thread_id, rows))

    async def _alist_orphans(self, thread_id: str) -> Orphans:
        return await self._aexecute(inspecting.list_orphans(thread_id))

    async def _aread_history_end(
        self, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
    ) -> HistoryEnd | None:
        await self.setup()
        args = (str(thread_id), checkpoint_ns, checkpoint_id)
        async with self.lock:
            return await self._aexecute(inspecting.read_history_end(self.serde, *args))

    async def _arewrite_checkpoint(
        self, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> None:
        await self._aexecute(rewrite_row(self.serde, config, values, metadata))

    async def _alist_run_threads(self, run_ids: Sequence[str]) -> list[str]:
        async with self._aread_scope(()):
            return await self._aexecute(sql.list_run_threads(run_ids))

    @asynccontextmanager
    async def _transaction(self, kind: str) -> AsyncIterator[None]:
        with _read_only_named():
            await self.setup()
            async with self.lock:
                await self.conn.commit()
                always_open = self.conn.in_transaction
                try:
                    if always_open:
                        await self.conn.execute("COMMIT")
                    await self.conn.execute(f"BEGIN {kind}")
                    self._scoped_lock.scope = asyncio.current_task()
                    yield
                    await self.conn.execute("COMMIT")
                except BaseException:
                    # Queued behind a statement that a cancelled task has left running.
                    with suppress(sqlite3.OperationalError):
                        await self.conn.execute("ROLLBACK")
                    raise
                finally:
                    self._scoped_lock.scope = None
                    if always_open:
                        await self.conn.execute("BEGIN")

    async def _aexecute(self, statements: sql.Statements[T]) -> T:
        rows: Any = None
        while True:
            try:
                statement, parameters = statements.send(rows)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            rows = list(await self.conn.execute_fetchall(statement, parameters))


@contextmanager
def _read_only_named() -> Iterator[None]:
    """Say plainly that the file cannot be written to."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "readonly" not in str(error):
            raise
        raise ReadOnlyDatabaseError(
            f"the SQLite database cannot be written to ({error}); nothing was changed. "
            "Open it without mode=ro, and check the permissions of the file and its folder"
        ) from error
