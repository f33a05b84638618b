"""For savers that live on an event loop: their sync methods, from any other thread."""

from __future__ import annotations

import asyncio

from delta_mixin._drive import Steps
from delta_mixin._hooks import CleanupHooks
from delta_mixin.model import T


class SyncMethodsOnLoop(CleanupHooks):
    """Sync methods run the async operation on the saver's `loop` and wait for it.

    As the host's async savers do, and with the same refusal on the loop's own thread, where
    waiting would never end. Put before the mixins in the bases.
    """

    loop: asyncio.AbstractEventLoop

    def _run(self, name: str, steps: Steps[T]) -> T:
        try:
            running: object = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self.loop:
            steps.close()
            raise asyncio.InvalidStateError(
                f"{name}: sync methods of {type(self).__name__} cannot be called from its event "
                f"loop's thread; use `await {'a' + name}(...)`"
            )
        return asyncio.run_coroutine_threadsafe(self._arun(name, steps), self.loop).result()
