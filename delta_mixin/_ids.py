"""Checkpoint ids: the time inside one, and unused ones that sort below one. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta, timezone

_UUID_EPOCH = datetime(1582, 10, 15, tzinfo=timezone.utc)
_LOWERED = {
    **{chr(n): chr(n - 1) for n in range(ord("1"), ord("9") + 1)},
    **{chr(n): chr(n - 1) for n in range(ord("b"), ord("z") + 1)},
    **{chr(n): chr(n - 1) for n in range(ord("B"), ord("Z") + 1)},
}


def checkpoint_time(checkpoint_id: str) -> datetime | None:
    """The time inside a version 6 UUID, in UTC; `None` for any other id.

    Source: RFC 9562, section 5.6 (100 ns units since 1582-10-15).
    """
    try:
        value = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if value.version != 6:
        return None
    ticks = (value.int >> 80) << 12 | (value.int >> 64) & 0xFFF
    return _UUID_EPOCH + timedelta(microseconds=ticks // 10)


def id_below(checkpoint_id: str, above: str | None, used: Collection[str]) -> str | None:
    """An unused id that sorts below `checkpoint_id`, and above `above` where that can be.

    Of a UUID the next lower one, which holds the same time. Of any other id a letter or digit is
    lowered and letters are added, so that databases of any collation agree on the order.

    Returns:
        The id, the same for the same arguments; `None` if there is none of that form.
    """
    found = None
    # One more than there are ids in use, so one of them is free if there are as many.
    for _, candidate in zip(range(len(used) + 1), _below(checkpoint_id), strict=False):
        if candidate not in used:
            if above is None or candidate > above:
                return candidate
            found = found or candidate
    return found


def _below(checkpoint_id: str) -> Iterator[str]:
    """Ids that sort below, the most fitting first."""
    try:
        value = uuid.UUID(checkpoint_id)
    except ValueError:
        value = None
    if value is not None and str(value) == checkpoint_id:
        yield from (str(uuid.UUID(int=n)) for n in range(value.int - 1, 0, -1))
        return
    for at in range(len(checkpoint_id) - 1, -1, -1):
        if lowered := _LOWERED.get(checkpoint_id[at]):
            stem = checkpoint_id[:at] + lowered
            while True:
                stem += "z"
                yield stem
