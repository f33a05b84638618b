"""Pictures of threads that the harness wrote: as they were put, beside what is stored now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from delta_mixin.drawing import draw_thread
from delta_mixin.model import CheckpointRow
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing.oracle import Key
from delta_mixin.testing.writing import Put, PutWrites

MANY = 60
"""Threads with more checkpoints than this are not drawn."""


def draw_calls(
    view: SyncView,
    thread_id: Any,
    calls: Iterable[Put | PutWrites],
    *,
    without: Collection[str] = (),
) -> str:
    """Draw the thread that calls have put, with what is not stored any more crossed out.

    Args:
        view: The saver.
        thread_id: The thread to look for what is stored.
        calls: What was put, to it or to the thread it is a copy of.
        without: Channels that every checkpoint holds, and that are not worth a word.
    """
    rows = _rows(thread_id, calls, without)
    if not rows or len(rows) > MANY:
        return ""
    try:
        stored = {*oracle.keys(view, thread_id, {ns for ns, _ in rows})}
    except Exception as error:  # of a saver that is being tested because it may be broken
        return f"what is stored cannot be listed: {error!r}"
    drawn = draw_thread(rows.values(), gone=rows.keys() - stored)
    return f"as it was put, with x for what is not stored now:\n{drawn}"


class Note:
    """A picture for `hypothesis.note`, drawn only if the failing example is shown."""

    def __init__(
        self, view: SyncView, thread_id: str, calls: Sequence[Put | PutWrites], when: str
    ) -> None:
        self.view, self.thread_id, self.calls, self.when = view, thread_id, calls, when

    def __repr__(self) -> str:
        drawn = draw_calls(self.view, self.thread_id, self.calls)
        return f"thread {self.thread_id!r} {self.when}, {drawn or 'empty or too long to draw'}"


def _rows(
    thread_id: Any, calls: Iterable[Put | PutWrites], without: Collection[str]
) -> dict[Key, CheckpointRow]:
    written: dict[Key, set[str]] = {}
    rows: dict[Key, CheckpointRow] = {}
    for call in calls:
        if isinstance(call, PutWrites):
            channels = written.setdefault((call.ns, call.checkpoint_id), set())
            channels.update(channel for channel, _ in call.writes)
        else:
            values = call.checkpoint["channel_values"]
            shown = {c: v for c, v in values.items() if c not in without}
            row = CheckpointRow(
                str(thread_id),
                call.ns,
                call.checkpoint["id"],
                call.parent_id,
                metadata=call.metadata,
            ).with_checkpoint({**call.checkpoint, "channel_values": shown})
            rows[row.key] = row
    return {
        key: row._replace(write_channels=frozenset(written.get(key, ())))
        for key, row in rows.items()
    }
