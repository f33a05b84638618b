"""`SaverContract`: everything a saver must do for cleanup to be safe, as one test class.

    from contextlib import contextmanager

    from delta_mixin.testing import SaverContract


    class TestMySaver(SaverContract):
        @contextmanager
        def make_saver(self):
            with MySaver.connect("...") as saver:
                yield saver

Every test opens a fresh saver, works through public methods alone, and runs once for the sync
and once for the async cleanup methods. A saver that cannot do something says so in a class
attribute, such as `sides = ("sync",)`; the tests it excludes are skipped with that reason.
"""

from __future__ import annotations

from delta_mixin.testing._contract.copying import CopyTests
from delta_mixin.testing._contract.graphs import GraphTests
from delta_mixin.testing._contract.history import HistoryTests
from delta_mixin.testing._contract.keepset import KeepsetTests
from delta_mixin.testing._contract.namespaces import NamespaceTests
from delta_mixin.testing._contract.parity import ParityTests
from delta_mixin.testing._contract.prune import PruneTests
from delta_mixin.testing._contract.prune_rules import PruneRuleTests
from delta_mixin.testing._contract.runs import RunTests

__all__ = ["SaverContract"]


class SaverContract(
    HistoryTests,
    KeepsetTests,
    PruneTests,
    PruneRuleTests,
    NamespaceTests,
    CopyTests,
    RunTests,
    GraphTests,
    ParityTests,
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
