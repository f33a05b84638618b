"""Kinds of values that a scan for checkpointers tells apart, and who exports them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = ["Kind", "ModuleName", "Value", "any_of", "dotted_name", "known_export", "last_name"]

_POSTGRES = "langgraph.checkpoint.postgres"
_OURS = {
    ("delta_mixin.adapters.postgres", "DeltaPostgresSaver"),
    ("delta_mixin.adapters.postgres", "AsyncDeltaPostgresSaver"),
}
_OPENERS = ("open_checkpointer", "aopen_checkpointer")


class Kind(Enum):
    """What a value is."""

    CLASS = "a checkpointer class"
    SAVER = "a checkpointer"
    CONTEXT = "a context manager that yields a checkpointer"
    MAKES_SAVER = "a callable that returns a checkpointer"
    MAKES_CONTEXT = "a callable that returns such a context manager"
    ANNOTATION = "a base class that a checkpointer is annotated with"


@dataclass(frozen=True)
class ModuleName:
    """A module, or whatever else an import that is not followed has bound."""

    dotted: str


Value: TypeAlias = "Kind | ModuleName | None"


def known_export(module: str, name: str) -> Kind | None:
    """What a published module exports under a name."""
    if module == _POSTGRES or module.startswith(f"{_POSTGRES}."):
        return Kind.CLASS if name.endswith("Saver") else None
    if (module, name) in _OURS:
        return Kind.CLASS
    if module in ("delta_mixin.schema", "delta_mixin.schema.gate") and name in _OPENERS:
        return Kind.MAKES_SAVER
    if module.startswith("langgraph.checkpoint.base") and name == "BaseCheckpointSaver":
        return Kind.ANNOTATION
    return None


def any_of(values: Sequence[Value]) -> Value:
    """What a value may be that is one of these."""
    kinds = [value for value in values if isinstance(value, Kind)]
    if Kind.SAVER in kinds:
        return Kind.SAVER
    return kinds[0] if kinds else next((value for value in values if value), None)


def dotted_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted_name(node.value)):
        return f"{base}.{node.attr}"
    return None


def last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
