"""MySQL: three tables, the namespace hashed in their keys, values apart by channel version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache

from langgraph.checkpoint.mysql.aio import AIOMySQLSaver
from langgraph.checkpoint.mysql.pymysql import PyMySQLSaver

from delta_mixin import CleanupPlan, CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin

NAMESPACE = "WHERE thread_id = %s AND checkpoint_ns_hash = UNHEX(MD5(%s))"
ROW = f"{NAMESPACE} AND checkpoint_id = %s"


def sweep(plan: CleanupPlan) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    def rows(keys: Sequence[tuple[object, ...]]) -> list[tuple[str, ...]]:
        return [(plan.thread_id, *map(str, key)) for key in keys]

    blob = f"{NAMESPACE} AND channel = %s AND version = %s"
    yield f"DELETE FROM checkpoint_writes {ROW}", rows(plan.doomed)
    yield f"DELETE FROM checkpoints {ROW}", rows(plan.doomed)
    yield f"DELETE FROM checkpoint_blobs {blob}", rows(plan.dead_blobs)
    dropped = rows([(ns,) for ns in plan.dropped_namespaces])
    yield f"DELETE FROM checkpoint_writes {NAMESPACE}", dropped
    yield f"UPDATE checkpoints SET parent_checkpoint_id = NULL {ROW}", rows(plan.detached)


class DeltaPyMySQLSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, PyMySQLSaver):
    NEWEST_ID_IS_HEAD = VERSIONED_BLOBS = LISTS_ALL_THREADS = True

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        with self._cursor(pipeline=True) as cursor:
            for plan in plans:
                for statement, rows in sweep(plan):
                    cursor.executemany(statement, rows)


class DeltaAIOMySQLSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, AIOMySQLSaver):
    NEWEST_ID_IS_HEAD = VERSIONED_BLOBS = LISTS_ALL_THREADS = True

    async def _adelete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        async with self._cursor(pipeline=True) as cursor:
            for plan in plans:
                for statement, rows in sweep(plan):
                    await cursor.executemany(statement, rows)


@contextmanager
def open_saver(
    where: str, saver_class: type[PyMySQLSaver] = DeltaPyMySQLSaver
) -> Iterator[PyMySQLSaver]:
    _make_tables(where)
    with saver_class.from_conn_string(where) as saver:
        with saver._cursor(pipeline=True) as cursor:
            for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
                cursor.execute(f"DELETE FROM {table}")
        yield saver


@asynccontextmanager
async def open_async_saver(
    where: str, saver_class: type[AIOMySQLSaver] = DeltaAIOMySQLSaver
) -> AsyncIterator[AIOMySQLSaver]:
    with open_saver(where):
        pass  # leaves empty tables
    async with saver_class.from_conn_string(where) as saver:
        yield saver


@cache
def _make_tables(where: str) -> None:
    # Twenty migrations: once for all tests, not for each.
    with PyMySQLSaver.from_conn_string(where) as saver:
        saver.setup()


UPSTREAM, ASYNC_UPSTREAM = PyMySQLSaver, AIOMySQLSaver
