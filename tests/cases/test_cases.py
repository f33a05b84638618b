"""Failure stories from the field, each as a test of its kind.

The numbers are those of the project's list of cases. Kept elsewhere: 3 and 5 (readers) in the
contract suite, 7 (statement limits) with the SQLite savers, 14 (arguments) with the unit tests,
10 (a NUL in a thread id) concerns Postgres.
"""

from __future__ import annotations

import operator
import uuid
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from delta_mixin import (
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
    SeveredHistoryError,
)
from delta_mixin.adapters.memory import DeltaInMemorySaver

COUNTERS = "counters_since_delta_snapshot"


def config(thread_id: Any, checkpoint_id: str | None = None) -> Any:
    conf = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {
        "configurable": conf if checkpoint_id is None else {**conf, "checkpoint_id": checkpoint_id}
    }


def history(saver: Any, thread_id: Any, checkpoint_id: str | None = None) -> Any:
    # Old readers do not look up the newest checkpoint themselves.
    checkpoint_id = checkpoint_id or stored(saver, thread_id)[0]
    found = saver.get_delta_channel_history(config=config(thread_id, checkpoint_id), channels=["m"])
    return found["m"].get("seed", "no seed"), [write[2] for write in found["m"]["writes"]]


def stored(saver: Any, thread_id: Any) -> list[str]:
    return [saved.checkpoint["id"] for saved in saver.list(config(thread_id))]


class TestCase01UpdateStateOnly:
    """No counters and no snapshot anywhere, as `update_state` before langgraph 1.2.9 wrote."""

    @pytest.mark.parametrize("updates", [1, 2, 5])
    def test_the_value_is_kept(self, saver, put, updates):
        row = put("t", versions={}, source="update", writes=[("m", "first")])
        for i in range(updates):
            row = put("t", row, versions={"m": f"{i}"}, source="update", writes=[("m", i)])
        before = history(saver, "t")
        assert len(before[1]) == updates
        saver.prune(["t"])
        assert history(saver, "t") == before


class TestCase02Forks:
    def test_each_branch_reads_as_before(self, saver, thread):
        main = thread("t")
        main.run("a", run_id="1")
        old = next(iter(main.history()))
        main.run("b", run_id="2")
        abandoned = next(iter(main.history()))
        fork = main.graph.update_state(
            {"configurable": {"thread_id": "t", "checkpoint_id": old, "checkpoint_ns": ""}},
            {"log": ["forked"]},
        )
        main.run("c", run_id="3", config=fork)
        before = main.history()
        assert before[abandoned]["log"] != before[next(iter(before))]["log"]
        saver.prune(["t"], pinned=[abandoned])
        after = main.history()
        assert next(iter(after)) == next(iter(before))
        for kept in (abandoned, next(iter(before))):
            assert after[kept] == before[kept]


class TestCase04Seeds:
    @pytest.mark.parametrize("seed", [["plain"], "text", 7, 0, "", True, False, {"a": 1}])
    def test_a_plain_value_stops_the_walk_and_stays(self, saver, put, seed):
        above = put("t", versions={"m": "1"}, writes=[("m", "too old")])
        first = put("t", above, values={"m": seed}, versions={"m": "2"}, writes=[("m", "w1")])
        second = put(
            "t", first, versions={"m": "3"}, writes=[("m", "w2")], **{COUNTERS: {"m": [1, 1]}}
        )
        put("t", second, versions={"m": "4"}, **{COUNTERS: {"m": [2, 2]}})
        before = history(saver, "t")
        assert before[0] == seed
        assert type(before[0]) is type(seed)
        saver.prune(["t"])
        assert history(saver, "t") == before
        assert len(stored(saver, "t")) == 3


class TestCase06Loops:
    def test_a_chain_that_closes_on_itself_ends(self, saver, put):
        first = put("t", versions={"m": "1"}, **{COUNTERS: {"m": [1, 1]}})
        second = put("t", first, versions={"m": "2"}, **{COUNTERS: {"m": [2, 2]}})
        put("t", second, versions={"m": "1"}, checkpoint_id=first, **{COUNTERS: {"m": [1, 1]}})
        assert saver.get_delta_channel_keepset(config("t"), ["m"]) == {first, second}
        saver.prune(["t"])
        saver.delete_for_runs(["r"])
        saver.copy_thread("t", "copy", checkpoint_id=second)
        assert set(stored(saver, "t")) == set(stored(saver, "copy")) == {first, second}


