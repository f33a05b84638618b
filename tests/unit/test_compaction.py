"""What compaction refuses, leaves and reports, and the default hook over the public API."""

from __future__ import annotations

import asyncio
import itertools
import operator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import UUID

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from delta_mixin import (
    CompactionError,
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
    RewriteUnsafeError,
    SeveredHistoryError,
    compaction,
)
from delta_mixin._resolving import Replayer, UnresolvedError
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.testing._bridge import open_saver


def extend(state: list, writes: list) -> list:
    return [*state, *itertools.chain.from_iterable(writes)]


def graph_of(reducer: Any = extend, saver: Any = None, **more: Any) -> Any:
    """A graph with one step that writes `log`."""
    annotations = {"log": Annotated[list, DeltaChannel(reducer)], "n": int, **more}
    state: Any = TypedDict("State", annotations)
    builder = StateGraph(state)
    builder.add_node("step", lambda values: {"log": [f"step {values['n']}"]})
    builder.add_edge(START, "step")
    return builder.compile(checkpointer=saver)


def config(thread: Any = "t") -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def run(graph: Any, thread: Any = "t", runs: int = 2) -> Any:
    for n in range(runs):
        given = {"log": [f"in {n}"], "n": n}
        conf = {**config(thread), "metadata": {"run_id": f"run {n}"}}
        graph.invoke(given, conf, durability="sync")
    return graph


def rows(saver: Any, thread: Any = "t") -> list[Any]:
    return list(saver.list(config(thread)))


@contextmanager
def sqlite():
    with DeltaSqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


@contextmanager
def memory():
    yield DeltaInMemorySaver()


class ByPublicApi(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver):
    """A saver that writes the one hook only."""

    def _delete_checkpoint_rows(self, plans: Any) -> None:
        for plan in plans:
            for ns, checkpoint_id in plan.doomed:
                self.writes.pop((plan.thread_id, ns, checkpoint_id), None)
                del self.storage[plan.thread_id][ns][checkpoint_id]
            for ns, checkpoint_id in plan.detached:
                row = self.storage[plan.thread_id][ns][checkpoint_id]
                self.storage[plan.thread_id][ns][checkpoint_id] = (*row[:2], None)


@contextmanager
def by_public_api():
    yield ByPublicApi()


savers = pytest.mark.parametrize("opened", [memory, sqlite, by_public_api])


# -- reducers ------------------------------------------------------------------------------------


def count_batches(state: list, writes: list) -> list:
    return [*state, len(writes)]


numbers = itertools.count()


def stamp(state: list, writes: list) -> list:
    return [*state, next(numbers)]


def refuse_singles(state: list, writes: list) -> list:
    if len(writes) == 1 and len(state) > 1:
        raise ValueError("one is too few")
    return extend(state, writes)


@savers
@pytest.mark.parametrize(
    ("reducer", "said"),
    [
        (count_batches, "one by one do not give what they give at once"),
        (stamp, "changes from one resolution to the next"),
        (refuse_singles, "reducer raised ValueError: one is too few"),
    ],
)
def test_a_reducer_that_cannot_be_trusted_stops_its_thread_and_no_other(opened, reducer, said):
    with opened() as saver:
        run(graph_of(saver=saver), "bad")
        run(graph_of(saver=saver), "good")
        before = rows(saver, "bad")
        told = []

        def by_thread(state: list, writes: list) -> list:
            bad = "bad" in state or any("bad" in write for write in writes)
            return (reducer if bad else extend)(state, writes)

        # The value says which thread it is of.
        saver.put_writes(before[-1].config, [("log", ["bad"])], "00000000-0000-0000-0000-0000000f")
        before = rows(saver, "bad")
        with pytest.raises(CompactionError, match=said) as caught:
            compaction.compact(
                graph_of(by_thread, saver), ["bad", "good"], prune=True, on_report=told.append
            )
        assert caught.value.threads == ("bad",)
        assert "channel 'log'" in caught.value.failures["bad"]
        assert before[0].checkpoint["id"] in caught.value.failures["bad"]
        assert rows(saver, "bad") == before
        assert [report.thread_id for report in told] == ["good"]
        assert len(rows(saver, "good")) == 1


def test_a_reducer_that_changes_what_it_is_given_is_no_fault():
    def in_place(state: list, writes: list) -> list:
        for write in writes:
            state.extend(write)
            write.clear()
        return state

    with sqlite() as saver:
        graph = run(graph_of(saver=saver))
        values = graph.get_state(config()).values
        compaction.compact(graph_of(in_place, saver), ["t"], prune=True)
        assert graph.get_state(config()).values == values


