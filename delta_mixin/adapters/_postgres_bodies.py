"""The Postgres savers' hooks, in one body for both sides.

Each body yields statements and is sent their rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from delta_mixin.adapters import _postgres_sql as sql
from delta_mixin.errors import IsolationLevelError, RowsUnreadError, TargetThreadExistsError
from delta_mixin.listing import Listing, Outline
from delta_mixin.model import CheckpointRow, CleanupPlan, KnownChannels, Part, Reads, RowKey

T = TypeVar("T")


class Statement(NamedTuple):
    """A statement, its parameters, and whether it returns rows."""

    text: str
    params: Mapping[str, Any] = {}
    fetch: bool = True


Statements = Generator[Statement, list[tuple[Any, ...]], T]

Settings = Mapping[str, str]
Begin = Callable[[bool], Statements["Settings | None"]]
"""The first statements of a transaction, given whether it is nested in one that is open. Returns
the settings to restore at its end, for such a one."""


class ForkedMeanwhileError(Exception):
    """A checkpoint was stored under one that is being deleted, after planning."""

    @classmethod
    def of(cls, thread_ids: Iterable[str]) -> ForkedMeanwhileError:
        """The error that names these threads."""
        return cls(
            "a checkpoint was added under one that was about to be deleted, in "
            + ", ".join(sorted(map(repr, thread_ids)))
        )


def begin_cleanup(thread_ids: Sequence[str], nested: bool) -> Statements[Settings | None]:
    """Lock the threads, without taking the snapshot of what follows.

    Raises:
        IsolationLevelError: If the open transaction keeps one snapshot for all statements.
    """
    settings = None
    if nested:
        ((level,),) = yield Statement("SELECT current_setting('transaction_isolation')")
        if level not in ("read committed", "read uncommitted"):
            raise IsolationLevelError(level)
        settings = yield from _settings()
    else:
        level = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
        yield Statement(level, fetch=False)
    yield Statement(sql.LOCK_THREADS, {"threads": _array(thread_ids)})
    return settings


def begin_reading(nested: bool) -> Statements[Settings | None]:
    """Give all statements one snapshot, unless the open transaction has settled it already."""
    settings = None
    if nested:
        settings = yield from _settings()
    else:
        level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        yield Statement(level, fetch=False)
    yield Statement(sql.NO_COMPILING)
    return settings


def end(settings: Settings | None) -> Statements[None]:
    """Leave a transaction that goes on as it was; one that ends forgets the settings itself."""
    if settings is not None:
        yield Statement(sql.PLAN_AS_BEFORE, settings)


def _settings() -> Statements[Settings]:
    ((nestloop, mergejoin, jit),) = yield Statement(sql.SETTINGS)
    return {"nestloop": nestloop, "mergejoin": mergejoin, "jit": jit}


def count_rows(thread_ids: Sequence[str]) -> Statements[dict[str, int]]:
    """How many checkpoints the threads hold."""
    return dict((yield Statement(sql.COUNT_ROWS, {"threads": _array(thread_ids)})))


def list_run_threads(run_ids: Sequence[str]) -> Statements[list[str]]:
    """Threads with a row of one of the runs."""
    found = yield Statement(sql.LIST_RUN_THREADS, {"runs": _array(run_ids)})
    return [thread_id for (thread_id,) in found]


def list_rows(thread_ids: Sequence[str]) -> Statements[Listing]:
    """Lean rows of the threads; the newest of each namespace is read, as most plans need it."""
    found = yield Statement(sql.LIST_ROWS, {"threads": _array(thread_ids)})
    reads: dict[str, dict[RowKey, frozenset[Part]]] = {}
    for t, ns, ids, _ in found:
        reads.setdefault(t, {})[RowKey(ns, max(ids))] = frozenset(("checkpoint",))
    newest = {row[:2]: row for row in (yield from _read_checkpoints(reads))}
    outlines = []
    for t, ns, ids, parents in found:
        parent_of = dict(zip(ids, parents, strict=True))
        rows: tuple[CheckpointRow, ...] = ()
        if (row := newest.get((t, ns))) is not None:
            i = row.checkpoint_id
            rows = (CheckpointRow(t, ns, i, parent_of[i], *row[4:]),)
        outlines.append(Outline(t, ns, parent_of, rows))
    return Listing(outlines)


def list_rows_with_runs(thread_ids: Sequence[str]) -> Statements[Listing]:
    """Lean rows of the threads that tell their run."""
    return Listing(
        Outline(
            thread_id,
            ns,
            dict(zip(ids, parents, strict=True)),
            runs={i: run for i, run in zip(ids, runs, strict=True) if run},
        )
        for thread_id, ns, ids, parents, runs in (
            yield Statement(sql.LIST_ROWS_WITH_RUNS, {"threads": _array(thread_ids)})
        )
    )


def read_rows(requests: Mapping[str, Reads]) -> Statements[dict[str, list[CheckpointRow]]]:
    """The asked-for parts of the asked-for rows, all threads' together."""
    rows: dict[str, list[CheckpointRow]] = {thread_id: [] for thread_id in requests}
    # The metadata of a checkpoint that is read is read along.
    for part, besides, read in (
        ("checkpoint", None, _read_checkpoints),
        ("metadata", "checkpoint", _read_metadata),
        ("writes", None, _read_writes),
    ):
        wanted = {
            thread_id: {
                key: parts for key, parts in reads.items() if part in parts and besides not in parts
            }
            for thread_id, reads in requests.items()
        }
        for row in (yield from read(wanted)):
            rows[row.thread_id].append(row)
    return rows