class TestCase08Interrupts:
    @pytest.fixture
    def build(self):
        class State(TypedDict):
            done: Annotated[list[str], DeltaChannel(lambda s, ws: sum(ws, s), snapshot_frequency=3)]

        def compiled(saver, calls):
            def finishes(state):
                calls.append("finishes")
                return {"done": ["finished"]}

            def asks(name):
                return lambda state: {"done": [f"{name}: {interrupt(name)}"]}

            builder = StateGraph(State)
            builder.add_node("start", lambda state: {"done": ["start"]})
            builder.add_edge(START, "start")
            for name, node in (("a", asks("a")), ("b", finishes), ("c", asks("c"))):
                builder.add_node(name, node)
                builder.add_edge("start", name)
                builder.add_edge(name, END)
            return builder.compile(checkpointer=saver)

        return compiled

    def test_finished_tools_do_not_run_again(self, saver, build):
        outcomes = {}
        for thread_id in ("cleaned", "twin"):
            calls: list[str] = []
            graph = build(saver, calls)
            graph.invoke({"done": ["in"]}, config(thread_id), durability="sync")
            if thread_id == "cleaned":
                saver.prune([thread_id])
                saver.delete_for_runs(["other"])
            pending = graph.get_state(config(thread_id)).tasks
            answers = {task.interrupts[0].id: "yes" for task in pending if task.interrupts}
            assert len(answers) == 2
            graph.invoke(Command(resume=answers), config(thread_id), durability="sync")
            outcomes[thread_id] = (calls, graph.get_state(config(thread_id)).values)
        assert outcomes["cleaned"] == outcomes["twin"]
        assert outcomes["twin"][0] == ["finishes"]


class TestCase09ThreadIdsOfOtherTypes:
    @pytest.mark.parametrize("thread_id", [7, uuid.UUID(int=7)])
    def test_an_id_is_found_however_it_is_spelt(self, saver, thread, thread_id):
        driven = thread(thread_id)
        driven.run("a", run_id="1")
        driven.run("b", run_id="2")
        before = driven.values()
        rows = len(driven.history())
        saver.copy_thread(thread_id, "copy")
        assert thread("copy").values() == before
        assert len(saver.plan_prune([str(thread_id)])) == 1
        saver.delete_for_runs(["1"], thread_ids=[thread_id])
        assert driven.values() == before
        saver.prune([thread_id])
        assert driven.values() == before
        assert len(driven.history()) < rows


class TestCase11SnapshotsKeepTheirType:
    def test_through_a_copy_and_a_copy_of_it(self, saver, put):
        put("t", values={"m": _DeltaSnapshot(["x"])})
        saver.copy_thread("t", "copy")
        saver.copy_thread("copy", "copy of copy", checkpoint_id=stored(saver, "copy")[0])
        for thread_id in ("copy", "copy of copy"):
            value = saver.get_tuple(config(thread_id)).checkpoint["channel_values"]["m"]
            assert type(value) is _DeltaSnapshot
            assert value.value == ["x"]


class DefaultHooks(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver):
    """Writes no hook that a copy needs."""


class TestCase12CopyThroughThePublicApi:
    def test_parallel_writes_keep_their_order(self):
        class State(TypedDict):
            log: Annotated[list[str], DeltaChannel(lambda s, ws: sum(ws, s), snapshot_frequency=50)]

        saver = DefaultHooks()
        builder = StateGraph(State)
        for i in range(8):
            builder.add_node(f"n{i}", lambda state, i=i: {"log": [f"{i}a", f"{i}b"]})
            builder.add_edge(START, f"n{i}")
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"log": ["in"]}, config("t"), durability="sync")
        graph.invoke({"log": ["again"]}, config("t"), durability="sync")
        saver.copy_thread("t", "copy")
        assert graph.get_state(config("copy")).values == graph.get_state(config("t")).values
        for checkpoint_id in stored(saver, "t"):
            there, here = (
                saver.get_tuple(config(thread_id, checkpoint_id)) for thread_id in ("t", "copy")
            )
            assert here.pending_writes == there.pending_writes
            assert here.checkpoint == there.checkpoint
            assert here.metadata == there.metadata

    def test_several_writes_of_one_task_stay_apart(self):
        saver = DefaultHooks()
        stored_at = saver.put(
            config("t"),
            {"v": 4, "id": "1", "ts": "", "channel_values": {}, "channel_versions": {},
             "versions_seen": {}, "updated_channels": None},
            {"source": "loop"},
            {},
        )  # fmt: skip
        saver.put_writes(stored_at, [("m", 1), ("m", 2), ("n", 3)], "task", "path")
        saver.put_writes(stored_at, [("__interrupt__", "?")], "task", "path")
        saver.copy_thread("t", "copy")
        assert (
            saver.get_tuple(config("copy")).pending_writes
            == saver.get_tuple(config("t")).pending_writes
        )