def test_values_without_equality_are_compared_as_they_are_stored():
    def keep_nan(state: list, writes: list) -> list:
        return [*state, *(float("nan") for _ in writes)]

    with sqlite() as saver:
        run(graph_of(saver=saver))
        (report,) = compaction.compact(graph_of(keep_nan, saver), ["t"], prune=True)
        assert list(report.compacted.values()) == [("log",)]


# -- savers --------------------------------------------------------------------------------------


class Raises(ByPublicApi):
    def put(self, conf, checkpoint, metadata, new_versions):
        ns, thread = conf["configurable"]["checkpoint_ns"], conf["configurable"]["thread_id"]
        if checkpoint["id"] in self.storage[thread][ns]:
            raise RuntimeError("a checkpoint is put once")
        return super().put(conf, checkpoint, metadata, new_versions)


class Duplicates(ByPublicApi):
    def list(self, conf, **options):
        for saved in super().list(conf, **options):
            yield saved
            if any(
                isinstance(v, _DeltaSnapshot) for v in saved.checkpoint["channel_values"].values()
            ):
                yield saved


class LosesWrites(ByPublicApi):
    def put(self, conf, checkpoint, metadata, new_versions):
        key = (conf["configurable"]["thread_id"], "", checkpoint["id"])
        self.writes.pop(key, None)
        return super().put(conf, checkpoint, metadata, new_versions)


class DuplicatesWrites(ByPublicApi):
    def put(self, conf, checkpoint, metadata, new_versions):
        key = (conf["configurable"]["thread_id"], "", checkpoint["id"])
        for (task, index), write in list(self.writes.get(key, {}).items()):
            self.writes[key][task, index + 100] = write
        return super().put(conf, checkpoint, metadata, new_versions)


class ForgetsParents(ByPublicApi):
    def put(self, conf, checkpoint, metadata, new_versions):
        conf = {"configurable": {**conf["configurable"]}}
        if checkpoint["id"] in self.storage[conf["configurable"]["thread_id"]][""]:
            conf["configurable"].pop("checkpoint_id")
        return super().put(conf, checkpoint, metadata, new_versions)


class KeepsBlobs(ByPublicApi):
    """As Postgres does: what stands under a version is not replaced."""

    def put(self, conf, checkpoint, metadata, new_versions):
        before = dict(self.blobs)
        saved = super().put(conf, checkpoint, metadata, new_versions)
        self.blobs.update(before)
        return saved


class TurnsTypesIntoText(ByPublicApi):
    def put(self, conf, checkpoint, metadata, new_versions):
        values = {
            c: v.value if isinstance(v, _DeltaSnapshot) else v
            for c, v in checkpoint["channel_values"].items()
        }
        return super().put(conf, {**checkpoint, "channel_values": values}, metadata, new_versions)


class NoDelete(ByPublicApi):
    def delete_thread(self, thread_id):
        raise NotImplementedError


UNSAFE = {
    Raises: "it raised RuntimeError: a checkpoint is put once",
    Duplicates: "is listed 2 times",
    LosesWrites: r"pending writes are not the same \(0 for 1\)",
    DuplicatesWrites: r"pending writes are not the same \(2 for 1\)",
    ForgetsParents: "its parent is None",
    KeepsBlobs: "no value of 'log' is found",
    TurnsTypesIntoText: "the value of 'log' is not what was put",
    NoDelete: "no delete_thread",
}


@pytest.mark.parametrize("saver_class", UNSAFE)
def test_a_saver_that_cannot_put_a_checkpoint_again_is_found_out_on_another_thread(saver_class):
    saver = saver_class()
    graph = run(graph_of(saver=saver))
    saver.put_writes(rows(saver)[0].config, [("note", "pending")], "task")
    before = rows(saver)
    with pytest.raises(RewriteUnsafeError, match=UNSAFE[saver_class]) as caught:
        compaction.compact(graph, ["t"], prune=True)
    assert "_rewrite_checkpoint" in str(caught.value)
    assert saver_class.__name__ in str(caught.value)
    assert rows(saver) == before
    assert set(saver.storage) == {"t"}


