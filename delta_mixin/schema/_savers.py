"""The savers that `open_checkpointer` returns."""

from __future__ import annotations

from langgraph.checkpoint.postgres import PostgresSaver as DeltaPostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver as AsyncDeltaPostgresSaver

__all__ = ["AsyncDeltaPostgresSaver", "DeltaPostgresSaver"]