class TestCase13SharedVersions:
    def test_the_row_that_stays_keeps_its_values(self, saver, put):
        values, versions = {"m": _DeltaSnapshot([1]), "n": 5}, {"m": "3", "n": "2"}
        first = put("t", values=values, versions=versions, run_id="1")
        put("t", first, values=values, versions=versions, run_id="2")
        before = saver.get_tuple(config("t")).checkpoint
        saver.prune(["t"])
        saver.delete_for_runs(["1"])
        assert saver.get_tuple(config("t")).checkpoint == before
        assert len(stored(saver, "t")) == 1


class TestCase15RunDeletion:
    def test_survivors_read_as_before_and_nothing_is_orphaned(self, saver, thread):
        driven = thread("t")
        for run in ("1", "2", "3"):
            driven.run(f"in {run}", run_id=run)
        before = driven.history()
        saver.delete_for_runs(["2"])
        after = driven.history()
        assert after == {i: before[i] for i in after}
        runs = [saved.metadata["run_id"] for saved in saver.list(config("t"))]
        assert runs.count("1") == runs.count("3") == len(before) // 3
        assert runs.count("2") < len(before) // 3
        self.assert_nothing_orphaned(saver)
        saver.delete_for_runs(["1", "2", "3"])
        assert not stored(saver, "t")
        self.assert_nothing_orphaned(saver)

    def assert_nothing_orphaned(self, saver):
        if isinstance(saver, InMemorySaver):
            rows = {(t, ns, i) for t, n in saver.storage.items() for ns, c in n.items() for i in c}
            assert set(saver.writes) <= rows
            used = {
                (t, ns, *version)
                for t, ns, i in rows
                for version in saver.serde.loads_typed(saver.storage[t][ns][i][0])[
                    "channel_versions"
                ].items()
            }
            assert set(saver.blobs) <= used
        else:
            key = "thread_id, checkpoint_ns, checkpoint_id"
            sql = f"SELECT {key} FROM writes EXCEPT SELECT {key} FROM checkpoints"
            assert saver.conn.execute(sql).fetchall() == []


class PointerSaver(DeltaInMemorySaver):
    """Keeps a pointer to the head of each namespace, which need not be the newest id."""

    NEWEST_ID_IS_HEAD = False

    def __init__(self) -> None:
        super().__init__()
        self.heads: dict[tuple[str, str], str | None] = {}

    def put(self, config, checkpoint, metadata, new_versions):
        conf = config["configurable"]
        self.heads[conf["thread_id"], conf["checkpoint_ns"]] = checkpoint["id"]
        return super().put(config, checkpoint, metadata, new_versions)

    def get_tuple(self, config):
        conf = config["configurable"]
        if not conf.get("checkpoint_id"):
            head = self.heads.get((conf["thread_id"], conf.get("checkpoint_ns", "")))
            if head is None:
                return None
            config = {"configurable": {**conf, "checkpoint_id": head}}
        return super().get_tuple(config)

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            self.heads.update({(plan.thread_id, ns): head for ns, head in plan.heads.items()})


class TestCase16HeadPointers:
    @pytest.fixture
    def saver(self):
        return PointerSaver()

    def test_a_prune_keeps_the_row_pointed_to(self, saver, put):
        newest = put("t", values={"n": 1}, checkpoint_id="9")
        head = put("t", newest, values={"n": 2}, checkpoint_id="1")
        put("u", values={"n": 3}, checkpoint_id="5")
        saver.prune(["t", "u"])
        assert saver.get_tuple(config("t")).checkpoint["id"] == head
        assert saver.heads == {("t", ""): head, ("u", ""): "5"}

    def test_after_a_run_deletion_the_newest_survivor_is_the_head(self, saver, put):
        first = put("t", values={"n": 1}, run_id="old")
        second = put("t", first, values={"n": 2}, run_id="old")
        put("t", second, values={"n": 3}, run_id="new")
        saver.delete_for_runs(["new"], thread_ids=["t"])
        assert saver.get_tuple(config("t")).checkpoint["id"] == second
        saver.delete_for_runs(["old"], thread_ids=["t"])
        assert saver.get_tuple(config("t")) is None


