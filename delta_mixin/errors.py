"""Errors of the package: one base class; each message names the thing and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "CheckpointNotFoundError",
    "CleanupFailedError",
    "CompactionError",
    "DeltaMixinError",
    "DeltaThreadRefusedError",
    "IsolationLevelError",
    "MissingHookError",
    "NothingToRecoverError",
    "ReadOnlyDatabaseError",
    "RecoveryFailedError",
    "RewriteUnsafeError",
    "RowsUnreadError",
    "SeveredHistoryError",
    "TargetThreadExistsError",
    "ThreadNotFoundError",
    "UnknownDeltaChannelsError",
]


class DeltaMixinError(Exception):
    """Base class of every error this package raises on its own behalf."""


class SeveredHistoryError(DeltaMixinError):
    """A channel's history breaks off at a parent checkpoint that is not stored.

    Another tool has deleted rows that a reader needs, so what is left of the thread can
    no longer be told apart from what is still wanted. The named threads were left as they
    were; all other threads of the call are done. A strict read raises it instead of returning a
    value that is short.

    Attributes:
        threads: Ids of the threads that were left alone, in the order they were given.
        breaks: For each of them, one sentence per break.
    """

    def __init__(self, breaks: Mapping[str, Sequence[str]], *, reading: bool = False) -> None:
        self.threads: tuple[str, ...] = tuple(breaks)
        self.breaks: dict[str, tuple[str, ...]] = {t: tuple(b) for t, b in breaks.items()}
        lines = "\n".join(f"  {t!r}: {'; '.join(b)}" for t, b in self.breaks.items())
        if reading:
            super().__init__(
                f"history severed, value not rebuilt\n{lines}\n"
                "Restore the missing checkpoints from a backup. verify_thread tells what else is "
                "wrong, recover branches off what is left, and without StrictDeltaHistoryMixin the "
                "saver returns the value of what is left."
            )
        else:
            super().__init__(
                f"history already severed, left untouched: {len(self.threads)} thread(s)\n"
                f"{lines}\nRestore the missing rows from a backup; prune sweeps anyway with "
                "severed='ignore'."
            )


class UnknownDeltaChannelsError(DeltaMixinError):
    """Threads use `DeltaChannel`, but nothing stored says for which channels.

    LangGraph.js marks such threads without naming the channels. The named threads were
    left as they were; all other threads of the call are done.

    Attributes:
        threads: Ids of the threads that were left alone, in the order they were given.
    """

    def __init__(self, threads: Sequence[str]) -> None:
        self.threads: tuple[str, ...] = tuple(threads)
        super().__init__(
            f"threads marked 'delta_writes_versioned' do not name their delta channels, "
            f"left untouched: {', '.join(map(repr, self.threads))}. "
            "Name the channels in DELTA_CHANNELS on the saver class."
        )


class DeltaThreadRefusedError(DeltaMixinError, NotImplementedError):
    """`prune(delta="refuse")` met threads that use a `DeltaChannel`; nothing was deleted.

    Attributes:
        threads: Ids of those threads, in the order they were given.
    """

    def __init__(self, threads: Sequence[str]) -> None:
        self.threads: tuple[str, ...] = tuple(threads)
        super().__init__(
            f"delta='refuse': these threads use a DeltaChannel: "
            f"{', '.join(map(repr, self.threads))}. "
            "Use delta='keep_history' to prune them safely, or delta='skip' to pass them over."
        )


class CleanupFailedError(DeltaMixinError):
    """The backend kept refusing the cleanup of some threads, as another transaction was in the way.

    The named threads were left as they were, after several attempts; all other threads of the
    call are done. Calling again later is safe.

    Attributes:
        threads: Ids of the threads that failed, in the order they were given.
        causes: For each of them, the error of the last attempt.
    """

    def __init__(self, causes: Mapping[str, Exception]) -> None:
        self.threads: tuple[str, ...] = tuple(causes)
        self.causes: dict[str, Exception] = dict(causes)
        lines = "\n".join(f"  {t!r}: {type(e).__name__}: {e}" for t, e in causes.items())
        super().__init__(
            f"cleanup failed, left untouched: {len(self.threads)} thread(s)\n{lines}\n"
            "All other threads are done; call again for these."
        )


class CompactionError(DeltaMixinError):
    """Values of some threads could not be stored safely, so these were left as they were.

    All other threads of the call are done.

    Attributes:
        threads: Ids of the threads that were left alone, in the order they were given.
        failures: For each of them, one sentence that names namespace, checkpoint and channel.
    """

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.threads: tuple[str, ...] = tuple(failures)
        self.failures: dict[str, str] = dict(failures)
        lines = "\n".join(f"  {t!r}: {why}" for t, why in self.failures.items())
        super().__init__(
            f"not compacted, nothing deleted: {len(self.threads)} thread(s)\n{lines}\n"
            "Mend the reducer or the saver; prune without compaction needs neither."
        )


class RewriteUnsafeError(DeltaMixinError, NotImplementedError):
    """The saver's public methods cannot rewrite a checkpoint; the thread was left as it was."""


class RowsUnreadError(DeltaMixinError, RuntimeError):
    """Rows that were listed could not be read: they are gone, or a hook reads too little."""


class ThreadNotFoundError(DeltaMixinError, LookupError):
    """A thread that is to be copied or recovered holds no checkpoint."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(f"thread {thread_id!r} holds no checkpoint; check the id")


class CheckpointNotFoundError(DeltaMixinError, LookupError):
    """The checkpoint to copy from is not in the source thread's root namespace."""

    def __init__(self, thread_id: str, checkpoint_id: str) -> None:
        self.thread_id = thread_id
        self.checkpoint_id = checkpoint_id
        super().__init__(
            f"thread {thread_id!r} has no checkpoint {checkpoint_id!r} in its root namespace; "
            "take an id from get_state_history"
        )


class TargetThreadExistsError(DeltaMixinError, ValueError):
    """The target thread of a copy already holds rows."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(
            f"target thread {thread_id!r} already holds rows; "
            "choose an unused thread id, or delete that thread first"
        )


class NothingToRecoverError(DeltaMixinError):
    """Nothing of the checkpoint is known to be lost, so a recovery has nothing to do."""


class RecoveryFailedError(DeltaMixinError):
    """The saver did not store a recovered value as it was given."""


class MissingHookError(DeltaMixinError, NotImplementedError):
    """An operation needs a hook, or a side of it, that the saver class does not have."""


class ReadOnlyDatabaseError(DeltaMixinError):
    """The database cannot be written to, so nothing was changed."""


class IsolationLevelError(DeltaMixinError):
    """The transaction that is open on the connection cannot see what others commit meanwhile."""

    def __init__(self, level: str) -> None:
        self.level = level
        super().__init__(
            f"the open transaction is {level.upper()}, in which cleanup cannot see what a run adds "
            "meanwhile; nothing was changed. Commit it first, or use READ COMMITTED"
        )
