"""A thread as text: the parent chains with runs, snapshots and writes. Pure, stdlib only.

One namespace after the other, the newest checkpoint on top, as `git log --graph` draws commits:

    root namespace
    *  …c1d2  run-2, writes log
    | *  …99f0  run-3
    |/
    o  …8a1b  run-1, snapshot of log, writes log  (replays log for …c1d2)
    x  …7d04  run-1

`*` is a checkpoint, `x` one that goes or is gone, `o` one that stays for replay alone, `=` a base
row that a squash has left, `+` one that is to stand for the rows below it, and `?` a parent that
is not stored. Ids are cut to their shortest endings that are unique in the thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping

from delta_mixin.base_rows import BaseRow, is_base_row
from delta_mixin.model import CheckpointRow, CleanupPlan, RowKey

__all__ = ["draw_thread"]

SHOWN = 5
"""How many channels are named; a checkpoint can hold dozens."""


def draw_thread(
    rows: Iterable[CheckpointRow],
    plan: CleanupPlan | None = None,
    *,
    gone: Collection[tuple[str, str]] = (),
) -> str:
    """Draw the rows of one thread.

    Args:
        rows: The rows; of lean ones only what was read is told.
        plan: A plan for them: doomed rows are crossed out, kept ones tell why they are kept.
        gone: Namespace and id of rows to cross out besides.

    Returns:
        Lines without a final line break; empty if there are no rows.
    """
    by_namespace: dict[str, dict[str, CheckpointRow]] = {}
    for row in rows:
        by_namespace.setdefault(row.checkpoint_ns, {})[row.checkpoint_id] = row
    ids = {i for stored in by_namespace.values() for i in stored}
    ids |= {base.checkpoint_id for base in plan.bases} if plan else set()
    ids |= {r.parent_id for stored in by_namespace.values() for r in stored.values() if r.parent_id}
    names = _short_names(ids)
    crossed = {*map(tuple, gone), *(plan.doomed if plan else ())}
    lines: list[str] = []
    for ns in sorted(by_namespace):
        lines.append(f"namespace {ns!r}" if ns else "root namespace")
        lines += _graph(by_namespace[ns], names, plan, crossed)
    return "\n".join(line.rstrip() for line in lines)


def _graph(
    stored: Mapping[str, CheckpointRow],
    names: Mapping[str, str],
    plan: CleanupPlan | None,
    crossed: Collection[tuple[str, ...]],
) -> Iterator[str]:
    lanes: list[str | None] = []  # the checkpoint each lane leads down to
    above = {
        RowKey(base.checkpoint_ns, base.replaces[-1]): base for base in (plan.bases if plan else ())
    }
    drawn: set[str] = set()
    for row in _children_first(stored):
        found = [n for n, awaited in enumerate(lanes) if awaited == row.checkpoint_id]
        if not found:
            found = [lanes.index(None)] if None in lanes else [len(lanes)]
            lanes[found[0] : found[0] + 1] = [row.checkpoint_id]
        for joining in found[:0:-1]:
            yield _join(lanes, found[0], joining)
            lanes[joining] = None
        _trim(lanes)
        lane = found[0]
        if base := above.get(row.key):
            yield f"{_mark(lanes, lane, '+')}  {_told_of_base(base, names)}"
        yield f"{_mark(lanes, lane, _symbol(row, plan, crossed))}  {_told(row, names, plan)}"
        drawn.add(row.checkpoint_id)
        lanes[lane] = row.parent_id
        if row.parent_id and row.parent_id not in stored:
            yield f"{_mark(lanes, lane, '?')}  {names[row.parent_id]} is not stored"
            lanes[lane] = None
        elif row.parent_id in drawn:
            yield f"{_mark(lanes, lane, '?')}  {names[row.parent_id]} is drawn above: a loop"
            lanes[lane] = None
        _trim(lanes)


def _trim(lanes: list[str | None]) -> None:
    while lanes and lanes[-1] is None:
        lanes.pop()


def _children_first(stored: Mapping[str, CheckpointRow]) -> Iterator[CheckpointRow]:
    """Every row after its children, otherwise by falling id; loops are cut at the greatest id."""
    waiting = dict.fromkeys(stored, 0)
    for row in stored.values():
        if row.parent_id in waiting:
            waiting[row.parent_id] += 1
    order = sorted(stored, reverse=True)
    rank = {checkpoint_id: n for n, checkpoint_id in enumerate(order)}
    ready = [rank[i] for i in order if not waiting[i]]
    left = iter(order)
    done: set[str] = set()
    while len(done) < len(order):
        while not ready:
            ready += [rank[i] for i in [next(left)] if i not in done]
        checkpoint_id = order[heapq.heappop(ready)]
        if checkpoint_id in done:
            continue
        done.add(checkpoint_id)
        row = stored[checkpoint_id]
        yield row
        if row.parent_id in waiting:
            waiting[row.parent_id] -= 1
            if not waiting[row.parent_id]:
                heapq.heappush(ready, rank[row.parent_id])


def _mark(lanes: list[str | None], lane: int, symbol: str) -> str:
    marks = [" " if awaited is None else "|" for awaited in lanes]
    marks[lane] = symbol
    return " ".join(marks)


def _join(lanes: list[str | None], into: int, joining: int) -> str:
    line = list(_mark(lanes, into, "|"))
    line[2 * joining - 1 : 2 * joining + 1] = "/ "
    for between in range(2 * into + 1, 2 * joining - 1):
        line[between] = line[between].replace(" ", "_")
    return "".join(line)


def _symbol(
    row: CheckpointRow, plan: CleanupPlan | None, crossed: Collection[tuple[str, ...]]
) -> str:
    if row.key in crossed:
        return "x"
    if is_base_row(row.metadata):
        return "="
    return "o" if plan and row.key in plan.replay_only else "*"


def _told(row: CheckpointRow, names: Mapping[str, str], plan: CleanupPlan | None) -> str:
    run = (row.metadata or {}).get("run_id")
    snapshots = row.snapshots or frozenset()
    parts = [
        "base row" if is_base_row(row.metadata) else "",
        f"run {run}" if run is not None else "",
        _channels("snapshot of", snapshots),
        _channels("holds", (row.populated or frozenset()) - snapshots),
        _channels("writes", row.write_channels or ()),
    ]
    told = f"{names[row.checkpoint_id]}  {', '.join(filter(None, parts))}"
    reasons = plan.kept.get(RowKey(*row.key), ()) if plan else ()
    if reasons:
        why = "; ".join(dict.fromkeys(map(str, reasons)))
        for checkpoint_id in {r.root for r in reasons if r.root in names}:
            why = why.replace(str(checkpoint_id), names[str(checkpoint_id)])
        told = f"{told.rstrip()}  ({why})"
    return told


def _told_of_base(base: BaseRow, names: Mapping[str, str]) -> str:
    count = f"{len(base.replaces)} row{'s' if len(base.replaces) > 1 else ''}"
    seeds = {f"{s.channel} of {names.get(s.checkpoint_id, s.checkpoint_id)}" for s in base.seeds}
    parts = [
        f"base row for {count}",
        _channels("seed" if len(seeds) == 1 else "seeds", seeds),
        _channels("writes", {channel for part in base.writes for channel in part.channels}),
    ]
    return f"{names[base.checkpoint_id]}  {', '.join(filter(None, parts))}"


def _channels(word: str, channels: Collection[str]) -> str:
    if not channels:
        return ""
    shown = sorted(channels)[:SHOWN]
    return f"{word} {', '.join(shown)}{', …' if len(channels) > SHOWN else ''}"


def _short_names(ids: Collection[str]) -> dict[str, str]:
    """Ids by their shortest endings, of four letters at least, that tell them apart."""
    longest = max(map(len, ids), default=0)
    for length in range(4, longest):
        if len({i[-length:] for i in ids}) == len(ids):
            return {i: i if len(i) <= length else f"…{i[-length:]}" for i in ids}
    return {i: i for i in ids}
