"""Cleanup for LangGraph checkpoint savers that never loses a `DeltaChannel`."""

from delta_mixin.base_rows import BaseRow, BaseSeed, BaseWrites, is_base_row
from delta_mixin.errors import (
    CheckpointNotFoundError,
    CleanupFailedError,
    DeltaMixinError,
    DeltaThreadRefusedError,
    IsolationLevelError,
    MissingHookError,
    ReadOnlyDatabaseError,
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

__all__ = [
    "BaseRow",
    "BaseSeed",
    "BaseWrites",
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
    "Part",
    "ReadOnlyDatabaseError",
    "Reads",
    "Reason",
    "RowKey",
    "RowsUnreadError",
    "SeveredHistoryError",
    "TargetThreadExistsError",
    "ThreadNotFoundError",
    "UnknownDeltaChannelsError",
    "is_base_row",
]
