"""`StrictDeltaHistoryMixin`: reads that refuse to return a value that is known to be short.

A reader walks up the parents of a checkpoint to the value it starts from. Where older checkpoints
were deleted it finds none, starts from empty, and nobody raises. This mixin looks where such a walk
has ended, which costs healthy threads at most one lookup, and none where a value was found:

1. A channel that has no version at the last checkpoint of the chain began below it: all was read.
2. Otherwise it began further up, so the parent that is missing, or was cleared, held what is lost.
3. A saver whose walk is the base class's is watched while it walks; one with a reader of its own is
   asked through the hook `_read_history_end`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta_mixin._bases import refuse_shadowed
from delta_mixin._drive import Call, Steps, adrive, drive
from delta_mixin._hooks import CleanupHooks
from delta_mixin.errors import SeveredHistoryError
from delta_mixin.findings import HistoryEnd
from delta_mixin.inspection import lost_channels
from delta_mixin.model import CheckpointRow

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory

__all__ = ["StrictDeltaHistoryMixin"]

SYNC_NAME, ASYNC_NAME = "get_delta_channel_history", "aget_delta_channel_history"


class StrictDeltaHistoryMixin(CleanupHooks):
    """A saver whose histories are complete, or raise. Put it before the saver in the bases.

    After a `prune` or `delete_for_runs` checkpoints that were kept for the sake of others alone do
    not read back: reading them raises as well, so `get_state_history` ends at the first of these.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_shadowed(cls, StrictDeltaHistoryMixin, (SYNC_NAME, ASYNC_NAME))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The saver's own answer, where it is the whole history.

        Args:
            config: Names the checkpoint, as for the base class.
            channels: Channels to walk for.

        Raises:
            SeveredHistoryError: If the history of one of the channels was found to begin further up
                than the checkpoints that are left.
        """
        steps = _read(self, config, channels)
        if type(self)._run is not CleanupHooks._run:
            return self._run(SYNC_NAME, steps)  # on the saver's own event loop
        return drive(self, steps)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async twin of `get_delta_channel_history`."""
        return await adrive(self, _read(self, config, channels))

    def _walk_history(self, config: Any, channels: Sequence[str]) -> tuple[Any, Any]:
        """The saver's answer, and the end of its walk if that could be watched."""
        if (walk := _base_walk(type(self), SYNC_NAME)) is not None:
            watched = _Watched(self)
            return walk(watched, config=config, channels=channels), watched
        return super().get_delta_channel_history(config=config, channels=channels), None

    async def _awalk_history(self, config: Any, channels: Sequence[str]) -> tuple[Any, Any]:
        """Async twin of `_walk_history`."""
        if (walk := _base_walk(type(self), ASYNC_NAME)) is not None:
            watched = _Watched(self)
            return await walk(watched, config=config, channels=channels), watched
        return await super().aget_delta_channel_history(config=config, channels=channels), None


class _Watched:
    """A saver as the base class's walk needs it, that remembers where the walk has been."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._passed: set[str] = set()
        self._last: Any = None
        self._looped = False

    def get_tuple(self, config: Any) -> Any:
        return self._seen(self._saver.get_tuple(config))

    async def aget_tuple(self, config: Any) -> Any:
        return self._seen(await self._saver.aget_tuple(config))

    def _seen(self, saved: Any) -> Any:
        if saved is None:
            return None
        if saved.checkpoint["id"] in self._passed:
            self._looped = True
            return None  # which ends the walk; by itself it would never
        self._passed.add(saved.checkpoint["id"])
        self._last = saved
        return saved

    @property
    def end(self) -> HistoryEnd | None:
        """Where a walk that found nothing has ended."""
        if self._last is None:
            return None
        row = CheckpointRow.from_tuple(self._last)
        missing = row.parent_id is not None
        return HistoryEnd(row, "loop" if self._looped else "missing" if missing else "start")


def _base_walk(cls: type, name: str) -> Any:
    """The base class's reader, if the saver has no other."""
    from langgraph.checkpoint.base import BaseCheckpointSaver

    after = cls.__mro__[cls.__mro__.index(StrictDeltaHistoryMixin) + 1 :]
    reader = next(vars(base)[name] for base in after if name in vars(base))
    return reader if reader is vars(BaseCheckpointSaver)[name] else None


def _read(
    saver: Any, config: RunnableConfig, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    channels = list(channels)
    history, watched = yield Call("_walk_history", (config, channels))
    without = [c for c in channels if "seed" not in history.get(c, ())]
    if without:
        conf = config["configurable"]
        asked_for = conf.get("checkpoint_id")
        if watched is not None:
            end = watched.end
        else:
            args = (conf["thread_id"], conf.get("checkpoint_ns", ""), asked_for)
            end = yield Call("_read_history_end", args)
        if end is not None and (lost := lost_channels(end, without)):
            raise _severed(end, lost, asked_for)
    return history  # type: ignore[no-any-return]


def _severed(end: HistoryEnd, channels: list[str], asked_for: str | None) -> SeveredHistoryError:
    row = end.row
    why = {
        "start": "has no parent, but began further up",
        "missing": f"names the parent {row.parent_id}, which is not stored",
        "loop": f"names the parent {row.parent_id}, which is its own descendant",
    }[end.why]
    told = (
        f"channel(s) {', '.join(map(repr, channels))} of checkpoint {asked_for or '(the newest)'} "
        f"in namespace {row.checkpoint_ns!r}: the history ends without a value at checkpoint "
        f"{row.checkpoint_id}, which {why}"
    )
    return SeveredHistoryError({row.thread_id: [told]}, reading=True)