def test_the_default_hook_leaves_nothing_but_the_head_and_its_writes():
    saver = ByPublicApi()
    graph = run(graph_of(saver=saver))
    saver.put_writes(rows(saver)[0].config, [("note", "pending")], "task")
    before, values = rows(saver)[0], graph.get_state(config()).values
    (report,) = compaction.compact(graph, ["t"], prune=True)
    (head,) = rows(saver)
    assert head.pending_writes == before.pending_writes
    assert head.checkpoint["channel_values"]["log"] == _DeltaSnapshot(values["log"])
    assert head.checkpoint["channel_versions"] == before.checkpoint["channel_versions"]
    assert "counters_since_delta_snapshot" in before.metadata
    assert "counters_since_delta_snapshot" not in head.metadata
    assert graph.get_state(config()).values == values
    assert (report.rows_before, report.rows_after) == (6, 1)
    assert set(saver.storage) == {"t"}


class Lossy(JsonPlusSerializer):
    """Drops the last item of a snapshot."""

    def dumps_typed(self, obj):
        if isinstance(obj, _DeltaSnapshot):
            obj = _DeltaSnapshot(obj.value[:-1])
        if isinstance(obj, dict) and "channel_values" in obj:
            values = {
                c: _DeltaSnapshot(v.value[:-1]) if isinstance(v, _DeltaSnapshot) else v
                for c, v in obj["channel_values"].items()
            }
            obj = {**obj, "channel_values": values}
        return super().dumps_typed(obj)


@pytest.mark.parametrize("opened", [memory, sqlite])
def test_what_does_not_read_back_is_taken_back(opened):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        before = rows(saver)
        saver.serde = Lossy()
        with pytest.raises(CompactionError, match="read back after storing, the value of 'log'"):
            compaction.compact(graph, ["t"], prune=True)
        saver.serde = JsonPlusSerializer()
        assert rows(saver) == before


def test_sqlite_does_not_store_again_what_loading_has_changed():
    class Forgetful(JsonPlusSerializer):
        def loads_typed(self, data):
            loaded = super().loads_typed(data)
            if isinstance(loaded, dict) and "n" in loaded.get("channel_values", ()):
                loaded["channel_values"]["n"] = None
            return loaded

    with sqlite() as saver:
        graph = run(graph_of(saver=saver))
        before = rows(saver)
        saver.serde = Forgetful()
        with pytest.raises(CompactionError, match="holds values that loading changes") as caught:
            compaction.compact(graph, ["t"], prune=True)
        assert caught.value.threads == ("t",)
        saver.serde = JsonPlusSerializer()
        assert rows(saver) == before


# -- what is left ---------------------------------------------------------------------------------


def changed_to(annotation: Any, saver: Any) -> Any:
    """The graph after its channel `log` became another kind, or went."""
    annotations = {"n": int} if annotation is None else {"n": int, "log": annotation}
    state: Any = TypedDict("State", annotations)
    builder = StateGraph(state)
    builder.add_node("step", lambda values: {"n": values["n"] + 1})
    builder.add_edge(START, "step")
    return builder.compile(checkpointer=saver)


@savers
@pytest.mark.parametrize(
    ("annotation", "why"),
    [(None, "it is not in the graph"), (list, "it is LastValue in the graph")],
)
def test_a_channel_that_the_graph_does_not_have_is_left_unless_it_is_named(opened, annotation, why):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        values = graph.get_state(config()).values
        changed = changed_to(annotation, saver)
        (report,) = compaction.compact(changed, ["t"], prune=True)
        assert [(x.channel, why in x.why) for x in report.left] == [("log", True)]
        assert why in str(report.left[0])
        assert not report.compacted
        assert report.rows_after > 1
        assert graph.get_state(config()).values == values

        named = {"log": DeltaChannel(extend)}
        (report,) = compaction.compact(changed, ["t"], prune=True, channels=named)
        assert not report.left
        assert report.rows_after == 1
        assert graph.get_state(config()).values == values


@savers
def test_a_channel_that_went_back_to_a_plain_reducer_is_stored_plainly(opened):
    plain = Annotated[list, operator.add]
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        values = graph.get_state(config()).values
        changed = changed_to(plain, saver)
        named = {"log": DeltaChannel(extend)}
        compaction.compact(changed, ["t"], prune=True, channels=named)
        (head,) = rows(saver)
        assert head.checkpoint["channel_values"]["log"] == values["log"]
        assert changed.get_state(config()).values == values
        assert graph.get_state(config()).values == values
        changed.invoke({"log": ["more"], "n": 7}, config(), durability="sync")
        assert changed.get_state(config()).values["log"] == [*values["log"], "more"]


