"""The judge itself: what the oracle reads, and that it owes nothing to the code it judges."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

import delta_mixin
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.testing import oracle
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing._threads import HandMadeThread
from delta_mixin.testing.oracle import Stored

PACKAGE = Path(delta_mixin.__file__).parent


@pytest.fixture(params=[DeltaInMemorySaver, lambda: DeltaSqliteSaver.from_conn_string(":memory:")])
def view(request):
    with open_saver(request.param) as view:
        yield view


def source_of(module):
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_module(name):
    return source_of(name).exists()


def imported_by(module, seen=None):
    """Every module of the package that a module imports, directly or through others."""
    seen = set() if seen is None else seen
    for node in ast.walk(ast.parse(source_of(module).read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import, which this rule cannot follow"
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in inside if is_module(name)] or [node.module]
        for name in names:
            if name.startswith("delta_mixin.") and name not in seen:
                seen.add(name)
                imported_by(name, seen)
    return seen


def test_the_oracle_imports_nothing_of_what_it_judges():
    assert imported_by("delta_mixin.testing.oracle") == {"delta_mixin.testing._bridge"}


def test_the_import_rule_follows_imports():
    found = imported_by("delta_mixin.mixins")
    assert {"delta_mixin.planner", "delta_mixin._view", "delta_mixin.model"} <= found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_DeltaSnapshot(["a"]), (["a"],)),
        (_DeltaSnapshot(["a"]), [["a"]]),
        (True, 1),
        (0, False),
        (1, 1.0),
        ({"a": True}, {"a": 1}),
        ([1], (1,)),
        ([1], [1, 1]),
    ],
)
def test_values_of_another_type_are_not_the_same(one, other):
    assert Stored(one) != Stored(other)
    assert Stored(other) != Stored(one)
    assert Stored(one) == Stored(one)


def test_a_walk_tells_how_it_ended(view):
    thread = HandMadeThread(view)
    ids = thread.grow(5, snapshot_at=(2,))
    readings = thread.read()
    assert readings["", ids[0]].rebuilt == {}
    assert readings["", ids[1]].rebuilt["log"].ended == "start"
    assert readings["", ids[2]].rebuilt == {}
    rebuilt = readings["", ids[4]].rebuilt["log"]
    assert rebuilt.ended == "seed"
    assert rebuilt.seed == Stored(_DeltaSnapshot(["log1", "log2"]))
    assert [value for _, _, value in rebuilt.writes] == [Stored("log3"), Stored("log4")]


def test_a_gap_is_told_from_a_start(view):
    missing = "1f000000-0000-6000-8000-000000000000"
    thread, other = HandMadeThread(view), HandMadeThread(view, "other")
    thread.put(parent=thread.missing(missing), checkpoint_id="1f000000-0000-6001-8000-000000000000")
    other.put(parent=None, checkpoint_id="1f000000-0000-6001-8000-000000000000")
    (severed,) = thread.read().values()
    (whole,) = oracle.read_thread(view, "other", ("log", "step")).values()
    assert severed.rebuilt["log"].ended == f"severed at {missing}"
    assert whole.rebuilt == {}
    assert severed.differences(whole)


def test_a_loop_ends_a_walk(view):
    thread = HandMadeThread(view)
    ids = thread.grow(4)
    thread.put(checkpoint_id=ids[1], parent=ids[3])
    reading = oracle.read(view, "thread", "", ids[3], ("log",))
    assert reading.rebuilt["log"].ended == f"loop at {ids[3]}"
    assert oracle.kept_by_walk(view, "thread", "", ids[3], ["log"]) == set(ids[1:])


def test_a_parent_pointer_is_no_part_of_a_reading(view):
    for thread_id, parent in (("thread", "1f000000-0000-6000-8000-000000000000"), ("twin", None)):
        config = view.config(thread_id, "", parent)
        checkpoint = {
            "v": 4,
            "id": "1f000000-0000-6001-8000-000000000000",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {},
            "channel_versions": {},
            "versions_seen": {},
        }
        view.put(config, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})
    assert oracle.read_thread(view, "thread", ()) == oracle.read_thread(view, "twin", ())
    assert oracle.read_thread(view, "thread", ("log",)) != oracle.read_thread(
        view, "twin", ("log",)
    )


def test_the_newest_and_the_unknown_can_be_read(view):
    thread = HandMadeThread(view)
    ids = thread.grow(3)
    assert oracle.read(view, "thread", "", None, ("log",)) == thread.read()["", ids[-1]]
    assert oracle.read(view, "thread", "", ids[0][::-1], ("log",)) is None
    assert oracle.read(view, "nobody", "", None, ("log",)) is None
    assert oracle.kept_by_walk(view, "nobody", "", ids[0], ["log"]) == set()
    assert oracle.head(view, "thread") == ids[-1]
    assert oracle.head(view, "nobody") is None


def test_delta_channels_are_found_by_counters_and_snapshots(view):
    thread = HandMadeThread(view, delta=("log", "seen"))
    thread.put(counters_since_delta_snapshot={})
    bare = {"counters_since_delta_snapshot": {}}
    thread.superstep(("log", "x"), ("seen", "y"), snapshot=("seen",), **bare)
    assert oracle.delta_channels(view, "thread", "") == {"seen"}
    thread.put()
    assert oracle.delta_channels(view, "thread", "") == {"log", "seen"}
    assert oracle.read_thread(view, "thread") == thread.read()


def test_a_reader_that_differs_from_the_parents_is_reported(view):
    thread = HandMadeThread(view)
    thread.grow(3)
    sound = view.saver.get_delta_channel_history

    def reader(*, config, channels):
        found = sound(config=config, channels=channels)
        return {channel: {**history, "writes": []} for channel, history in found.items()}

    view.saver.get_delta_channel_history = reader
    with pytest.raises(AssertionError, match="the parents give"):
        thread.read()
