"""Rewriting a checkpoint in the SQLite savers' files, and reading inside their transactions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from delta_mixin.adapters._sqlite_sql import Statements
from delta_mixin.errors import CompactionError, RowsUnreadError

_WHERE = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


def rewrite_row(
    serde: Any, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Statements[None]:
    """Set values inside the checkpoint's blob, and its metadata.

    Raises:
        RowsUnreadError: If the row is gone.
        CompactionError: If the other values would not be stored as they were.
    """
    conf = config["configurable"]
    key = (str(conf["thread_id"]), conf["checkpoint_ns"], conf["checkpoint_id"])
    found = yield f"SELECT type, checkpoint FROM checkpoints {_WHERE}", key
    if not found:
        raise RowsUnreadError(f"checkpoint {key[2]} of thread {key[0]!r} is gone")
    ((type_, blob),) = found
    checkpoint = serde.loads_typed((type_, blob))
    _expect_lossless(serde, checkpoint, type_, blob, key)
    stored = {**checkpoint["channel_values"], **values}
    checkpoint["channel_values"] = {
        c: value for c, value in stored.items() if c not in values or value is not None
    }
    # As the host stores metadata.
    dumped = json.dumps(dict(metadata), ensure_ascii=False).encode("utf-8", "ignore")
    yield (
        f"UPDATE checkpoints SET type = ?, checkpoint = ?, metadata = ? {_WHERE}",
        (*serde.dumps_typed(checkpoint), dumped, *key),
    )


def _expect_lossless(
    serde: Any, checkpoint: Any, type_: str, blob: bytes, key: tuple[str, str, str]
) -> None:
    """Refuse a blob that does not come back, as of values whose class is not importable here."""
    if "+" in type_:
        return  # encrypted, so never twice the same
    again_type, again = serde.dumps_typed(checkpoint)
    # A set may be dumped in another order.
    if (again_type, again) != (type_, blob) and Counter(again) != Counter(blob):
        why = (
            f"checkpoint {key[2]} in namespace {key[1]!r} holds values that loading changes, such "
            "as of a class that is not importable here; compact it where the graph runs"
        )
        raise CompactionError({key[0]: why})


class ScopedLock(asyncio.Lock):
    """A lock that the task inside an open scope passes without taking it.

    Attributes:
        scope: That task.
    """

    scope: asyncio.Task[Any] | None = None

    async def acquire(self) -> Literal[True]:
        """Take the lock."""
        if not self._within():
            await super().acquire()
        return True

    def release(self) -> None:
        """Give it back."""
        if not self._within():
            super().release()

    def _within(self) -> bool:
        return self.scope is not None and self.scope is asyncio.current_task()
