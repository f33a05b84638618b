"""Public typing as users of the package see it: `mypy --strict` must pass on this file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from psycopg import AsyncConnection, Connection
from psycopg.rows import DictRow
from psycopg_pool import ConnectionPool
from typing_extensions import TypedDict, assert_type

from delta_mixin import (
    BaseRow,
    BlobKey,
    CheckpointRow,
    CleanupPlan,
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
    Reads,
    Reason,
    RowKey,
    SeveredHistoryError,
    StrictDeltaHistoryMixin,
    compaction,
    is_base_row,
)
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.findings import Finding, ThreadReport
from delta_mixin.recovery import Recovery, arecover, recover
from delta_mixin.schema import (
    SchemaBehindError,
    aopen_checkpointer,
    check_schema,
    open_checkpointer,
    render_migration,
    runtime_grants,
)
from delta_mixin.schema.testing import assert_migrations_match_setup
from delta_mixin.testing import CleanupStateMachine, SaverContract
from delta_mixin.verification import averify_thread, verify_thread

config: RunnableConfig = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    log: list[str]


def opened() -> None:
    with DeltaSqliteSaver.from_conn_string(":memory:") as saver:
        assert_type(saver, DeltaSqliteSaver)
        saver.prune(["1"], keep_last=5)


async def aopened() -> None:
    async with AsyncDeltaSqliteSaver.from_conn_string(":memory:") as saver:
        assert_type(saver, AsyncDeltaSqliteSaver)
        await saver.aprune(["1"], keep_last=5)


def use(saver: DeltaSqliteSaver | DeltaInMemorySaver) -> None:
    host: BaseCheckpointSaver[Any] = saver
    assert_type(host.get_tuple(config), CheckpointTuple | None)
    saver.prune(["1", 2, uuid4()])
    saver.prune(
        ("1",),
        strategy="keep_latest",
        keep_last=3,
        older_than=timedelta(days=1),
        pinned=["id"],
        delta="skip",
        severed="ignore",
        on_plan=print,
    )
    saver.prune(["1"], older_than=datetime.now(timezone.utc), on_plan=list[CleanupPlan]().append)
    assert_type(saver.plan_prune(["1"]), list[CleanupPlan])
    assert_type(saver.get_delta_channel_keepset(config, ["log"]), set[str])
    saver.copy_thread("1", 2, checkpoint_id="id", delta="squash")
    saver.prune(["1"], delta="squash")
    saver.delete_for_runs(["run"], delta="squash")
    saver.delete_for_runs([uuid4(), "run"], thread_ids=["1"], on_plan=print)
    assert_type(saver.plan_delete_for_runs(["run"]), list[CleanupPlan])


async def ause(saver: AsyncDeltaSqliteSaver) -> None:
    async def report(plan: CleanupPlan) -> None:
        print(plan.thread_id)

    await saver.aprune(["1"], keep_last=2, on_plan=report)
    assert_type(await saver.aplan_prune(["1"]), list[CleanupPlan])
    assert_type(await saver.aget_delta_channel_keepset(config, ["log"]), set[str])
    await saver.acopy_thread("1", "2")
    await saver.adelete_for_runs(["run"], on_plan=report)
    assert_type(await saver.aplan_delete_for_runs(["run"]), list[CleanupPlan])


def read(plan: CleanupPlan, saved: CheckpointTuple) -> None:
    for key, reasons in plan.kept.items():
        assert_type(key, RowKey)
        assert_type(reasons, tuple[Reason, ...])
    ns, checkpoint_id = plan.doomed[0]
    assert_type(ns, str)
    assert_type(checkpoint_id, str)
    assert_type(plan.dead_blobs, tuple[BlobKey, ...])
    assert_type(plan.bases, tuple[BaseRow, ...])
    assert_type(is_base_row(saved.metadata), bool)
    assert_type(plan.heads[""], str | None)
    assert_type(CheckpointRow.from_tuple(saved), CheckpointRow)


def compacted(graph: CompiledStateGraph[State, None, State, State], told: list[str]) -> None:
    named = {"log": DeltaChannel(lambda state, writes: state, list)}
    reports = compaction.compact(
        graph, ["1", 2], channels=named, prune=True, keep_last=2, pinned=["id"], on_report=print
    )
    assert_type(reports, list[compaction.CompactionReport])
    for report in reports:
        told += [channel for channels in report.compacted.values() for channel in channels]
        told += [left.why for left in report.left]
        assert_type(report.plan, CleanupPlan | None)
    compaction.delete_for_runs(graph, ["run"], thread_ids=["1"], saver=DeltaInMemorySaver())
    copied = compaction.copy_thread(graph, "1", "2", checkpoint_id="id")
    assert_type(copied.rows_after, int)
    compaction.compact(graph, ["1"], prune="yes")  # type: ignore[arg-type]
    compaction.copy_thread(graph, "1", "2")  # type: ignore[call-arg]


async def acompacted(graph: CompiledStateGraph[State, None, State, State]) -> None:
    assert_type(await compaction.acompact(graph, ["1"]), list[compaction.CompactionReport])
    await compaction.adelete_for_runs(graph, ["run"])
    await compaction.acopy_thread(graph, "1", "2", checkpoint_id="id")


def refused(saver: DeltaSqliteSaver) -> None:
    saver.prune("1", delta="maybe")  # type: ignore[arg-type]
    saver.prune(["1"], keep_last="3")  # type: ignore[arg-type]
    saver.prune(["1"], "delete")  # type: ignore[call-arg]
    saver.copy_thread("1")  # type: ignore[call-arg]
    try:
        saver.prune(["1"])
    except SeveredHistoryError as error:
        assert_type(error.threads, tuple[str, ...])


class Sync(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver):
    DELTA_CHANNELS = ("log",)
    CLEANUP_BATCH_SIZE = 100

    def _list_checkpoint_rows(self, thread_ids: Sequence[str]) -> list[CheckpointRow]:
        return [CheckpointRow(t, "", "id", parent_id=None) for t in thread_ids]

    def _read_checkpoint_rows(self, thread_id: str, keys: Reads) -> Iterator[CheckpointRow]:
        for (ns, checkpoint_id), parts in keys.items():
            assert_type(ns, str)
            if "metadata" in parts:
                yield CheckpointRow(thread_id, ns, checkpoint_id, metadata={})

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            assert_type(plan.doomed_ids(), dict[str, list[str]])

    def _list_run_threads(self, run_ids: Sequence[str]) -> set[str]:
        return set(self.storage)

    @contextmanager
    def _cleanup_scope(self, thread_ids: Sequence[str]) -> Iterator[None]:
        yield


class Async(DeltaChannelAwarePruneMixin, InMemorySaver):
    async def _alist_checkpoint_rows(self, thread_ids: Sequence[str]) -> list[CheckpointRow]:
        return []

    async def _adelete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        pass

    @asynccontextmanager
    async def _acleanup_scope(self, thread_ids: Sequence[str]) -> AsyncIterator[None]:
        yield


class TestSync(SaverContract):
    sides = ("sync",)

    @contextmanager
    def make_saver(self) -> Iterator[DeltaSqliteSaver]:
        with DeltaSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver


class TestAsync(SaverContract):
    @asynccontextmanager
    async def make_saver(self) -> AsyncIterator[AsyncDeltaSqliteSaver]:
        async with AsyncDeltaSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver


class Machine(CleanupStateMachine):
    EXACT = False

    def make_saver(self) -> DeltaInMemorySaver:
        return DeltaInMemorySaver()


def own_the_schema(pool: ConnectionPool[Connection[DictRow]]) -> DeltaPostgresSaver:
    texts: list[str] = [file.text for file in render_migration(from_version=4).files]
    with pool.connection() as conn:
        assert_migrations_match_setup(conn, texts)
        for statement in runtime_grants("app", schema="agents"):
            conn.execute(statement)
        problems: tuple[str, ...] = check_schema(conn, schema="agents").problems
        conn.execute("SELECT %s", [list(problems)])
    try:
        return open_checkpointer(pool, schema="agents")
    except SchemaBehindError as behind:
        missing: tuple[int, ...] = behind.missing
        raise SystemExit(str(missing)) from behind


async def open_async(conn: AsyncConnection[DictRow]) -> AsyncDeltaPostgresSaver:
    return await aopen_checkpointer(conn)


class StrictSqlite(StrictDeltaHistoryMixin, DeltaSqliteSaver):
    pass


def look_for_damage(saver: InMemorySaver, strict: StrictSqlite, channel: DeltaChannel[Any]) -> None:
    report = verify_thread(saver, "1", channels=["log"])
    assert_type(report, ThreadReport)
    assert_type(report.findings, tuple[Finding, ...])
    assert_type(recover(strict, "1", {"log": channel}, apply=True), Recovery)


async def alook_for_damage(saver: AsyncDeltaSqliteSaver, graph: CompiledStateGraph[Any]) -> None:
    assert_type(await averify_thread(saver, "1"), ThreadReport)
    assert_type(await arecover(saver, "1", graph), Recovery)
