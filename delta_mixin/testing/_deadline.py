"""Call a saver's method, and give up on a walk that never ends."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from delta_mixin.testing._bridge import Side, SyncView

PATIENCE = 10.0
"""Seconds after which a walk counts as endless; a sound one takes milliseconds."""


class _TooLongError(Exception):
    """Raised inside the call that does not end."""


def within_patience(
    view: SyncView,
    name: str,
    *args: Any,
    side: Side | None = None,
    **kwargs: Any,
) -> Any:
    """What a method of the view returns, or `None` if it takes longer.

    A loop that never waits cannot be cancelled from outside, and a thread cannot be killed:
    the deadline is looked at on every line of Python that the call runs. One that does wait is
    cancelled long before, since lines of the event loop must not raise.
    """

    async def traced() -> Any:
        with _deadline(3 * PATIENCE):
            call = getattr(view.saver, f"a{name}")(*args, **kwargs)
            return await asyncio.wait_for(call, PATIENCE)

    try:
        if (side or view.base_side) == "async":
            return view.run(traced())
        with _deadline(PATIENCE):
            return getattr(view.saver, name)(*args, **kwargs)
    except (_TooLongError, asyncio.TimeoutError):
        return None


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds

    def watch(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise _TooLongError
        return watch

    previous = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(previous)
