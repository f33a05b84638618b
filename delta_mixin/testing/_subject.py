"""The saver under probe, with what default hooks ask of one that has no mixin yet."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from delta_mixin._drive import twin
from delta_mixin._hooks import HOOKS
from delta_mixin.testing._bridge import Side

NAMESPACES = ("", "child", "child:call")
"""The namespaces of scratch threads."""


class Subject:
    """The saver under probe, with what default hooks ask of one that has no mixin yet."""

    LISTS_ALL_THREADS = True  # whether it may say so is what is asked

    def __init__(self, saver: Any, side: Side, keys: Mapping[str, Any], patience: float) -> None:
        self.saver, self.side, self.keys, self.patience = saver, side, dict(keys), patience
        self.name = f"delta-mixin-probe-{uuid.uuid4().hex}"
        self.threads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.saver, name)

    def new_thread(self) -> str:
        self.threads.append(f"{self.name}-{len(self.threads)}")
        return self.threads[-1]

    def writes(self, hook: str) -> bool:
        known = getattr(self.saver, "_writes_hook", None)
        return known is not None and hook in HOOKS and any(map(known, (hook, twin(hook))))

    def _checkpoint_config(self, thread_id: str, ns: str | None, checkpoint_id: str | None) -> Any:
        if hasattr(self.saver, "_checkpoint_config"):
            config = self.saver._checkpoint_config(thread_id, ns, checkpoint_id)
        else:
            parts = {"checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
            given = {name: part for name, part in parts.items() if part is not None}
            config = {"configurable": {"thread_id": thread_id, **given}}
        return {**config, "configurable": {**self.keys, **config["configurable"]}}

    # The default listing is judged with the namespaces known: naming them is another hook.

    def _writes_hook(self, hook: str) -> bool:
        return hook == "_list_namespaces"

    def _list_namespaces(self, thread_id: str) -> Sequence[str]:
        return NAMESPACES

    async def _alist_namespaces(self, thread_id: str) -> Sequence[str]:
        return NAMESPACES

    # Not a matter of one call after the other, so each side has its own.

    def write_while_listing(self, config: Any, write: tuple[Any, ...]) -> bool:
        """Whether a write waits until an open listing is closed."""
        errors: list[BaseException] = []

        def put() -> None:
            try:
                self.saver.put_writes(*write)
            except BaseException as error:
                errors.append(error)

        writer = threading.Thread(target=put, daemon=True)
        listing = iter(self.saver.list(config))
        next(listing, None)
        writer.start()
        writer.join(self.patience)
        waits = writer.is_alive()
        getattr(listing, "close", lambda: None)()
        writer.join(self.patience)
        if errors:
            raise errors[0]
        if writer.is_alive():
            raise TimeoutError("put_writes() still waits after the listing was closed")
        return waits

    async def awrite_while_listing(self, config: Any, write: tuple[Any, ...]) -> bool:
        """Async twin of `write_while_listing`."""
        listing = aiter(self.saver.alist(config))
        await anext(listing, None)
        writing = asyncio.ensure_future(self.saver.aput_writes(*write))
        try:
            done, _ = await asyncio.wait({writing}, timeout=self.patience)
        finally:
            await listing.aclose()
        await asyncio.wait_for(writing, self.patience)
        return not done
