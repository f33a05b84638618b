"""What every saver must do for cleanup to be safe, as test classes to subclass.

    from contextlib import contextmanager

    from delta_mixin.testing import SaverContract


    class TestMySaver(SaverContract):
        @contextmanager
        def make_saver(self):
            with MySaver.connect("...") as saver:
                yield saver

Every test opens a fresh saver, works through public methods alone, and runs once for the sync
and once for the async methods. A saver that cannot do something says so in a class attribute,
such as `sides = ("sync",)`; the tests it excludes are skipped with that reason.

`SaverContract` is the sum of suites that can be used alone, the same way:

| suite | a saver needs |
|---|---|
| `ReadingSuite`, `HistorySuite` | nothing but the host's own methods |
| `KeepsetSuite`, `PruneSuite`, `LongLifeSuite` | `DeltaChannelAwarePruneMixin` |
| `CopySuite`, `RunDeletionSuite` | `CopyAndDeleteForRunsMixin` |
| `SquashSuite` | both, and the hook `_squash_checkpoint_rows`; skipped without it |
"""

from __future__ import annotations

from delta_mixin.testing._contract.copying import CopyTests
from delta_mixin.testing._contract.graphs import (
    CopiedGraphTests,
    LongLifeTests,
    RunGraphTests,
    SquashedGraphTests,
)
from delta_mixin.testing._contract.history import HistoryTests
from delta_mixin.testing._contract.keepset import KeepsetTests
from delta_mixin.testing._contract.leftovers import (
    CopyLeftoverTests,
    PruneLeftoverTests,
    RunLeftoverTests,
)
from delta_mixin.testing._contract.namespaces import NamespaceTests
from delta_mixin.testing._contract.parity import (
    CopyParityTests,
    KeepsetParityTests,
    PruneParityTests,
    RunParityTests,
)
from delta_mixin.testing._contract.prune import PruneTests
from delta_mixin.testing._contract.prune_rules import PruneRuleTests
from delta_mixin.testing._contract.reading import ReadingTests
from delta_mixin.testing._contract.runs import RunTests
from delta_mixin.testing._contract.squash import SquashLeftoverTests, SquashTests

__all__ = [
    "CopySuite",
    "HistorySuite",
    "KeepsetSuite",
    "LongLifeSuite",
    "PruneSuite",
    "ReadingSuite",
    "RunDeletionSuite",
    "SaverContract",
    "SquashSuite",
]


# pytest begins with the tests of the last base: the plainest ones, since others fail with them.


class ReadingSuite(ReadingTests):
    """What is put is read back, in order. For any saver, with or without a mixin."""


class HistorySuite(HistoryTests):
    """`get_delta_channel_history` finds seeds and writes. For any saver, like `ReadingSuite`."""


class KeepsetSuite(KeepsetParityTests, KeepsetTests):
    """`get_delta_channel_keepset` names what a checkpoint is rebuilt from."""


class PruneSuite(PruneLeftoverTests, PruneParityTests, NamespaceTests, PruneRuleTests, PruneTests):
    """`prune` keeps what its arguments name and what that is rebuilt from, and nothing else."""


class CopySuite(CopyLeftoverTests, CopyParityTests, CopiedGraphTests, CopyTests):
    """`copy_thread` makes a thread that reads like its source and shares nothing with it."""


class RunDeletionSuite(RunLeftoverTests, RunParityTests, RunGraphTests, RunTests):
    """`delete_for_runs` takes the rows of runs, but no value of any other run."""


class SquashSuite(SquashLeftoverTests, SquashedGraphTests, SquashTests):
    """`delta="squash"` puts base rows in the place of what is kept for replay alone."""


class LongLifeSuite(LongLifeTests):
    """Real graphs on two threads, one of them cleaned again and again: both read the same."""


class SaverContract(
    LongLifeSuite,
    SquashSuite,
    RunDeletionSuite,
    CopySuite,
    PruneSuite,
    KeepsetSuite,
    HistorySuite,
    ReadingSuite,
):
    """Subclass as `TestYourSaver`, override `make_saver()`, get the whole contract.

    Paste and adapt:

        from contextlib import contextmanager

        class TestMySaver(SaverContract):
            @contextmanager
            def make_saver(self):
                with MySaver.connect("...") as saver:
                    yield saver

    An async saver uses `@asynccontextmanager` and `async def`. Each test's docstring tells
    what usually makes it fail.
    """
