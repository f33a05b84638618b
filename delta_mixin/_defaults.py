"""Default hooks over a saver's public API, for both sides in one body each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from delta_mixin._drive import Call, Steps
from delta_mixin.errors import MissingHookError
from delta_mixin.findings import HistoryEnd
from delta_mixin.model import CheckpointRow, Reads


def list_checkpoint_rows(saver: Any, thread_ids: Sequence[str]) -> Steps[list[CheckpointRow]]:
    """All rows of the threads, namespace by namespace where the saver names them."""
    rows: dict[tuple[str, str, str], CheckpointRow] = {}
    for thread_id in thread_ids:
        namespaces: Iterable[str | None] = [None]
        if saver._writes_hook("_list_namespaces"):
            namespaces = yield Call("_list_namespaces", (thread_id,))
        for ns in namespaces:
            for saved in (yield Call("list", (saver._checkpoint_config(thread_id, ns, None),))):
                row = CheckpointRow.from_tuple(saved)
                # Some savers match prefixes, ignore the namespace or list a row twice.
                if row.thread_id == thread_id and ns in (None, row.checkpoint_ns):
                    rows.setdefault((thread_id, *row.key), row)
    return list(rows.values())


def list_namespaces(saver: Any, thread_id: str) -> Steps[list[str]]:
    """The namespaces that `list()` without a namespace shows, and the root namespace."""
    config = saver._checkpoint_config(thread_id, None, None)
    found: dict[str, None] = {"": None}
    for saved in (yield Call("list", (config,))):
        conf = saved.config["configurable"]
        if str(conf["thread_id"]) == thread_id:
            found[conf.get("checkpoint_ns", "")] = None
    return list(found)


def read_checkpoint_rows(saver: Any, thread_id: str, keys: Reads) -> Steps[list[CheckpointRow]]:
    """The rows named by `keys` through `get_tuple`, complete; absent ones are left out."""
    rows = []
    for ns, checkpoint_id in keys:
        config = saver._checkpoint_config(thread_id, ns, checkpoint_id)
        saved = yield Call("get_tuple", (config,))
        if saved is not None and saved.checkpoint["id"] == checkpoint_id:
            rows.append(CheckpointRow.from_tuple(saved))
    return rows


def read_batch_rows(requests: Mapping[str, Reads]) -> Steps[dict[str, Iterable[CheckpointRow]]]:
    """Each thread's rows through its own `_read_checkpoint_rows`."""
    rows: dict[str, Iterable[CheckpointRow]] = {}
    for thread_id, keys in requests.items():
        rows[thread_id] = yield Call("_read_checkpoint_rows", (thread_id, keys))
    return rows


def count_checkpoint_rows() -> Steps[dict[str, int]]:
    """No count of any thread."""
    yield from ()
    return {}


def list_orphans() -> Steps[None]:
    """Nothing is known of what the store holds besides checkpoints."""
    yield from ()


def read_history_end(
    saver: Any, thread_id: Any, checkpoint_ns: str, checkpoint_id: str | None
) -> Steps[HistoryEnd | None]:
    """The end of a chain in one listing; what that leaves out is looked up before it is missed."""
    listed: dict[str | None, CheckpointRow] = {}
    config = saver._checkpoint_config(thread_id, checkpoint_ns, None)
    for saved in (yield Call("list", (config,))):
        row = CheckpointRow.from_tuple(saved)
        if row.thread_id == str(thread_id) and row.checkpoint_ns == checkpoint_ns:
            listed.setdefault(row.checkpoint_id, row)
    passed: dict[str, CheckpointRow] = {}
    wanted = checkpoint_id
    while wanted not in passed:
        found = listed.get(wanted)
        if found is None:
            config = saver._checkpoint_config(thread_id, checkpoint_ns, wanted)
            saved = yield Call("get_tuple", (config,))
            if saved is None or wanted not in (None, saved.checkpoint["id"]):
                return HistoryEnd([*passed.values()][-1], "missing") if passed else None
            found = CheckpointRow.from_tuple(saved)
        passed[found.checkpoint_id] = found
        wanted = found.parent_id
        if wanted is None:
            return HistoryEnd(found, "start")
    return HistoryEnd([*passed.values()][-1], "loop")


def list_run_threads(saver: Any, run_ids: Sequence[str]) -> Steps[list[str]]:
    """Threads that `list(None, filter=...)` finds for the runs.

    Raises:
        MissingHookError: If the saver does not say that this works.
    """
    if not saver.LISTS_ALL_THREADS:
        raise MissingHookError(
            f"{type(saver).__name__} cannot tell which threads hold rows of a run: pass "
            "thread_ids=[...], write the hook _list_run_threads, or set "
            "LISTS_ALL_THREADS = True if list(None, filter={'run_id': ...}) lists all threads"
        )
    threads: dict[str, None] = {}
    for run_id in run_ids:
        for saved in (yield Call("list", (None,), {"filter": {"run_id": run_id}})):
            threads[str(saved.config["configurable"]["thread_id"])] = None
    return list(threads)


def copy_checkpoint_rows(
    saver: Any, source_thread_id: str, target_thread_id: str, rows: Sequence[CheckpointRow]
) -> Steps[None]:
    """Read each row from the source and put it to the target, oldest first.

    A failure half-way removes the target again.
    """
    try:
        for row in sorted(rows, key=lambda r: r.checkpoint_id):
            yield from _copy_row(saver, row, source_thread_id, target_thread_id)
    except BaseException:
        # It held nothing before. A saver without `delete_thread` keeps the torso.
        with suppress(NotImplementedError):
            yield Call("delete_thread", (target_thread_id,))
        raise


def _copy_row(saver: Any, row: CheckpointRow, source: str, target: str) -> Steps[None]:
    ns, checkpoint_id = row.key
    saved = yield Call("get_tuple", (saver._checkpoint_config(source, ns, checkpoint_id),))
    if saved is None:
        raise LookupError(f"checkpoint {checkpoint_id} of thread {source!r} is gone while copying")
    stored = yield Call(
        "put",
        (
            saver._checkpoint_config(target, ns, row.parent_id),
            saved.checkpoint,
            saved.metadata,
            saved.checkpoint.get("channel_versions") or {},
        ),
    )
    writes = _by_task(saved.pending_writes or ())
    for position, (task_id, task_writes) in enumerate(writes.items()):
        # `get_tuple` gives the writes in order but not their paths: number them instead.
        yield Call("put_writes", (stored, task_writes, task_id, f"{position:010d}"))


def _by_task(
    pending_writes: Iterable[tuple[str, str, Any]],
) -> Mapping[str, list[tuple[str, Any]]]:
    by_task: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in pending_writes:
        by_task.setdefault(task_id, []).append((channel, value))
    return by_task
