"""Cleanup for LangGraph checkpoint savers that never loses a `DeltaChannel`."""

from delta_mixin.errors import (
    CheckpointNotFoundError,
    DeltaMixinError,
    DeltaThreadRefusedError,
    MissingHookError,
    ReadOnlyDatabaseError,
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

__all__ = [
    "BlobKey",
    "Break",
    "CheckpointNotFoundError",
    "CheckpointRow",
    "CleanupPlan",
    "CopyAndDeleteForRunsMixin",
    "DeltaChannelAwarePruneMixin",
    "DeltaMixinError",
    "DeltaThreadRefusedError",
    "MissingHookError",
    "Part",
    "ReadOnlyDatabaseError",
    "Reads",
    "Reason",
    "RowKey",
    "SeveredHistoryError",
    "TargetThreadExistsError",
    "ThreadNotFoundError",
    "UnknownDeltaChannelsError",
]
