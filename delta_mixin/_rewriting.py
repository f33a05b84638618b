"""The default `_rewrite_checkpoint`: over the public API, tried on a thread of its own first.

Base savers promise nothing for a checkpoint that is put a second time. So the row is first put
twice, with its pending writes, under a thread id that nobody uses, and read back. Only a saver
that passes this gets the real row again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from delta_mixin._defaults import _by_task
from delta_mixin._drive import Call, Steps
from delta_mixin._resolving import abbreviated, same
from delta_mixin.errors import RewriteUnsafeError


def rewrite_checkpoint(
    saver: Any, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Steps[None]:
    """Put the row again with these values and this metadata; `None` takes a value away.

    Raises:
        RewriteUnsafeError: If the saver does not keep a row together when it is put again.
        LookupError: If the row is gone.
    """
    conf = config["configurable"]
    thread_id, ns = str(conf["thread_id"]), conf.get("checkpoint_ns", "")
    saved = yield Call("get_tuple", (config,))
    if saved is None:
        raise LookupError(
            f"checkpoint {conf['checkpoint_id']} of thread {thread_id!r} is gone while rewriting"
        )
    changed = _changed(saved, values)
    yield from _rehearse(saver, saved, ns, changed, values, metadata)
    parent = _parent_id(saved)
    yield from _put(saver, thread_id, ns, parent, changed, metadata, values)
    found = yield Call("get_tuple", (config,))
    if fault := fault_of(saver.serde, saved, found, changed, metadata, exact=False):
        yield from _put(saver, thread_id, ns, parent, saved.checkpoint, saved.metadata, values)
        raise _unsafe(saver, fault)


def _rehearse(
    saver: Any,
    saved: Any,
    ns: str,
    changed: Mapping[str, Any],
    values: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> Steps[None]:
    thread_id = f"rehearsal-{uuid.uuid4()}"
    try:
        yield Call("delete_thread", (thread_id,))
    except NotImplementedError:
        raise _unsafe(
            saver, "it has no delete_thread to clear away a first trial with", tried=False
        ) from None
    fault: str | None
    try:
        parent = _parent_id(saved)
        versions = saved.checkpoint["channel_versions"]
        stored = yield from _put(
            saver, thread_id, ns, parent, saved.checkpoint, saved.metadata, versions
        )
        writes = _by_task(saved.pending_writes or ())
        for position, (task_id, task_writes) in enumerate(writes.items()):
            yield Call("put_writes", (stored, task_writes, task_id, f"{position:010d}"))
        before = yield Call("get_tuple", (stored,))
        yield from _put(saver, thread_id, ns, parent, changed, metadata, values)
        found = yield Call("get_tuple", (stored,))
        listed = yield Call("list", (saver._checkpoint_config(thread_id, ns, None),))
        # Some savers match prefixes or list other namespaces too.
        ids = [s.checkpoint["id"] for s in listed]
        if before is None:
            fault = "a checkpoint put to another thread is not found there"
        elif (count := ids.count(saved.checkpoint["id"])) != 1:
            fault = f"the checkpoint is listed {count} times"
        else:
            fault = fault_of(saver.serde, before, found, changed, metadata, exact=True)
    except Exception as error:
        raise _unsafe(saver, f"it raised {type(error).__name__}: {error}") from error
    finally:
        yield Call("delete_thread", (thread_id,))
    if fault:
        raise _unsafe(saver, fault)


def fault_of(
    serde: Any,
    before: Any,
    found: Any,
    changed: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    exact: bool,
    shared: Collection[str] = (),
) -> str | None:
    """What is wrong with a row that was put again.

    Args:
        serde: Of the saver.
        before: The row as it was.
        found: The row as it is.
        changed: The checkpoint it should have.
        metadata: The metadata it should have.
        exact: Whether nobody else can have added writes meanwhile.
        shared: Channels of which values may show that the row had not.
    """
    if found is None:
        return "the checkpoint is gone"
    if _parent_id(found) != _parent_id(before):
        return f"its parent is {_parent_id(found)}, not {_parent_id(before)}"
    if not holds_writes(serde, found, before, exact=exact):
        was, now = len(before.pending_writes or ()), len(found.pending_writes or ())
        return f"its pending writes are not the same ({now} for {was})"
    values = found.checkpoint["channel_values"]
    for channel, value in changed["channel_values"].items():
        if channel not in values:
            return f"no value of {channel!r} is found"
        if not same(serde, values[channel], value):
            return (
                f"the value of {channel!r} is not what was put "
                f"({abbreviated(values[channel])} for {abbreviated(value)})"
            )
    if more := values.keys() - changed["channel_values"].keys() - set(shared):
        return f"it has values of {sorted(more)} as well"
    for part in ("id", "v", "channel_versions", "versions_seen"):
        if found.checkpoint[part] != before.checkpoint[part]:
            return f"its {part} changed"
    # Some savers store the thread's id among the metadata.
    keys = (before.metadata.keys() | metadata.keys()) - {"thread_id"}
    if any(found.metadata.get(k) != metadata.get(k) for k in keys):
        return "its metadata is not what was put"
    return None


def holds_writes(serde: Any, found: Any, before: Any, *, exact: bool) -> bool:
    """Whether a row still has its pending writes in order, and no task's twice.

    Args:
        serde: Of the saver.
        found: The row as it is.
        before: The row as it was.
        exact: Whether writes of other tasks are wrong as well.
    """
    old, new = list(before.pending_writes or ()), list(found.pending_writes or ())
    tasks = {write[0] for write in old}
    if not exact:
        new = [write for write in new if write[0] in tasks]
    return len(old) == len(new) and all(
        tuple(was[:2]) == tuple(now[:2]) and same(serde, was[2], now[2])
        for was, now in zip(old, new, strict=True)
    )


def _changed(saved: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    stored = {**saved.checkpoint["channel_values"], **values}
    kept = {c: value for c, value in stored.items() if c not in values or value is not None}
    return {**saved.checkpoint, "channel_values": kept}


def _put(
    saver: Any,
    thread_id: str,
    ns: str,
    parent: str | None,
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    channels: Iterable[str],
) -> Steps[Any]:
    config = saver._checkpoint_config(thread_id, ns, parent)
    versions = checkpoint["channel_versions"]
    new = {channel: versions[channel] for channel in channels if channel in versions}
    return (yield Call("put", (config, dict(checkpoint), dict(metadata), new)))


def _parent_id(saved: Any) -> str | None:
    parent = saved.parent_config["configurable"] if saved.parent_config else {}
    return parent.get("checkpoint_id") or None


def _unsafe(saver: Any, fault: str, *, tried: bool = True) -> RewriteUnsafeError:
    when = "after putting a checkpoint again, " if tried else ""
    return RewriteUnsafeError(
        f"{type(saver).__name__} cannot rewrite a checkpoint through put: {when}{fault}. The "
        "thread is unchanged; write the hook _rewrite_checkpoint, whose docstring says what it "
        "has to do"
    )