@savers
def test_a_plain_reducer_is_used_where_the_host_replays_with_it(opened):
    with opened() as saver:
        run(graph_of(saver=saver))
        changed = changed_to(Annotated[list, operator.add], saver)
        values = changed.get_state(config()).values
        (report,) = compaction.compact(changed, ["t"], prune=True)
        assert changed.get_state(config()).values == values
        if values.get("log"):
            assert list(report.compacted.values()) == [("log",)]
            assert report.rows_after == 1
        else:  # langgraph before 1.2.24 reads it as empty, and must find it again when it goes back
            assert "does not rebuild a BinaryOperatorAggregate" in report.left[0].why
            assert report.rows_after == report.rows_before


@savers
@pytest.mark.parametrize("thread", [7, UUID(int=7)])
def test_thread_ids_that_are_no_text_are_found(opened, thread):
    with opened() as saver:
        if isinstance(saver, ByPublicApi):
            pytest.skip("this saver knows them by their text only")
        graph = run(graph_of(saver=saver), thread)
        values = graph.get_state(config(thread)).values
        (report,) = compaction.compact(graph, [thread], prune=True)
        assert report.rows_after == 1
        assert graph.get_state(config(thread)).values == values


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": 3}, "the checkpoint is of format 3"),
        ({"channel_values": {"n": 1, "log": None}}, "a None is stored"),
    ],
)
def test_a_checkpoint_that_readers_take_differently_keeps_its_history(change, why):
    with sqlite() as saver:
        graph = run(graph_of(saver=saver))
        head = rows(saver)[0]
        saver.put(head.parent_config, {**head.checkpoint, **change}, head.metadata, {})
        before = rows(saver)
        (report,) = compaction.compact(graph, ["t"], prune=True)
        assert [why in left.why for left in report.left] == [True]
        assert rows(saver) == before


@pytest.mark.parametrize("value", [None, True, False])
def test_a_plain_value_that_savers_store_differently_is_not_stored(value):
    with pytest.raises(UnresolvedError, match=f"savers differ on a plain {value}"):
        Replayer("flag", DeltaChannel(extend), plain=True).stored(value)


def with_subgraph(inner: Any, saver: Any) -> Any:
    state: Any = TypedDict("State", {"log": Annotated[list, DeltaChannel(extend)], "n": int})
    builder = StateGraph(state)
    builder.add_node("sub", inner)
    builder.add_edge(START, "sub")
    return builder.compile(checkpointer=saver)


@savers
def test_a_namespace_whose_graph_is_not_found_keeps_its_history(opened):
    with opened() as saver:
        remembering = graph_of().copy({"checkpointer": True})
        graph = run(with_subgraph(remembering, saver))
        unaware = with_subgraph(lambda values: {}, saver)
        (report,) = compaction.compact(unaware, ["t"], prune=True)
        assert {x.checkpoint_ns for x in report.left} == {"sub"}
        assert "not among the graph's subgraphs" in report.left[0].why
        assert [ns for ns, _ in report.compacted] == [""]
        kept = [ns for ns, _ in report.plan.kept]
        assert kept.count("") == 1
        assert kept.count("sub") > 1

        (report,) = compaction.compact(graph, ["t"], prune=True)
        assert not report.left
        assert sorted(ns for ns, _ in report.plan.kept) == ["", "sub"]


@savers
@pytest.mark.parametrize("prune", [False, True])
def test_a_severed_thread_is_left_alone_and_named(opened, prune):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        run(graph, "whole")
        doomed = rows(saver)[2].checkpoint["id"]
        if isinstance(saver, DeltaSqliteSaver):
            saver.conn.execute("DELETE FROM checkpoints WHERE checkpoint_id = ?", (doomed,))
            saver.conn.commit()
        else:
            del saver.storage["t"][""][doomed]
        before = rows(saver)
        with pytest.raises(SeveredHistoryError) as caught:
            compaction.compact(graph, ["t", "whole"], prune=prune)
        assert caught.value.threads == ("t",)
        assert rows(saver) == before
        saver.prune(["whole"])
        assert len(rows(saver, "whole")) == 1


# -- the three operations ------------------------------------------------------------------------


@savers
def test_without_prune_all_rows_stay_and_a_later_prune_needs_the_head_alone(opened):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        before = [(s.checkpoint["id"], s.parent_config) for s in rows(saver)]
        states = [state.values for state in graph.get_state_history(config())]
        (report,) = compaction.compact(graph, ["t"])
        assert report.plan is None
        assert report.rows_after == report.rows_before == len(before)
        assert [(s.checkpoint["id"], s.parent_config) for s in rows(saver)] == before
        assert [state.values for state in graph.get_state_history(config())] == states
        saver.prune(["t"])
        assert len(rows(saver)) == 1


