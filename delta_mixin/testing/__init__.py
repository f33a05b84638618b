"""The harness that proves a saver: subclass, write one hook, run pytest."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from delta_mixin.testing.contract import (
        CopySuite,
        HistorySuite,
        KeepsetSuite,
        LongLifeSuite,
        PruneSuite,
        ReadingSuite,
        RunDeletionSuite,
        SaverContract,
    )

# Before the suites are imported: without it a failure is a bare `AssertionError`.
pytest.register_assert_rewrite(
    "delta_mixin.testing._contract",
    "delta_mixin.testing._threads",
    "delta_mixin.testing.contract",
    "delta_mixin.testing.oracle",
)

# Imported on demand: the pytest plugin lives in this package, and loads in every run of pytest.
_HOMES = {
    "CopySuite": "contract",
    "HistorySuite": "contract",
    "KeepsetSuite": "contract",
    "LongLifeSuite": "contract",
    "PruneSuite": "contract",
    "ReadingSuite": "contract",
    "RunDeletionSuite": "contract",
    "SaverContract": "contract",
}

__all__ = [
    "CopySuite",
    "HistorySuite",
    "KeepsetSuite",
    "LongLifeSuite",
    "PruneSuite",
    "ReadingSuite",
    "RunDeletionSuite",
    "SaverContract",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
