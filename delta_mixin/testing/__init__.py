"""The harness that proves a saver: subclass, write one hook, run pytest."""

import pytest

# Before the suites are imported: without it a failure is a bare `AssertionError`.
pytest.register_assert_rewrite(
    "delta_mixin.testing._contract",
    "delta_mixin.testing._threads",
    "delta_mixin.testing.contract",
    "delta_mixin.testing.oracle",
)

from delta_mixin.testing.contract import SaverContract  # noqa: E402

__all__ = ["SaverContract"]
