"""What only the async saver can meet: cancelled tasks, and sync methods beside its event loop."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import aiosqlite
import pytest

from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
OPERATIONS: dict[str, Any] = {
    "aprune": (["t"],),
    "acopy_thread": ("t", "copy"),
    "adelete_for_runs": (["run-2"],),
}


@pytest.fixture
def filled(path: str, threads: Any) -> str:
    with closing(sqlite3.connect(path)) as conn:
        threads.write_thread(conn, "t", 58)
    return path


async def cancelled_at(
    saver: AsyncDeltaSqliteSaver, operation: str, statement: int, again: int
) -> int:
    """Cancel an operation while its n-th statement runs; returns how many were begun.

    Cancels so many times more, as nested timeouts and a closing loop do.
    """
    begun = 0
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(getattr(saver, operation)(*OPERATIONS[operation]))

    def cancel(times: int) -> None:
        task.cancel()
        if times:
            loop.call_soon(cancel, times - 1)

    def count(_: str) -> None:
        nonlocal begun
        begun += 1
        if begun == statement:
            loop.call_soon_threadsafe(cancel, again)

    await saver.conn.set_trace_callback(count)
    await asyncio.wait([task])
    await saver.conn.set_trace_callback(None)  # type: ignore[arg-type]
    if not task.cancelled():
        task.result()
    return begun


@pytest.mark.parametrize("autocommit", [None, True])
@pytest.mark.parametrize("again", [0, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_cancelled_task_leaves_nothing_half_done_and_the_saver_usable(
    operation: str, again: int, autocommit: bool | None, filled: str, rows_of: Any
) -> None:
    if autocommit and not hasattr(sqlite3.Connection, "autocommit"):
        pytest.skip("sqlite3 of this Python has no autocommit")
    options: Any = {} if autocommit is None else {"autocommit": autocommit}
    before = rows_of(filled)
    shutil.copyfile(filled, f"{filled}.whole")
    asyncio.run(undisturbed(f"{filled}.whole", operation))
    after = rows_of(f"{filled}.whole")
    assert before != after

    async def main() -> int:
        async with aiosqlite.connect(filled, **options) as conn:
            saver = AsyncDeltaSqliteSaver(conn)
            await saver.setup()
            statement = 0
            while rows_of(filled) == before:
                statement += 1
                begun = await cancelled_at(saver, operation, statement, again)
                assert begun >= statement
                assert not conn.in_transaction
                assert not saver.lock.locked()
                assert await saver.aget_tuple(CONFIG) is not None
            assert rows_of(filled) == after
            await saver.aprune(["t"])
            return statement

    assert asyncio.run(main()) > 4, "cancelled at too few statements to tell"


async def undisturbed(path: str, operation: str) -> None:
    async with AsyncDeltaSqliteSaver.from_conn_string(path) as saver:
        await getattr(saver, operation)(*OPERATIONS[operation])


def test_sync_methods_refuse_the_event_loops_own_thread(filled: str, rows_of: Any) -> None:
    before = rows_of(filled)

    async def main() -> None:
        async with AsyncDeltaSqliteSaver.from_conn_string(filled) as saver:
            with pytest.raises(asyncio.InvalidStateError):
                saver.get_tuple(CONFIG)  # upstream's own
            for call in (
                lambda: saver.prune(["t"]),
                lambda: saver.plan_prune(["t"]),
                lambda: saver.copy_thread("t", "copy"),
                lambda: saver.delete_for_runs(["run-2"]),
                lambda: saver.plan_delete_for_runs(["run-2"]),
                lambda: saver.get_delta_channel_keepset(CONFIG, ["log"]),
            ):
                with pytest.raises(asyncio.InvalidStateError, match="use `await a"):
                    call()

    asyncio.run(main())
    assert rows_of(filled) == before


def test_sync_methods_work_from_another_thread(filled: str, ids_of: Any) -> None:
    async def main() -> None:
        async with AsyncDeltaSqliteSaver.from_conn_string(filled) as saver:
            (plan,) = await asyncio.to_thread(saver.plan_prune, ["t"])
            assert len(plan.kept) == 9
            keepset = await asyncio.to_thread(saver.get_delta_channel_keepset, CONFIG, ["log"])
            assert keepset == {key.checkpoint_id for key in plan.kept}
            await asyncio.to_thread(saver.copy_thread, "t", "copy")
            await asyncio.to_thread(lambda: saver.delete_for_runs(["run-2"], thread_ids=["t"]))
            assert len(ids_of(filled, "t")) == 49
            await asyncio.to_thread(saver.prune, ["t"])

    asyncio.run(main())
    assert len(ids_of(filled, "t")) == 9
    assert len(ids_of(filled, "copy")) == 58
