"""Rewriting a checkpoint in the SQLite savers' files, and reading inside their transactions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from delta_mixin.adapters._sqlite_sql import Statements
from delta_mixin.errors import RewriteUnsafeError, RowsUnreadError

_WHERE = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"


def rewrite_row(
    serde: Any, config: Any, values: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Statements[None]:
    """Set values inside the checkpoint's blob, and its metadata.

    Raises:
        RowsUnreadError: If the row is gone.
        RewriteUnsafeError: If the other values would not be stored as they were.
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
        raise RewriteUnsafeError(
            f"checkpoint {key[2]} of thread {key[0]!r} holds values that loading changes, such as "
            "of a class that is not importable here; the thread is unchanged. Compact it where "
            "the graph runs"
        )


class ReentrantLock(asyncio.Lock):
    """An `asyncio.Lock` that the task holding it can take again."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: asyncio.Task[Any] | None = None
        self._depth = 0

    async def acquire(self) -> Literal[True]:
        """Take the lock, or take it once more."""
        task = asyncio.current_task()
        if self._owner is None or self._owner is not task:
            await super().acquire()
            self._owner = task
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back as often as it was taken."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()
