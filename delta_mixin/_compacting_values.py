"""The values of compaction: built, stored and read back, for one thread that is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from delta_mixin._compacting import Wanted
from delta_mixin._drive import Call, Steps
from delta_mixin._resolving import GraphChannels, Replayer, UnresolvedError, abbreviated, same
from delta_mixin._rewriting import fault_of
from delta_mixin.base_rows import CHECKPOINT_FORMAT
from delta_mixin.channels import without_counters
from delta_mixin.errors import CompactionError, RewriteUnsafeError, RowsUnreadError
from delta_mixin.model import CleanupPlan, RowKey


@dataclass(frozen=True)
class LeftChannel:
    """A channel that still needs its history, and why.

    Attributes:
        checkpoint_ns: Namespace of the checkpoint whose reader needs it.
        checkpoint_id: Id of that checkpoint.
        channel: The channel.
        why: A clause.
    """

    checkpoint_ns: str
    checkpoint_id: str
    channel: str
    why: str

    def __str__(self) -> str:
        where = f" in namespace {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        return f"channel {self.channel!r} of checkpoint {self.checkpoint_id}{where}: {self.why}"


@dataclass(frozen=True)
class CompactionReport:
    """What a compaction did to one thread.

    Attributes:
        thread_id: The thread.
        compacted: By checkpoint, the channels whose value it holds now.
        left: Channels that go on being rebuilt from older checkpoints.
        rows_before: How many checkpoints the thread had.
        rows_after: How many it has.
        plan: The cleanup that followed, or `None` if none was asked for.
    """

    thread_id: str
    compacted: Mapping[RowKey, tuple[str, ...]]
    left: tuple[LeftChannel, ...]
    rows_before: int
    rows_after: int
    plan: CleanupPlan | None = None


@dataclass
class Job:
    """A thread on its way: what is planned, and what came of it."""

    thread_id: str
    plan: CleanupPlan
    wanted: Wanted
    sharing: dict[tuple[RowKey, str], list[str]]
    rewrites: list[Rewrite] = field(default_factory=list)
    left: list[LeftChannel] = field(default_factory=list)

    def leave(self, key: RowKey, channel: str, why: str) -> None:
        self.left.append(LeftChannel(*key, channel, why))


@dataclass
class Rewrite:
    """A checkpoint and the values it is to hold."""

    key: RowKey
    config: Any
    saved: Any
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Any]:
        return without_counters(self.saved.metadata, self.values)


class StoppedError(Exception):
    """A thread that must not be compacted; the message says why."""


def store_values(saver: Any, known: GraphChannels, job: Job, *, undo: bool) -> Steps[None]:
    """Resolve all values, then store and read back.

    Args:
        saver: The saver.
        known: The graph's channels.
        job: The thread.
        undo: Whether nothing else takes back what a failure has left half done.
    """
    for key, channels in job.wanted.items():
        yield from _resolve(saver, known, job, key, channels)
    done: list[Rewrite] = []
    try:
        for rewrite in job.rewrites:
            done.append(rewrite)
            yield Call("_rewrite_checkpoint", (rewrite.config, rewrite.values, rewrite.metadata))
            yield from _read_back(saver, job, rewrite)
    except (StoppedError, CompactionError, RewriteUnsafeError) as error:
        if not isinstance(error, StoppedError):
            done.pop()  # the hook has seen to that row itself
        for rewrite in reversed(done) if undo else ():
            nothing = dict.fromkeys(rewrite.values)
            yield Call("_rewrite_checkpoint", (rewrite.config, nothing, rewrite.saved.metadata))
        raise


def _resolve(
    saver: Any, known: GraphChannels, job: Job, key: RowKey, channels: frozenset[str]
) -> Steps[None]:
    config = saver._checkpoint_config(job.thread_id, *key)
    saved = yield Call("get_tuple", (config,))
    if saved is None:
        raise RowsUnreadError(f"checkpoint {key.checkpoint_id} of {job.thread_id!r} is gone")
    rewrite = Rewrite(key, config, saved)
    replayers: dict[str, Replayer] = {}
    for channel in sorted(channels):
        if (format_ := saved.checkpoint.get("v", 1)) < CHECKPOINT_FORMAT:
            job.leave(key, channel, f"the checkpoint is of format {format_}")
        elif channel in saved.checkpoint["channel_values"]:
            job.leave(key, channel, "a None is stored, which readers take differently")
        else:
            try:
                replayers[channel] = known.replayer(key.checkpoint_ns, channel)
            except UnresolvedError as unresolved:
                job.leave(key, channel, str(unresolved))
    if not replayers:
        return
    first = yield from _history(saver, config, replayers)
    second = yield from _history(saver, config, replayers)
    for channel, replayer in replayers.items():
        try:
            value = replayer.at_once(saved.checkpoint, config, first[channel])
            again = replayer.one_by_one(saved.checkpoint, config, second[channel])
            stored = replayer.stored(value)
        except UnresolvedError as unresolved:
            job.leave(key, channel, str(unresolved))
            continue
        except Exception as error:
            stop = f"its reducer raised {type(error).__name__}: {error}"
            raise _stopped(key, channel, stop) from error
        if not same(saver.serde, value, again):
            third = (yield from _history(saver, config, [channel]))[channel]
            repeated = replayer.at_once(saved.checkpoint, config, third)
            why = "writes replayed one by one do not give what they give at once"
            if not same(saver.serde, value, repeated):
                why, again = "its value changes from one resolution to the next", repeated
            why += f" ({abbreviated(value)} and {abbreviated(again)})"
            raise _stopped(
                key, channel, f"{why}; its reducer must be deterministic and batch alike"
            )
        others = job.sharing.get((key, channel), ())
        unlike = yield from _unlike(saver, job, key, replayer, value, others)
        if unlike is None:
            rewrite.values[channel] = stored
        else:
            job.leave(key, channel, f"checkpoint {unlike} shares its version but reads otherwise")
    if rewrite.values:
        job.rewrites.append(rewrite)


def _unlike(
    saver: Any, job: Job, key: RowKey, replayer: Replayer, value: Any, others: Sequence[str]
) -> Steps[str | None]:
    """The first of the other checkpoints at which the channel has another value."""
    for checkpoint_id in others:
        config = saver._checkpoint_config(job.thread_id, key.checkpoint_ns, checkpoint_id)
        saved = yield Call("get_tuple", (config,))
        history = yield from _history(saver, config, [replayer.channel])
        try:
            if saved is not None and same(
                saver.serde,
                value,
                replayer.at_once(saved.checkpoint, config, history[replayer.channel]),
            ):
                continue
        except UnresolvedError:
            pass
        return checkpoint_id
    return None


def _history(saver: Any, config: Any, channels: Any) -> Steps[Mapping[str, Any]]:
    wanted = {"config": config, "channels": list(channels)}
    return (yield Call("get_delta_channel_history", (), wanted))  # type: ignore[no-any-return]


def _read_back(saver: Any, job: Job, rewrite: Rewrite) -> Steps[None]:
    found = yield Call("get_tuple", (rewrite.config,))
    # A row that shares a version with one rewritten before shows its value as well.
    shared = {c for r in job.rewrites if r.key[0] == rewrite.key[0] for c in r.values}
    checkpoint = rewrite.saved.checkpoint
    changed = {
        **checkpoint,
        "channel_values": {**checkpoint["channel_values"], **rewrite.values},
    }
    fault = fault_of(
        saver.serde, rewrite.saved, found, changed, rewrite.metadata, exact=False, shared=shared
    )
    if fault:
        channels = ", ".join(map(repr, sorted(rewrite.values)))
        raise StoppedError(
            f"checkpoint {rewrite.key.checkpoint_id} in namespace {rewrite.key.checkpoint_ns!r}, "
            f"channels {channels}: read back after storing, {fault}"
        )


def _stopped(key: RowKey, channel: str, why: str) -> StoppedError:
    return StoppedError(
        f"channel {channel!r} of checkpoint {key.checkpoint_id} in namespace "
        f"{key.checkpoint_ns!r}: {why}"
    )