@savers
def test_compacting_again_finds_nothing_to_do(opened):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        compaction.compact(graph, ["t"], prune=True, keep_last=2)
        before = rows(saver)
        (report,) = compaction.compact(graph, ["t"], prune=True, keep_last=2)
        assert not report.compacted
        assert not report.plan.changes
        assert rows(saver) == before
        assert compaction.compact(graph, ["unknown"]) == []


@savers
def test_a_deleted_run_leaves_nothing_behind(opened):
    with opened() as saver:
        graph = run(graph_of(saver=saver), runs=3)
        values = graph.get_state(config()).values
        options = (
            {}
            if isinstance(saver, (DeltaInMemorySaver, DeltaSqliteSaver))
            else {"thread_ids": ["t"]}
        )
        (report,) = compaction.delete_for_runs(graph, ["run 0", "run 1"], **options)
        assert {s.metadata["run_id"] for s in rows(saver)} == {"run 2"}
        assert len(report.compacted) == 1
        assert graph.get_state(config()).values == values


@savers
def test_a_copy_of_a_checkpoint_holds_that_checkpoint_alone(opened):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        before = rows(saver)
        start = before[2]
        report = compaction.copy_thread(graph, "t", "copy", checkpoint_id=start.checkpoint["id"])
        assert report.thread_id == "copy"
        assert rows(saver) == before
        (copied,) = rows(saver, "copy")
        assert copied.pending_writes == start.pending_writes
        # With an id, as a state without one has the pending input in it.
        assert graph.get_state(copied.config).values == graph.get_state(start.config).values


@savers
def test_a_copy_that_cannot_be_compacted_leaves_no_target(opened):
    with opened() as saver:
        graph = run(graph_of(saver=saver))
        start = rows(saver)[0].checkpoint["id"]
        with pytest.raises(CompactionError, match="one by one"):
            compaction.copy_thread(graph_of(count_batches, saver), "t", "copy", checkpoint_id=start)
        assert rows(saver, "copy") == []
        assert graph.get_state(config()).values["log"]


def test_the_async_twins_work_on_the_sync_saver_in_a_worker_thread():
    told = []

    async def work(graph, start):
        await compaction.acopy_thread(graph, "t", "copy", checkpoint_id=start)
        await compaction.adelete_for_runs(graph, ["run 0"], thread_ids=["t"])
        return await compaction.acompact(graph, ["t", "copy"], prune=True, on_report=told.append)

    with sqlite() as saver:
        graph = run(graph_of(saver=saver))
        reports = asyncio.run(work(graph, rows(saver)[0].checkpoint["id"]))
        assert [r.rows_after for r in reports] == [1, 1]
        assert told == reports


def test_the_sync_functions_work_on_an_async_saver_from_another_thread():
    with open_saver(lambda: AsyncDeltaSqliteSaver.from_conn_string(":memory:")) as view:
        graph = run(graph_of(saver=view.saver))
        values = graph.get_state(config()).values
        (report,) = compaction.compact(graph, ["t"], prune=True)
        assert report.rows_after == 1
        assert graph.get_state(config()).values == values


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"thread_ids": "t"}, TypeError, r"pass \['t'\]"),
        ({"keep_last": 0}, ValueError, "keep_last must be 1 or more"),
        ({"channels": {"log": list}}, TypeError, r"channels\['log'\] must be a DeltaChannel"),
        ({"saver": InMemorySaver()}, TypeError, "saver with DeltaChannelAwarePruneMixin"),
        ({"graph": StateGraph(dict)}, TypeError, r"StateGraph; call compile\(\) on it first"),
        ({"graph": None}, TypeError, "must be a compiled graph, got NoneType"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_read(change, error, said):
    class Unread(DeltaInMemorySaver):
        def _list_checkpoint_rows(self, thread_ids):
            raise AssertionError("read")

    arguments = {"graph": graph_of(saver=Unread()), "thread_ids": ["t"], **change}
    with pytest.raises(error, match=said):
        compaction.compact(arguments.pop("graph"), arguments.pop("thread_ids"), **arguments)


def test_a_graph_without_a_saver_says_what_to_do():
    with pytest.raises(TypeError, match="got None; compile the graph with one, or pass saver="):
        compaction.compact(graph_of(), ["t"])
