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
        SquashSuite,
    )
    from delta_mixin.testing.histories import Channel, Step, ThreadHistory
    from delta_mixin.testing.probe import HookAdvice, ProbeReport, aprobe_saver, probe_saver
    from delta_mixin.testing.stateful import CleanupStateMachine, cleanup_settings
    from delta_mixin.testing.strategies import (
        Pruning,
        prunings,
        run_selections,
        thread_histories,
        thread_ids,
    )
    from delta_mixin.testing.writing import write_history

__all__ = [
    "Channel",
    "CleanupStateMachine",
    "CopySuite",
    "HistorySuite",
    "HookAdvice",
    "KeepsetSuite",
    "LongLifeSuite",
    "ProbeReport",
    "PruneSuite",
    "Pruning",
    "ReadingSuite",
    "RunDeletionSuite",
    "SaverContract",
    "SquashSuite",
    "Step",
    "ThreadHistory",
    "aprobe_saver",
    "cleanup_settings",
    "probe_saver",
    "prunings",
    "run_selections",
    "thread_histories",
    "thread_ids",
    "write_history",
]

# Before these modules are imported: without it a failure is a bare `AssertionError`.
pytest.register_assert_rewrite(
    "delta_mixin.testing._contract",
    "delta_mixin.testing._threads",
    "delta_mixin.testing._twins",
    "delta_mixin.testing.contract",
    "delta_mixin.testing.oracle",
    "delta_mixin.testing.stateful",
)

_MODULES = ("contract", "histories", "probe", "stateful", "strategies", "writing")


def __getattr__(name: str) -> Any:
    # On demand: the pytest plugin lives in this package, and loads in every run of pytest.
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
