"""Cleanup for LangGraph checkpoint savers that never loses a `DeltaChannel`."""

from delta_mixin.errors import (
    CheckpointNotFoundError,
    CleanupFailedError,
    DeltaMixinError,
    DeltaThreadRefusedError,
    IsolationLevelError,
    MissingHookError,
    NothingToRecoverError,
    ReadOnlyDatabaseError,
    RecoveryFailedError,
    RowsUnreadError,
    SeveredHistoryError,
    TargetThreadExistsError,
    ThreadNotFoundError,
    UnknownDeltaChannelsError,
)
from delta_mixin.mixins import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin
from delta_mixin.model import (
    BlobKey,
    Break,
    CheckpointRow,
    CleanupPlan,
    Part,
    Reads,
    Reason,
    RowKey,
)
from delta_mixin.strict import StrictDeltaHistoryMixin

__all__ = [
    "BlobKey",
    "Break",
    "CheckpointNotFoundError",
    "CheckpointRow",
    "CleanupFailedError",
    "CleanupPlan",
    "CopyAndDeleteForRunsMixin",
    "DeltaChannelAwarePruneMixin",
    "DeltaMixinError",
    "DeltaThreadRefusedError",
    "IsolationLevelError",
    "MissingHookError",
    "NothingToRecoverError",
    "Part",
    "ReadOnlyDatabaseError",
    "Reads",
    "Reason",
    "RecoveryFailedError",
    "RowKey",
    "RowsUnreadError",
    "SeveredHistoryError",
    "StrictDeltaHistoryMixin",
    "TargetThreadExistsError",
    "ThreadNotFoundError",
    "UnknownDeltaChannelsError",
]