def _read_metadata(reads: Mapping[str, Reads]) -> Statements[list[CheckpointRow]]:
    if not any(reads.values()):
        return []
    found = yield _of_keys(sql.READ_METADATA, reads)
    return [CheckpointRow(t, ns, i, metadata=_loads(stored)) for t, ns, i, stored in found]


def _read_checkpoints(reads: Mapping[str, Reads]) -> Statements[list[CheckpointRow]]:
    if not any(reads.values()):
        return []
    found = yield _of_keys(sql.READ_CHECKPOINTS, reads)
    same: dict[Any, Any] = {}
    rows = []
    for t, ns, i, metadata, v, versions, inline, marked, stored, null in found:
        populated = frozenset((*(inline or ()), *(stored or ())))
        snapshots = frozenset(marked or ()).intersection(stored or ())
        nones = frozenset(null or ())
        rows.append(
            CheckpointRow(
                t,
                ns,
                i,
                metadata=_loads(metadata),
                v=1 if v is None else v,
                channel_versions={c: same.setdefault(x, x) for c, x in _loads(versions).items()},
                populated=same.setdefault(populated, populated),
                snapshots=same.setdefault(snapshots, snapshots),
                nones=same.setdefault(nones, nones),
            )
        )
    return rows


def _read_writes(reads: Mapping[str, Reads]) -> Statements[list[CheckpointRow]]:
    if not any(reads.values()):
        return []
    found = yield _of_keys(sql.READ_WRITES, reads)
    return [CheckpointRow(t, ns, i, write_channels=frozenset(c)) for t, ns, i, c in found]


def list_beyond(requests: Mapping[str, KnownChannels]) -> Statements[dict[str, list[str]]]:
    """Ids of the rows that know more channels than these, by thread id."""
    known = [
        (thread_id, ns, [*channels, *unless_counted], [*unless_counted])
        for thread_id, (ns, channels, unless_counted) in requests.items()
    ]
    beyond: dict[str, list[str]] = {thread_id: [] for thread_id in requests}
    for thread_id, checkpoint_id in (yield Statement(sql.LIST_BEYOND, {"known": _json(known)})):
        beyond[thread_id].append(checkpoint_id)
    return beyond


def delete_rows(plans: Sequence[CleanupPlan]) -> Statements[None]:
    """Carry out the plans.

    Raises:
        ForkedMeanwhileError: If a checkpoint hangs on a deleted one now; roll back.
    """
    whole = [p.thread_id for p in plans if p.operation == "delete"]
    if whole:
        for statement in sql.DELETE_THREADS:
            yield Statement(statement, {"threads": _array(whole)}, fetch=False)
    plans = [p for p in plans if p.operation != "delete"]
    if not plans:
        return
    yield Statement(sql.PLAN_BY_HASHING)
    sweep = _of_keys(sql.SWEEP, {p.thread_id: p.doomed for p in plans})
    if any(p.doomed for p in plans):
        yield sweep._replace(fetch=False)
    if dropped := [(p.thread_id, ns) for p in plans for ns in p.dropped_namespaces]:
        threads = _array(dict.fromkeys(thread_id for thread_id, _ in dropped))
        for statement in sql.DROP_NAMESPACES:
            params = {"threads": threads, "dropped": _json(dropped)}
            yield Statement(statement, params, fetch=False)
    detached = {p.thread_id: p.detached for p in plans}
    if any(detached.values()):
        yield _of_keys(sql.DETACH, detached)._replace(fetch=False)
    if forked := (yield sweep._replace(text=sql.FORKED)):
        raise ForkedMeanwhileError.of(thread_id for (thread_id,) in forked)


def copy_rows(source: str, target: str, rows: Sequence[CheckpointRow]) -> Statements[None]:
    """Copy the rows, their writes and the blobs they reference, inside the database.

    Raises:
        TargetThreadExistsError: If writes or blobs without a checkpoint are stored for the target.
        RowsUnreadError: If rows of the source are gone.
    """
    ((exists,),) = yield Statement(sql.TARGET_EXISTS, {"target": target})
    if exists:
        raise TargetThreadExistsError(target)
    yield Statement(sql.PLAN_BY_HASHING)
    copy = _of_keys(sql.COPY, {source: [row.key for row in rows]})
    ((count,),) = yield copy._replace(params={**copy.params, "target": target})
    if count != len(rows):
        raise RowsUnreadError(
            f"{len(rows) - count} checkpoint(s) of thread {source!r} are gone while copying"
        )
    # A copy must not point to a parent that stays behind.
    if first := [row.key for row in rows if row.parent_id is None]:
        yield _of_keys(sql.DETACH, {target: first})._replace(fetch=False)


def _of_keys(text: str, keys_by_thread: Mapping[str, Iterable[tuple[str, str]]]) -> Statement:
    """A statement on these rows of these threads."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for thread_id, keys in keys_by_thread.items():
        for ns, checkpoint_id in keys:
            grouped.setdefault((thread_id, ns), []).append(checkpoint_id)
    keys_json = _json([(t, ns, ids) for (t, ns), ids in grouped.items()])
    threads = _array(dict.fromkeys(thread_id for thread_id, _ in grouped))
    return Statement(text, {"threads": threads, "keys": keys_json})


def _loads(stored: str | None) -> dict[str, Any]:
    """An object as Postgres writes it: the decoder's own entry saves half of what `loads` takes."""
    return _DECODER.raw_decode(stored)[0] if stored else {}


_DECODER = json.JSONDecoder()


def _array(values: Iterable[str]) -> str:
    """A text array as Postgres writes it; the driver's dumping looks at each value in Python."""
    quoted = ('"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return "{" + ",".join(quoted) + "}"


def _json(value: Any) -> str:
    # As it is: escapes above ASCII are refused by databases of some encodings.
    return json.dumps(value, ensure_ascii=False)
