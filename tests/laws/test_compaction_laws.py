"""Laws of compaction, on random threads of every shape, with a graph of the same channels."""

from __future__ import annotations

from typing import Annotated, Any

from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.channels import EphemeralValue
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from delta_mixin import compaction
from delta_mixin.testing import (
    Channel,
    Pruning,
    Step,
    ThreadHistory,
    prunings,
    run_selections,
    thread_histories,
    write_history,
)
from delta_mixin.testing import _roots as judge
from delta_mixin.testing._twins import read_all_of
from delta_mixin.testing.histories import ROOT


def extend(state: list[Any], writes: list[Any]) -> list[Any]:
    return [*state, *writes]


def graph_of(history: ThreadHistory) -> Any:
    """A graph with the history's channels in all its namespaces."""
    kinds = {
        "delta": Annotated[list, DeltaChannel(extend)],
        "plain": list,
        "ephemeral": Annotated[list, EphemeralValue],
    }
    state: Any = TypedDict("State", {c.name: kinds[c.kind] for c in history.channels})

    def compiled(nodes: dict[str, Any], **options: Any) -> Any:
        builder = StateGraph(state)
        for name, node in nodes.items():
            builder.add_node(name, node)
            builder.add_edge(START, name)
        return builder.compile(**options)

    inner = compiled({"step": lambda values: {}})
    return compiled(
        {
            "tool": compiled({"inner": inner}),
            "memory": compiled({"inner": inner}, checkpointer=True),
        }
    )


def call(view, name, *args, **options):
    """A function of the module, or its twin, on the view's side."""
    if view.side == "sync":
        return getattr(compaction, name)(*args, saver=view.saver, **options)
    return view.run(getattr(compaction, f"a{name}")(*args, saver=view.saver, **options))


def value(reading, channel):
    """What a graph reads: the stored value, or the seed with the writes replayed."""
    if channel in reading.values:
        stored = reading.values[channel].value
        return getattr(stored, "value", stored)
    rebuilt = reading.rebuilt.get(channel)
    if rebuilt is None:
        return []
    seed = [] if rebuilt.seed is None else rebuilt.seed.value
    return [*getattr(seed, "value", seed), *(write.value for _, _, write in rebuilt.writes)]


def without_counters(reading):
    metadata = dict(reading.metadata.value)
    metadata.pop("counters_since_delta_snapshot", None)
    return metadata


def expect_as_before(history, before, after, roots):
    for key in sorted(roots):
        assert key in after, f"{key} is gone"
        for channel in history.delta_channels:
            assert value(after[key], channel) == value(before[key], channel), (key, channel)
        assert after[key].writes == before[key].writes, key
        assert after[key].rest == before[key].rest, key
        assert without_counters(after[key]) == without_counters(before[key]), key
        others = before[key].values.keys() - set(history.delta_channels)
        assert {c: after[key].values[c] for c in others} == {
            c: before[key].values[c] for c in others
        }, key


def roots_of_compact_prune(view, before, **options):
    """As of a prune; a subgraph call stays for a root checkpoint, not for what that needs."""
    roots = judge.roots_of_prune(view, "t", before, **options)
    kept_for = {i for ns, i in roots if ns == ROOT}
    calls = {ns for ns, _ in roots if ":" in ns}
    for ns in calls:
        ids = sorted(i for n, i in before if n == ns)
        wanted = {
            i for i in ids if i in options["pinned"] or judge._is_younger(i, options["older_than"])
        }
        started_from = judge._root_of(before[ns, ids[-1]])
        if not wanted and (ROOT, started_from) in before and started_from not in kept_for:
            roots -= {(ns, i) for i in ids}
    return roots


def all_done(view, history, reports):
    """Whether nothing was left, which is allowed for one reason only.

    Where old releases branched off, a checkpoint reads what another branch has left at its parent
    without a version of its own. A store by version cannot hold a value for one of the two.
    """
    left = [x for report in reports for x in report.left]
    if left:
        assert view.saver.VALUES_BY_VERSION
        assert any(step.old for step in history.steps)
        assert all("shares its version" in x.why for x in left), left
    return not left


@given(history=thread_histories(), pruning=prunings())
def test_exactly_the_roots_stay_and_read_as_before(opened, history, pruning):
    with opened() as view:
        write_history(view, history, "t")
        before = read_all_of(view, "t", history.delta_channels)
        options = {"pinned": (), "older_than": None, **pruning.options(before)}
        roots = roots_of_compact_prune(view, before, **options)
        reports = call(view, "compact", graph_of(history), ["t"], prune=True, **options)
        after = read_all_of(view, "t", history.delta_channels)
        if all_done(view, history, reports):
            assert after.keys() == roots
        expect_as_before(history, before, after, roots)


# What goes on from the first write's commit reads what a branch has left there, old or new.
left_at_its_base = example(
    history=ThreadHistory(
        (Channel("items", snapshot_every=2),),
        (
            Step(old=True),
            Step((("items",),), old=True),
            Step(old=True),
            Step((("items",),), back=1, old=True),
        ),
    ),
    pruning=Pruning(keep_last=2),
)


@left_at_its_base
@given(history=thread_histories(), pruning=prunings())
def test_without_prune_every_checkpoint_reads_as_before(opened, history, pruning):
    with opened() as view:
        write_history(view, history, "t")
        before = read_all_of(view, "t", history.delta_channels)
        options = pruning.options(before)
        all_done(view, history, call(view, "compact", graph_of(history), ["t"], **options))
        after = read_all_of(view, "t", history.delta_channels)
        assert after.keys() == before.keys()
        expect_as_before(history, before, after, before)
        assert judge.parents_of(view, "t", before) == judge.parents_of(view, "t", after)


@given(history=thread_histories(), runs=run_selections())
def test_nothing_of_a_deleted_run_stays_and_survivors_read_as_before(opened, history, runs):
    with opened() as view:
        write_history(view, history, "t")
        before = read_all_of(view, "t", history.delta_channels)
        survivors = judge.roots_of_run_deletion(before, runs)
        reports = call(view, "delete_for_runs", graph_of(history), runs, thread_ids=["t"])
        after = read_all_of(view, "t", history.delta_channels)
        if all_done(view, history, reports):
            assert after.keys() == survivors
        expect_as_before(history, before, after, survivors)


@given(history=thread_histories(), start=st.integers(0, 9))
def test_a_copy_of_a_checkpoint_holds_what_belongs_to_it_alone(opened, history, start):
    with opened() as view:
        write_history(view, history, "t")
        before = read_all_of(view, "t", history.delta_channels)
        starts = [i for ns, i in before if ns == ROOT]
        if not starts:
            return
        checkpoint_id = starts[start % len(starts)]
        parents = judge.parents_of(view, "t", before)
        roots = judge.roots_of_copy(before, parents, checkpoint_id)
        graph = graph_of(history)
        report = call(view, "copy_thread", graph, "t", "copy", checkpoint_id=checkpoint_id)
        copied = read_all_of(view, "copy", history.delta_channels)
        if all_done(view, history, [report]):
            assert copied.keys() == roots
        expect_as_before(history, before, copied, roots)
        assert read_all_of(view, "t", history.delta_channels) == before
