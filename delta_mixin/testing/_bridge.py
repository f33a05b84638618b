"""One synchronous view of any saver, sync or async.

Suites and state machines are synchronous. `open_saver` enters whatever `make_saver()` returns
and yields a `SyncView`: each method calls the saver's own, or runs its `a...` twin on an event
loop in a background thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
)
from typing import Any, Literal, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

T = TypeVar("T")

Side = Literal["sync", "async"]
SaverContext = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]

BASE_METHODS = ("get_tuple", "put", "put_writes", "delete_thread", "get_delta_channel_history")
CLEANUP_METHODS = (
    "get_delta_channel_keepset",
    "prune",
    "plan_prune",
    "copy_thread",
    "delete_for_runs",
    "plan_delete_for_runs",
)


class SyncView:
    """A saver as seen from one of its sides; all methods are synchronous.

    Cleanup methods always go through `side`. The host's own methods go through the other side
    where the saver does not have them on this one, as `SqliteSaver` lacks the async ones.

    Attributes:
        saver: The saver itself.
        side: `"sync"` or `"async"`.
        base_sides: The sides on which the host's own methods work.
        base_side: The side that the host's own methods are called on.
        threads: The hand-made threads written through it, whose story a failure tells.
    """

    def __init__(
        self,
        saver: Any,
        side: Side,
        loop: asyncio.AbstractEventLoop,
        base_sides: tuple[Side, ...] | None = None,
    ) -> None:
        self.saver = saver
        self.threads: list[Any] = []
        self.side: Side = side
        self._loop = loop
        self.base_sides = _base_sides(self) if base_sides is None else base_sides
        self.base_side: Side = side if side in self.base_sides else self.base_sides[0]

    def __repr__(self) -> str:
        return f"<{self.side} view of {type(self.saver).__name__}>"

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop the saver lives on."""
        return _run_on(self._loop, coro)

    def seen_from(self, side: Side) -> SyncView:
        """The same saver seen from the given side."""
        return SyncView(self.saver, side, self._loop, self.base_sides)

    def other_side(self) -> SyncView:
        """The same saver seen from its other side.

        Raises:
            LookupError: If the host's own methods do not work on both sides.
        """
        if len(self.base_sides) < 2:
            raise LookupError(
                f"{type(self.saver).__name__} can be read and written on its "
                f"{self.base_sides[0]} side only"
            )
        return self.seen_from("async" if self.side == "sync" else "sync")

    def offers(self, name: str) -> bool:
        """Whether the saver has a cleanup method of its own, not just the host's refusal."""
        method = name if self.side == "sync" else f"a{name}"
        own = getattr(type(self.saver), method, None)
        return own is not None and own is not getattr(BaseCheckpointSaver, method, None)

    @property
    def squashes(self) -> bool:
        """Whether the saver writes the hook for `delta="squash"`."""
        writes = getattr(self.saver, "_writes_hook", lambda name: False)
        return any(map(writes, ("_squash_checkpoint_rows", "_asquash_checkpoint_rows")))

    def config(
        self, thread_id: Any, checkpoint_ns: str | None = "", checkpoint_id: str | None = None
    ) -> Any:
        """The config that addresses a thread, namespace or checkpoint of this saver."""
        make = getattr(self.saver, "_checkpoint_config", None)
        if make is not None:
            return make(thread_id, checkpoint_ns, checkpoint_id)
        parts = {"checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
        given = {name: part for name, part in parts.items() if part is not None}
        return {"configurable": {"thread_id": thread_id, **given}}

    # -- the host's own methods --------------------------------------------------------------

    def get_tuple(self, config: Any) -> Any:
        """`get_tuple` or `aget_tuple`."""
        return self._call(self.base_side, "get_tuple", config)

    def list(self, config: Any, **options: Any) -> list[Any]:
        """`list` or `alist`, exhausted."""
        if self.base_side == "sync":
            return [*self.saver.list(config, **options)]

        async def collect() -> list[Any]:
            return [saved async for saved in self.saver.alist(config, **options)]

        return self.run(collect())

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """`put` or `aput`."""
        return self._call(self.base_side, "put", config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """`put_writes` or `aput_writes`."""
        self._call(self.base_side, "put_writes", config, writes, task_id, task_path)

    def delete_thread(self, thread_id: Any) -> None:
        """`delete_thread` or `adelete_thread`."""
        self._call(self.base_side, "delete_thread", thread_id)

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Any:
        """`get_delta_channel_history` or `aget_delta_channel_history`."""
        name = "get_delta_channel_history"
        return self._call(self.base_side, name, config=config, channels=channels)

    # -- cleanup -----------------------------------------------------------------------------

    def get_delta_channel_keepset(self, config: Any, channels: Any) -> set[str]:
        """`get_delta_channel_keepset` or `aget_delta_channel_keepset`."""
        name = "get_delta_channel_keepset"
        return set(self._call(self.side, name, config, channels))

    def prune(self, thread_ids: Any, **options: Any) -> None:
        """`prune` or `aprune`."""
        self._call(self.side, "prune", thread_ids, **options)

    def plan_prune(self, thread_ids: Any, **options: Any) -> Any:
        """`plan_prune` or `aplan_prune`."""
        return self._call(self.side, "plan_prune", thread_ids, **options)

    def copy_thread(self, source_thread_id: Any, target_thread_id: Any, **options: Any) -> None:
        """`copy_thread` or `acopy_thread`."""
        self._call(self.side, "copy_thread", source_thread_id, target_thread_id, **options)

    def delete_for_runs(self, run_ids: Any, **options: Any) -> None:
        """`delete_for_runs` or `adelete_for_runs`."""
        self._call(self.side, "delete_for_runs", run_ids, **options)

    def plan_delete_for_runs(self, run_ids: Any, **options: Any) -> Any:
        """`plan_delete_for_runs` or `aplan_delete_for_runs`."""
        return self._call(self.side, "plan_delete_for_runs", run_ids, **options)

    def _call(self, side: Side, name: str, *args: Any, **kwargs: Any) -> Any:
        if side == "sync":
            return getattr(self.saver, name)(*args, **kwargs)
        return self.run(getattr(self.saver, f"a{name}")(*args, **kwargs))


@contextmanager
def open_saver(
    make_saver: Callable[[], SaverContext], side: Side | None = None
) -> Iterator[SyncView]:
    """Enter what `make_saver()` returns and view the saver it yields.

    Args:
        make_saver: Returns a sync or an async context manager that yields a fresh saver. An
            async one is entered and left on an event loop in a background thread, in one task.
        side: The side to look from; by default the one that matches the context manager.

    Raises:
        TypeError: If `make_saver()` returns neither kind of context manager.
    """
    with _loop_in_thread() as loop:
        context = make_saver()
        if isinstance(context, AbstractContextManager):
            with context as saver:
                yield SyncView(saver, side or "sync", loop)
        elif isinstance(context, AbstractAsyncContextManager):
            with _entered_on(loop, context) as saver:
                yield SyncView(saver, side or "async", loop)
        else:
            raise TypeError(
                f"make_saver() must return a sync or async context manager that yields a saver, "
                f"got {context!r}; decorate it with @contextmanager and yield the saver"
            )


def _run_on(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coro, loop).result()


@contextmanager
def _loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="saver event loop", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        _run_on(loop, loop.shutdown_asyncgens())
        _run_on(loop, loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def _entered_on(
    loop: asyncio.AbstractEventLoop, context: AbstractAsyncContextManager[Any]
) -> Iterator[Any]:
    ready: Future[Any] = Future()
    leave = asyncio.Event()

    async def stay() -> None:
        # Entered and left in one task, which cancel scopes of connection pools insist on.
        try:
            async with context as saver:
                ready.set_result(saver)
                await leave.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    stayed = asyncio.run_coroutine_threadsafe(stay(), loop)
    saver = ready.result()
    try:
        yield saver
    finally:
        loop.call_soon_threadsafe(leave.set)
        stayed.result()


def _base_sides(view: SyncView) -> tuple[Side, ...]:
    config = view.config("no-such-thread")
    sides: list[Side] = []
    for side in ("sync", "async"):
        try:
            view._call(side, "get_tuple", config)
        except NotImplementedError:
            continue
        sides.append(side)
    if not sides:
        raise TypeError(f"{type(view.saver).__name__} has neither get_tuple nor aget_tuple")
    return tuple(sides)
