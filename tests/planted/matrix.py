"""Which test of the contract catches which planted fault.

Run as a script, it writes the page of the documentation that tells.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from delta_mixin.testing import SaverContract, _deadline
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing._contract import guards
from delta_mixin.testing._contract.base import ContractBase
from delta_mixin.testing.oracle import SETTLED_HOST

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "planted_faults.md"
MODULES = (
    "reader_faults",
    "prune_faults",
    "leftover_faults",
    "copy_faults",
    "run_faults",
    "squash_faults",
)
TITLES = (
    "Reading, histories and keep-sets",
    "Prune",
    "What a prune leaves of writes and values",
    "Copies",
    "Run deletion",
    "Squash",
)

TOP = """\
# Planted faults

A harness is worth what it catches. Each saver below is a sound one with one realistic fault; the
test named beside it is the one about faults of its kind, and must fail. *Also* counts the other
tests of the contract that fail; the second table names them. The sound savers pass every test.

Written by `nox -s planted`; a test holds the page to what the tests find.
"""


class Fault(NamedTuple):
    """A planted fault.

    Attributes:
        kind: What is wrong, in a few words.
        saver: The saver that does it wrong.
        test: The test about faults of this kind.
    """

    kind: str
    saver: type
    test: str


def load(name):
    """A module of this folder."""
    full_name = f"planted_{name}"
    if full_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            full_name, Path(__file__).with_name(f"{name}.py")
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[full_name] = module
        spec.loader.exec_module(module)
    return sys.modules[full_name]


FAULTS = {name: [Fault(*each) for each in load(name).FAULTS] for name in MODULES}
ALL = [fault for faults in FAULTS.values() for fault in faults]


def sound(saver):
    """The sound saver that a broken one is derived from."""
    broken = {fault.saver for fault in ALL}
    return next(base for base in saver.__mro__ if base not in broken)


class Suite(SaverContract):
    """The contract, for savers that are handed in one by one."""

    orders_writes_by_task_path = SETTLED_HOST
    replays_writes_of_plain_seeds = SETTLED_HOST
    follows_parents_not_ids = SETTLED_HOST

    def stored_rows(self, saver):
        if hasattr(saver, "storage"):
            for thread_id, namespaces in saver.storage.items():
                for ns, saved in namespaces.items():
                    yield from (("checkpoint", thread_id, ns, i) for i in saved)
            yield from (("writes", *key) for key, writes in saver.writes.items() if writes)
            yield from (("blob", *key) for key in saver.blobs)
        else:
            for kind, table in (("checkpoint", "checkpoints"), ("writes", "writes")):
                select = f"SELECT thread_id, checkpoint_ns, checkpoint_id FROM {table}"
                yield from ((kind, *row) for row in saver.conn.execute(select))


def contract_tests():
    """Names of the tests that look at a saver."""
    return [name for name in Suite.contract_tests() if name not in ContractBase.contract_tests()]


def fails(saver, name):
    """How a saver fails a test of the contract, on its sync side; `None` if it passes."""
    test = getattr(Suite(), name)
    if not all(getattr(Suite, capability) for capability in getattr(test, "needs", ())):
        return None
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    sets = itertools.product(*(mark.args[1] for mark in marks))
    for values in sets:
        arguments = {}
        for mark, value in zip(marks, values, strict=True):
            several = not isinstance(mark.args[0], str)
            arguments |= zip(mark.args[0], value, strict=True) if several else {mark.args[0]: value}
        try:
            with open_saver(functools.partial(_opened, saver), "sync") as view:
                test(view, **arguments)
        # A broken saver can make a test fail in any way, by pytest's own exceptions as well.
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return error
    return None


def _opened(saver):
    if hasattr(saver, "from_conn_string"):
        return saver.from_conn_string(":memory:")
    return nullcontext(saver())


@functools.cache
def caught_by(saver):
    """Names of the tests that a saver fails."""
    patience, _deadline.PATIENCE = _deadline.PATIENCE, 2.0
    try:
        return [name for name in contract_tests() if fails(saver, name)]
    finally:
        _deadline.PATIENCE = patience


def page():
    """The page of the documentation."""
    lines = [TOP]
    for module, title in zip(MODULES, TITLES, strict=True):
        lines += [f"## {title}", "", "| fault | what the saver does | caught by | also |"]
        lines += ["|---|---|---|---|"]
        for fault in FAULTS[module]:
            does = " ".join(inspect.getdoc(fault.saver).split("\n\n")[0].split())
            others = len(caught_by(fault.saver)) - 1
            lines.append(f"| {fault.kind} | {does} | `{fault.test}` | {others} |")
        lines.append("")
    lines += ["## By test", "", "| test | subject | faults it catches |", "|---|---|---|"]
    for name in contract_tests():
        caught = [fault.kind for fault in ALL if name in caught_by(fault.saver)]
        subject = guards.part_of(Suite, name).subject
        lines.append(f"| `{name}` | {subject} | {'; '.join(caught) or '—'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    for fault in ALL:
        found = caught_by(fault.saver)
        print("ok  " if fault.test in found else "MISS", fault.kind, len(found), fault.test)
    for saver in dict.fromkeys(sound(f.saver) for f in ALL):
        print(saver.__name__, caught_by(saver))
