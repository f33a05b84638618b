"""The harness that proves a saver: subclass, write one hook, run pytest."""

import pytest

# Before the suites are imported: without it a failure is a bare `AssertionError`.
pytest.register_assert_rewrite(
    "delta_mixin.testing._contract",
    "delta_mixin.testing._threads",
    "delta_mixin.testing._twins",
    "delta_mixin.testing.contract",
    "delta_mixin.testing.oracle",
    "delta_mixin.testing.stateful",
)

from delta_mixin.testing.contract import SaverContract  # noqa: E402
from delta_mixin.testing.histories import Channel, Step, ThreadHistory  # noqa: E402
from delta_mixin.testing.probe import (  # noqa: E402
    HookAdvice,
    ProbeReport,
    aprobe_saver,
    probe_saver,
)
from delta_mixin.testing.stateful import CleanupStateMachine, cleanup_settings  # noqa: E402
from delta_mixin.testing.strategies import (  # noqa: E402
    Pruning,
    prunings,
    run_selections,
    thread_histories,
    thread_ids,
)
from delta_mixin.testing.writing import write_history  # noqa: E402

__all__ = [
    "Channel",
    "CleanupStateMachine",
    "HookAdvice",
    "ProbeReport",
    "Pruning",
    "SaverContract",
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
