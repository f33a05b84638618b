"""What a user meets of base rows: in histories, drawings, and when a graph is run from one."""

from __future__ import annotations

from typing import Annotated

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from delta_mixin import CheckpointRow
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.base_rows import SQUASHED, is_base_row
from delta_mixin.drawing import draw_thread
from delta_mixin.testing.oracle import SETTLED_HOST

THREAD = {"configurable": {"thread_id": "t"}}


def extend(state, writes):
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict):
    log: Annotated[list, DeltaChannel(extend, snapshot_frequency=4)]
    name: str


class Agent:
    """A graph on a saver, and the nodes that ran."""

    def __init__(self, saver):
        self.saver, self.ran = saver, []
        builder = StateGraph(State)
        builder.add_node("a", self._node("a"))
        builder.add_node("b", self._node("b"))
        builder.add_edge(START, "a")
        builder.add_edge("a", "b")
        builder.add_edge("b", END)
        self.graph = builder.compile(checkpointer=saver)

    def _node(self, name):
        def node(state):
            self.ran.append(name)
            return {"log": [f"{name} saw {len(state['log'])}"], "name": name}

        return node

    def invoke(self, given, config=THREAD):
        self.ran.clear()
        return self.graph.invoke(given, config, durability="sync")

    def history(self):
        return list(self.graph.get_state_history(THREAD))

    def base(self):
        (state,) = [s for s in self.history() if is_base_row(s.metadata)]
        return state


@pytest.fixture(params=["sqlite", "memory"])
def agent(request):
    """An agent whose thread of six turns has been squashed."""
    if request.param == "memory":
        yield squashed(Agent(DeltaInMemorySaver()))
        return
    with DeltaSqliteSaver.from_conn_string(":memory:") as saver:
        yield squashed(Agent(saver))


def squashed(agent):
    for turn in range(6):
        agent.invoke({"log": [f"turn {turn}"]})
    agent.before = {id_of(s): s.values for s in agent.history()}
    agent.head = agent.graph.get_state(THREAD)
    agent.saver.prune(["t"], delta="squash")
    return agent


def id_of(state):
    return state.config["configurable"]["checkpoint_id"]


def test_a_history_shows_the_base_row_as_what_its_seed_was(agent):
    head, base = agent.history()
    assert (id_of(head), head.values) == (id_of(agent.head), agent.head.values)
    assert head.parent_config["configurable"]["checkpoint_id"] == id_of(base)
    assert base.metadata[SQUASHED] in agent.before
    # The writes on top of the seed are none of its own: they count for the head.
    assert len(base.values["log"]) < len(head.values["log"])
    assert base.values["log"] == head.values["log"][: len(base.values["log"])]
    assert (base.next, base.tasks) == ((), ())


def test_nothing_runs_from_a_base_row_on_its_own(agent):
    base = agent.base()
    result = agent.invoke(None, base.config)
    assert agent.ran == []
    assert result["log"] == base.values["log"]
    assert agent.graph.get_state(agent.head.config).values == agent.head.values


def test_a_run_with_input_branches_off_and_leaves_the_head_as_it_was(agent):
    base = agent.base()
    result = agent.invoke({"log": ["fork"]}, base.config)
    assert agent.ran == ["a", "b"]
    assert result["log"][: len(base.values["log"]) + 1] == [*base.values["log"], "fork"]
    assert agent.graph.get_state(agent.head.config).values == agent.head.values
    if SETTLED_HOST:
        # Older hosts replay on any branch what another one has left at its base.
        assert agent.graph.get_state(THREAD).values == result


@pytest.mark.skipif(
    not SETTLED_HOST, reason="older hosts store the writes of update_state at any base of a branch"
)
def test_update_state_on_a_base_row_branches_off_as_well(agent):
    base = agent.base()
    agent.graph.update_state(base.config, {"log": ["update"]}, as_node="a")
    assert agent.graph.get_state(agent.head.config).values == agent.head.values
    assert agent.graph.get_state(THREAD).values["log"] == [*base.values["log"], "update"]


def test_the_thread_goes_on_from_its_head(agent):
    twin = Agent(DeltaInMemorySaver())
    for turn in range(6):
        twin.invoke({"log": [f"turn {turn}"]})
    for turn in range(6, 11):
        for each in (agent, twin):
            each.invoke({"log": [f"turn {turn}"]})
        assert agent.graph.get_state(THREAD).values == twin.graph.get_state(THREAD).values
        agent.saver.prune(["t"], delta="squash")
        assert agent.graph.get_state(THREAD).values == twin.graph.get_state(THREAD).values
        assert len(agent.history()) <= 2


def test_every_other_cleanup_knows_a_base_row(agent):
    head, base = agent.history()
    agent.saver.prune(["t"], keep_last=5)
    assert [id_of(s) for s in agent.history()] == [id_of(head), id_of(base)]
    (plan,) = agent.saver.plan_prune(["t"], keep_last=5)
    kinds = {key.checkpoint_id: {r.kind for r in why} for key, why in plan.kept.items()}
    assert kinds == {id_of(head): {"latest"}, id_of(base): {"replay"}}
    (plan,) = agent.saver.plan_prune(["t"], delta="skip")
    assert plan.left_alone == "delta thread"
    kept = agent.saver.get_delta_channel_keepset(THREAD, ["log"])
    assert kept == {id_of(head), id_of(base)}
    agent.saver.copy_thread("t", "copy", checkpoint_id=id_of(head))
    copied = agent.graph.get_state({"configurable": {"thread_id": "copy"}})
    assert copied.values == head.values


def test_a_base_row_is_drawn_as_what_it_is(agent):
    rows = map(CheckpointRow.from_tuple, agent.saver.list(THREAD))
    lines = draw_thread(rows).splitlines()
    assert lines[1].startswith("*  ")
    assert lines[2].startswith("=  ")
    assert "base row" in lines[2]
