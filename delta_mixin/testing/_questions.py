"""The questions that a probe asks, each a body of calls on scratch rows.

A body returns its findings by name. A name with `_` in front is evidence for the advice on
hooks, and not part of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base.id import uuid6

from delta_mixin import _defaults
from delta_mixin._drive import Call, Steps
from delta_mixin.model import ALL_PARTS, CheckpointRow, RowKey
from delta_mixin.testing._subject import NAMESPACES, Subject
from delta_mixin.testing.oracle import Stored

Findings = dict[str, Any]


def needed_keys(subject: Subject) -> Steps[tuple[str, ...]]:
    """Put a row, and learn which keys a config must have besides `thread_id`."""
    thread_id, ns = subject.new_thread(), None
    needed = [*subject.keys]
    while True:
        config = subject._checkpoint_config(thread_id, ns, None)
        try:
            yield Call("put", (config, _checkpoint(), _metadata(), {}))
        except KeyError as missing:
            name = missing.args[0] if missing.args else None
            if not isinstance(name, str) or name in config["configurable"]:
                raise
            needed.append(name)
            if name == "checkpoint_ns":
                ns = ""  # which all other puts name anyway
            else:
                subject.keys[name] = "probe"
        except NotImplementedError:
            other = "await aprobe_saver(...)" if subject.side == "sync" else "probe_saver(...)"
            raise TypeError(
                f"{type(subject.saver).__name__} has no {subject.side} methods: use {other}"
            ) from None
        else:
            return tuple(needed)


def _namespaces(subject: Subject) -> Steps[Findings]:
    thread_id, rows = subject.new_thread(), []
    for ns in NAMESPACES:
        checkpoint_id = yield from _put(subject, thread_id, ns=ns)
        rows.append(RowKey(ns, checkpoint_id))
    unnamed = yield Call("list", (subject._checkpoint_config(thread_id, None, None),))
    default = yield from _defaults.list_namespaces(subject, thread_id)
    listed = yield from _defaults.list_checkpoint_rows(subject, [thread_id])
    return {
        "lists_all_namespaces": {_namespace(saved) for saved in unnamed} == {*NAMESPACES},
        "_names_namespaces": {*default} >= {*NAMESPACES},
        "_lists_rows": sorted(row.key for row in listed) == sorted(rows),
    }


def _threads(subject: Subject) -> Steps[Findings]:
    run, other = f"{subject.name}-run", f"{subject.name}-other-run"
    wanted = [subject.new_thread(), subject.new_thread()]
    stranger = subject.new_thread()
    yield from _put(subject, wanted[0], run_id=run)
    # A run can have rows in a namespace of a subgraph alone.
    yield from _put(subject, wanted[1], ns="child", run_id=run)
    yield from _put(subject, stranger, run_id=other)
    found: Findings = {"filters": "fails", "lists_all_threads": False}
    try:
        saved = yield Call("list", (None,))
        found["lists_all_threads"] = _thread_ids(saved) >= {*wanted, stranger}
        filtered = yield from _defaults.list_run_threads(subject, [run])
    except Exception:
        return found
    named = {*filtered}
    found["filters"] = (
        "less" if not named >= {*wanted} else "exact" if named == {*wanted} else "more"
    )
    return found


def _run_ids(subject: Subject) -> Steps[Findings]:
    thread_id, run = subject.new_thread(), f"{subject.name}-run"
    config = subject._checkpoint_config(thread_id, "", None)
    yield Call("put", ({**config, "metadata": {"run_id": run}}, _checkpoint(), _metadata(), {}))
    saved = yield from _read(subject, thread_id)
    return {"keeps_run_id": (saved.metadata or {}).get("run_id") == run}


def _orders(subject: Subject) -> Steps[Findings]:
    thread_id = subject.new_thread()
    checkpoint_id = yield from _put(subject, thread_id)
    # Path, id and put order all differ: by path abc, by id cba, as put bac.
    for name, task in (("b", 2), ("a", 3), ("c", 1)):
        yield from _write(subject, thread_id, checkpoint_id, [name], task, f"~probe, {name}")
    saved = yield from _read(subject, thread_id)
    order = "".join(value for _, _, value in saved.pending_writes or ())
    orders = {"abc": "task_path", "cba": "task_id", "bac": "put order"}
    many = subject.new_thread()
    checkpoint_id = yield from _put(subject, many)
    yield from _write(subject, many, checkpoint_id, range(12), 1, "~probe")
    saved = yield from _read(subject, many)
    values = [value for _, _, value in saved.pending_writes or ()]
    return {
        "write_order": orders.get(order, "unknown"),
        "keeps_task_order": values == [*range(12)],
    }


def _early_writes(subject: Subject) -> Steps[Findings]:
    thread_id, checkpoint_id = subject.new_thread(), _new_id()
    yield from _write(subject, thread_id, checkpoint_id, ["early"], 1, "~probe")
    yield from _put(subject, thread_id, checkpoint_id=checkpoint_id)
    saved = yield from _read(subject, thread_id)
    return {"keeps_early_writes": len(saved.pending_writes or ()) == 1}


def _reput(subject: Subject) -> Steps[Findings]:
    thread_id = subject.new_thread()
    parent = yield from _put(subject, thread_id)
    other = yield from _put(subject, thread_id)
    values = {"value": ["before"]}
    old = subject.get_next_version(None, None)
    head = yield from _put(subject, thread_id, parent=parent, values=values, version=old)
    yield from _write(subject, thread_id, head, ["pending"], 1, "~probe")
    new, after = subject.get_next_version(old, None), {"value": ["after"]}
    try:
        yield from _put(
            subject, thread_id, parent=other, checkpoint_id=head, values=after, version=new
        )
    except Exception:
        return {"reput": "fails"}
    saved = yield from _read(subject, thread_id, head)
    listed = yield Call("list", (subject._checkpoint_config(thread_id, "", None),))
    twice = [each.checkpoint["id"] for each in listed].count(head) > 1
    replaced = saved.checkpoint["channel_values"].get("value") == ["after"]
    return {
        "reput": "lists twice" if twice else "replaces" if replaced else "ignored",
        "reput_keeps_writes": len(saved.pending_writes or ()) == 1,
        "reput_moves_parent": _parent(saved) == other,
    }


def _head(subject: Subject) -> Steps[Findings]:
    thread_id, ids = subject.new_thread(), sorted(_new_id() for _ in range(3))
    for checkpoint_id in (ids[1], ids[2], ids[0]):
        yield from _put(subject, thread_id, checkpoint_id=checkpoint_id)
    head = (yield from _read(subject, thread_id)).checkpoint["id"]
    return {"head": {ids[2]: "greatest id", ids[0]: "last put"}.get(head, "unknown")}


def _blobs(subject: Subject) -> Steps[Findings]:
    thread_id = subject.new_thread()
    # A list, since some savers keep plain text and numbers inline but lists apart.
    old = subject.get_next_version(None, None)
    base = yield from _put(subject, thread_id, values={"value": ["shared"]}, version=old)
    heir = yield from _put(subject, thread_id, parent=base, version=old)
    saved = yield from _read(subject, thread_id, heir)
    values = {name: {"value": [name]} for name in ("left", "right")}
    ids = {}
    for name in values:
        # Each branch asks for its next version by itself, as two runs would.
        new = subject.get_next_version(old, None)
        ids[name] = yield from _put(
            subject, thread_id, parent=base, values=values[name], version=new
        )
    shown = {}
    for name, checkpoint_id in ids.items():
        branch = yield from _read(subject, thread_id, checkpoint_id)
        shown[name] = branch.checkpoint["channel_values"]
    return {
        "versioned_blobs": saved.checkpoint["channel_values"].get("value") == ["shared"],
        "keeps_branches_apart": shown == values,
    }


def _open_list(subject: Subject) -> Steps[Findings]:
    thread_id = subject.new_thread()
    for _ in range(3):
        checkpoint_id = yield from _put(subject, thread_id)
    here = subject._checkpoint_config(thread_id, "", checkpoint_id)
    write = (here, [("value", "late")], _task(1), "~probe")
    listed = subject._checkpoint_config(thread_id, "", None)
    return {"open_list_blocks": (yield Call("write_while_listing", (listed, write)))}


def _deletion(subject: Subject) -> Steps[Findings]:
    thread_id, rows = subject.new_thread(), []
    for ns in NAMESPACES:
        checkpoint_id = yield from _put(subject, thread_id, ns=ns)
        yield from _write(subject, thread_id, checkpoint_id, ["old"], 1, "~probe", ns)
        rows.append(RowKey(ns, checkpoint_id))
    try:
        yield Call("delete_thread", (thread_id,))
    except NotImplementedError:
        return {"deletes_threads": False}
    left = yield from _defaults.list_checkpoint_rows(subject, [thread_id])
    writes = 0
    for ns, checkpoint_id in rows:
        yield from _put(subject, thread_id, ns=ns, checkpoint_id=checkpoint_id)
        saved = yield from _read(subject, thread_id, checkpoint_id, ns)
        writes += len(saved.pending_writes or ())
    return {"deletes_threads": not left and not writes}


def _default_copy(subject: Subject) -> Steps[Findings]:
    source, target = subject.new_thread(), subject.new_thread()
    keys: list[RowKey] = []
    for ns in NAMESPACES:
        parent = version = None
        for number in range(2):
            values, version = {"value": [ns, number]}, subject.get_next_version(version, None)
            parent = yield from _put(
                subject, source, ns=ns, parent=parent, values=values, version=version
            )
            keys.append(RowKey(ns, parent))
            for task in (2, 1):
                written = [f"{task}a", f"{task}b"]
                yield from _write(subject, source, parent, written, task, f"~probe, {task}", ns)
    asked = dict.fromkeys([*keys, RowKey("", _new_id())], ALL_PARTS)
    rows = yield from _defaults.read_checkpoint_rows(subject, source, asked)
    found: Findings = {"_reads_rows": sorted(row.key for row in rows) == sorted(keys)}
    try:
        yield from _defaults.copy_checkpoint_rows(subject, source, target, rows)
        differing = yield from _differences(subject, source, target, rows)
    except Exception as error:
        differing = f"it raises {type(error).__name__}: {error}"
    return {**found, "_copy": differing}


def _differences(
    subject: Subject, source: str, target: str, rows: Sequence[CheckpointRow]
) -> Steps[str]:
    for ns, checkpoint_id in (row.key for row in rows):
        one = yield from _read(subject, source, checkpoint_id, ns)
        other = yield Call("get_tuple", (subject._checkpoint_config(target, ns, checkpoint_id),))
        if other is None:
            return "rows are missing from the copy"
        for name in ("checkpoint", "metadata", "pending_writes"):
            if Stored(getattr(one, name)) != Stored(getattr(other, name)):
                return f"{name.replace('_', ' ')} of a copied row differs"
        if _parent(one) != _parent(other):
            return "the parent of a copied row differs"
    return ""


ASKED: dict[tuple[str, ...], Callable[[Subject], Steps[Findings]]] = {
    ("lists_all_namespaces", "_lists_rows"): _namespaces,
    ("lists_all_threads", "filters"): _threads,
    ("keeps_run_id",): _run_ids,
    ("write_order", "keeps_task_order"): _orders,
    ("keeps_early_writes",): _early_writes,
    ("reput", "reput_keeps_writes", "reput_moves_parent"): _reput,
    ("head",): _head,
    ("versioned_blobs", "keeps_branches_apart"): _blobs,
    ("open_list_blocks",): _open_list,
    ("deletes_threads",): _deletion,
    ("_copy",): _default_copy,
}


# -- rows and writes -------------------------------------------------------------------------


def _put(
    subject: Subject,
    thread_id: str,
    *,
    ns: str = "",
    parent: str | None = None,
    checkpoint_id: str | None = None,
    values: Mapping[str, Any] | None = None,
    version: Any = None,
    run_id: str | None = None,
) -> Steps[str]:
    """Put a row; `version` is that of its one channel, `"value"`, whether changed here or not."""
    versions = {} if version is None else {"value": version}
    stored = _checkpoint(checkpoint_id, values or {}, versions)
    new = versions if values else {}
    config = subject._checkpoint_config(thread_id, ns, parent)
    yield Call("put", (config, stored, _metadata(run_id), new))
    return stored["id"]  # type: ignore[no-any-return]


def _write(
    subject: Subject,
    thread_id: str,
    checkpoint_id: str,
    values: Any,
    task: int,
    task_path: str,
    ns: str = "",
) -> Steps[None]:
    config = subject._checkpoint_config(thread_id, ns, checkpoint_id)
    writes = [("value", value) for value in values]
    yield Call("put_writes", (config, writes, _task(task), task_path))


def _read(
    subject: Subject, thread_id: str, checkpoint_id: str | None = None, ns: str = ""
) -> Steps[Any]:
    config = subject._checkpoint_config(thread_id, ns, checkpoint_id)
    saved = yield Call("get_tuple", (config,))
    if saved is None:
        raise LookupError("get_tuple() does not find a row that was put just now")
    return saved


def _checkpoint(
    checkpoint_id: str | None = None,
    values: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "v": 4,
        "id": checkpoint_id or _new_id(),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": dict(values or {}),
        "channel_versions": dict(versions or {}),
        "versions_seen": {},
        "updated_channels": sorted(values or {}),
    }


def _metadata(run_id: str | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"source": "loop", "step": 0, "parents": {}}
    return metadata if run_id is None else {**metadata, "run_id": run_id}


def _new_id() -> str:
    return str(uuid6(clock_seq=-2))


def _task(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _namespace(saved: Any) -> str:
    return saved.config["configurable"].get("checkpoint_ns", "")  # type: ignore[no-any-return]


def _thread_ids(saved: Sequence[Any]) -> set[str]:
    return {str(each.config["configurable"]["thread_id"]) for each in saved}


def _parent(saved: Any) -> str | None:
    parent = (saved.parent_config or {}).get("configurable", {})
    return parent.get("checkpoint_id") or None