class TestCase17Neighbours:
    neighbours = ("u_2", "u", "U", "u%", "ux", "u ", "_", "%")

    @pytest.mark.parametrize("operation", ["prune", "delete", "delete_for_runs"])
    def test_no_other_thread_is_touched(self, saver, thread, operation):
        for name in self.neighbours:
            thread(name).run("in", run_id="r")
        before = {name: thread(name).history() for name in self.neighbours}
        if operation == "delete_for_runs":
            saver.delete_for_runs(["r"], thread_ids=["u"])
        else:
            strategy = "delete" if operation == "delete" else "keep_latest"
            saver.prune(["u"], strategy=strategy)
        for name in self.neighbours:
            assert (thread(name).history() == before[name]) == (name != "u")


class TestCase18SeveredByAnotherTool:
    @pytest.fixture
    def severed(self, put):
        put("t", values={"n": 1})
        head = put("t", "gone", versions={"m": "4"}, run_id="1", **{COUNTERS: {"m": [3, 3]}})
        put("t", head, versions={"m": "5"}, run_id="2", **{COUNTERS: {"m": [4, 4]}})
        return "t"

    def test_no_cleanup_touches_the_thread_and_each_names_it(self, saver, severed):
        rows = stored(saver, severed)
        with pytest.raises(SeveredHistoryError, match=r"'t': checkpoint .* needs parent gone"):
            saver.prune([severed])
        with pytest.raises(SeveredHistoryError, match=r"'t': checkpoint .* needs parent gone"):
            saver.delete_for_runs(["1"], thread_ids=[severed])
        with pytest.raises(SeveredHistoryError, match=r"'t': checkpoint .* needs parent gone"):
            saver.copy_thread(severed, "copy", checkpoint_id=rows[0])
        assert stored(saver, severed) == rows
        assert stored(saver, "copy") == []

    def test_a_whole_copy_is_as_broken_as_its_source(self, saver, severed):
        saver.copy_thread(severed, "copy")
        assert history(saver, "copy") == history(saver, severed)

    def test_on_request_what_is_left_of_it_is_pruned(self, saver, severed):
        saver.prune([severed], severed="ignore")
        assert len(stored(saver, severed)) == 2


class TestCase23WhereTheRunIdIs:
    def test_the_top_level_run_id_is_not_stored_but_the_one_in_metadata_is(self, saver, graph):
        compiled, run = graph(saver), uuid.uuid4()
        compiled.invoke({"log": ["a"], "n": 0}, {**config("t"), "run_id": run}, durability="sync")
        assert not any(plan.changes for plan in saver.plan_delete_for_runs([run]))
        with_metadata = {**config("t"), "metadata": {"run_id": str(run)}}
        compiled.invoke({"log": ["b"], "n": 0}, with_metadata, durability="sync")
        assert saver.plan_delete_for_runs([run])[0].doomed


class TestParallelWriters:
    """Cases 3 and 12 with a graph that fans out: order survives prune, copy and both."""

    def test_the_value_stays_in_the_order_of_the_run(self, saver):
        class State(TypedDict):
            log: Annotated[list[str], DeltaChannel(lambda s, ws: sum(ws, s), snapshot_frequency=50)]
            n: Annotated[int, operator.add]

        builder = StateGraph(State)
        builder.add_node("split", lambda state: {"log": ["split"]})
        builder.add_node("work", lambda state: {"log": [state["name"]]})
        builder.add_edge(START, "split")
        builder.add_conditional_edges(
            "split", lambda state: [Send("work", {"name": f"w{i}"}) for i in range(8)], ["work"]
        )
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"log": ["in"], "n": 0}, config("t"), durability="sync")
        before = graph.get_state(config("t")).values
        saver.prune(["t"])
        saver.copy_thread("t", "copy")
        saver.prune(["copy"])
        assert graph.get_state(config("t")).values == before
        assert graph.get_state(config("copy")).values == before
