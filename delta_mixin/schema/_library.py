"""What the installed checkpointer library says about its schema."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from delta_mixin.schema.errors import MissingExtraError

__all__ = ["LIBRARY", "VERSION_TABLE", "installed_statements", "installed_version"]

LIBRARY = "langgraph-checkpoint-postgres"
VERSION_TABLE = "checkpoint_migrations"


def installed_statements() -> Sequence[str]:
    """The installed `PostgresSaver.MIGRATIONS`; a statement's version is its position."""
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError as missing:
        raise MissingExtraError("postgres", LIBRARY) from missing
    return tuple(PostgresSaver.MIGRATIONS)


def installed_version() -> str:
    """The installed release of the library."""
    try:
        return version(LIBRARY)
    except PackageNotFoundError as missing:
        raise MissingExtraError("postgres", LIBRARY) from missing
