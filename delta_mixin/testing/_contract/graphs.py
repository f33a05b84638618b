"""Real graphs with `DeltaChannel`: cleaned threads behave like threads that were not cleaned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from typing_extensions import TypedDict

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing._contract.base import ContractBase


class LongLifeTests(ContractBase):
    """Needs `langgraph` installed; each test is skipped where it is not."""

    subject = "long life"
    look_at = "whatever fails in the other tests; if nothing does, the order of writes"

    def test_a_pruned_graph_goes_on_like_its_twin(self, view: SyncView) -> None:
        """Fails if a value comes back short, which nothing else reports."""
        _goes_on_like_its_twin(view)

    def test_interrupts_survive_a_prune_and_finished_tasks_do_not_run_again(
        self, view: SyncView
    ) -> None:
        """Fails if pending writes of the head go: its finished tasks then run twice."""
        _interrupts_survive(view, ordered=self.orders_writes_by_task_path)

    def test_an_interrupted_subgraph_resumes_after_a_prune(self, view: SyncView) -> None:
        """Fails if a running subgraph's namespace goes, or loses the rows it is rebuilt from."""
        _interrupted_subgraph_resumes(view)

    def test_a_stateful_subgraph_remembers_after_a_prune(self, view: SyncView) -> None:
        """Fails if a `checkpointer=True` subgraph's namespace goes with a root checkpoint."""
        _stateful_subgraph_remembers(view)


class SquashedGraphTests(ContractBase):
    """Squashed threads live on as well. Needs `langgraph` installed."""

    subject = "squash"
    look_at = "_squash_checkpoint_rows(), and the order of the writes it moves"
    needs_squash = True

    def test_a_squashed_graph_goes_on_like_its_twin(self, view: SyncView) -> None:
        """Fails if a value comes back short, which nothing else reports."""
        _goes_on_like_its_twin(view, delta="squash")

    def test_interrupts_survive_a_squash(self, view: SyncView) -> None:
        """Fails if pending writes of the head are squashed: its finished tasks then run twice."""
        _interrupts_survive(view, ordered=self.orders_writes_by_task_path, delta="squash")

    def test_subgraphs_go_on_after_a_squash(self, view: SyncView) -> None:
        """Fails if a subgraph's namespace loses the rows it is rebuilt from."""
        _interrupted_subgraph_resumes(view, delta="squash")
        _stateful_subgraph_remembers(view, delta="squash")

    def test_the_history_of_a_squashed_graph_can_be_read(self, view: SyncView) -> None:
        """Fails if a base row lacks what `get_state_history` wants of a checkpoint."""
        graph = _Graph(view, "thread")
        for turn in range(5):
            graph.invoke({"log": [f"turn {turn}"]})
        before, last = graph.history(), graph.state()
        view.prune(["thread"], delta="squash")
        after = graph.history()
        head = last.config["configurable"]["checkpoint_id"]
        assert after[head] == before[head]
        assert len(after.keys() - before.keys()) == 1, f"left {sorted(after)}"


class CopiedGraphTests(ContractBase):
    """A real graph goes on from a copy. Needs `langgraph` installed."""

    subject = "copy"
    look_at = "_copy_checkpoint_rows(): rows or writes that did not come along"

    def test_a_copied_graph_goes_on_like_its_source(self, view: SyncView) -> None:
        """Fails if the copy's value is rebuilt from less than the source's."""
        source, copy = _Graph(view, "source"), _Graph(view, "copy")
        for turn in range(6):
            source.invoke({"log": [f"turn {turn}"]})
        view.copy_thread("source", "copy")
        if view.offers("prune"):
            view.prune(["copy"])
        _expect_same(copy, source, "after the copy")
        for each in (copy, source):
            each.invoke({"log": ["one more"]})
        _expect_same(copy, source, "after one more turn")


class RunGraphTests(ContractBase):
    """Runs of a real graph are deleted. Needs `langgraph` installed."""

    subject = "run deletion"
    look_at = "_delete_checkpoint_rows(), and whether put() keeps the run_id of the config"

    def test_run_deletion_leaves_the_states_of_other_runs(self, view: SyncView) -> None:
        """Fails if any checkpoint of another run reads back with another value."""
        graph = _Graph(view, "thread")
        for turn in range(6):
            graph.invoke({"log": [f"turn {turn}"]}, run_id=f"run {turn}")
        before = graph.history()
        assert {"run 1", "run 3"} <= {run for run, _ in before.values()}, (
            "put() drops the run_id of config['metadata']: store "
            "get_checkpoint_metadata(config, metadata), or no run's checkpoints can be found"
        )
        view.delete_for_runs(["run 1", "run 3"], thread_ids=["thread"])
        after = graph.history()
        kept = {i: state for i, state in before.items() if state[0] not in ("run 1", "run 3")}
        assert len(kept) > len(before) // 2
        assert {i: after.get(i) for i in kept} == kept


class _Graph:
    """A graph on one thread, driven through the side of the saver that the view shows."""

    def __init__(
        self, view: SyncView, thread_id: str, build: Callable[[_Graph], Any] | None = None
    ) -> None:
        self.view, self.thread_id = view, thread_id
        self.ran: list[str] = []
        self.config: Any = view.config(thread_id, None)
        self.graph = (build or _plain)(self).compile(checkpointer=view.saver)

    def invoke(self, given: Any, run_id: str | None = None) -> None:
        config = self.config if run_id is None else {**self.config, "metadata": {"run_id": run_id}}
        # Written before the call returns, so that nothing is still being stored.
        if self.view.base_side == "sync":
            self.graph.invoke(given, config, durability="sync")
        else:
            self.view.run(self.graph.ainvoke(given, config, durability="sync"))

    def resume(self, answer: Any) -> None:
        self.invoke(_langgraph("types").Command(resume=answer))

    def state(self) -> Any:
        if self.view.base_side == "sync":
            return self.graph.get_state(self.config)
        return self.view.run(self.graph.aget_state(self.config))

    def history(self) -> dict[str, tuple[Any, Any]]:
        """Run and values of every checkpoint, by id."""

        async def collect() -> list[Any]:
            return [state async for state in self.graph.aget_state_history(self.config)]

        if self.view.base_side == "sync":
            states = list(self.graph.get_state_history(self.config))
        else:
            states = self.view.run(collect())
        return {
            state.config["configurable"]["checkpoint_id"]: (
                state.metadata.get("run_id"),
                state.values,
            )
            for state in states
        }


def _goes_on_like_its_twin(view: SyncView, **options: Any) -> None:
    pruned, twin = _Graph(view, "pruned"), _Graph(view, "twin")
    for turn in range(9):
        for each in (pruned, twin):
            each.invoke({"log": [f"turn {turn}"]})
        if turn % 3 == 2:
            view.prune(["pruned"], **options)
        _expect_same(pruned, twin, f"after turn {turn}")


def _interrupts_survive(view: SyncView, *, ordered: bool, **options: Any) -> None:
    pruned, twin = _Graph(view, "pruned", _asking), _Graph(view, "twin", _asking)
    for each in (pruned, twin):
        each.invoke({"log": ["before"]})
    view.prune(["pruned"], **options)
    for each in (pruned, twin):
        interrupts = [i for task in each.state().tasks for i in task.interrupts]
        assert len(interrupts) == 2, f"{each.thread_id}: {interrupts}"
        each.resume({i.id: f"answer to {i.value}" for i in interrupts})
        assert each.ran.count("work") == 1, f"{each.thread_id} ran {each.ran}"
    view.prune(["pruned"], **options)
    _expect_same(pruned, twin, "after resuming", ordered=ordered)


def _interrupted_subgraph_resumes(view: SyncView, **options: Any) -> None:
    pruned, twin = _Graph(view, "pruned", _nested), _Graph(view, "twin", _nested)
    for turn in range(2):
        for each in (pruned, twin):
            each.invoke({"log": [f"turn {turn}"]})
        view.prune(["pruned"], **options)
        for each in (pruned, twin):
            assert each.state().next, f"{each.thread_id} is not interrupted"
            each.resume("yes")
        view.prune(["pruned"], **options)
        _expect_same(pruned, twin, f"after turn {turn}")
    assert pruned.ran == twin.ran


def _stateful_subgraph_remembers(view: SyncView, **options: Any) -> None:
    pruned, twin = _Graph(view, "pruned", _stateful), _Graph(view, "twin", _stateful)
    for turn in range(4):
        for each in (pruned, twin):
            each.invoke({"log": [f"turn {turn}"]})
        view.prune(["pruned"], **options)
        _expect_same(pruned, twin, f"after turn {turn}")
    last = twin.state().values["log"][-2]
    assert last.count("'call'") == 4, f"not stateful: {last}"


def _expect_same(one: _Graph, other: _Graph, when: str, *, ordered: bool = True) -> None:
    read, expected = one.state(), other.state()
    values = [dict(state.values) for state in (read, expected)]
    if not ordered:
        values = [{k: sorted(v) for k, v in each.items()} for each in values]
    assert values[0] == values[1], f"{one.thread_id} {when}"
    assert read.next == expected.next, f"{one.thread_id} {when}"


def _langgraph(module: str) -> Any:
    return pytest.importorskip(f"langgraph.{module}")


def _append(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


def _state() -> Any:
    channel = _langgraph("channels.delta").DeltaChannel(_append, snapshot_frequency=4)
    return TypedDict("State", {"log": Annotated[list, channel]})  # type: ignore[operator]


def _builder(nodes: dict[str, Any], *edges: tuple[str, str]) -> Any:
    graph = _langgraph("graph")
    builder = graph.StateGraph(_state())
    for name, node in nodes.items():
        builder.add_node(name, node)
    for start, end in edges:
        builder.add_edge(graph.START if start == "" else start, graph.END if end == "" else end)
    return builder


def _says(owner: _Graph, name: str) -> Callable[[Any], Any]:
    def node(state: Any) -> Any:
        owner.ran.append(name)
        return {"log": [f"{name} saw {len(state['log'])}"]}

    return node


def _asks(owner: _Graph, name: str) -> Any:
    def node(state: Any) -> Any:
        answer = _langgraph("types").interrupt(name)
        owner.ran.append(name)
        return {"log": [f"{name} heard {answer}"]}

    return RunnableLambda(node)  # hands its config on, also to threads of Python 3.10


def _plain(owner: _Graph) -> Any:
    nodes = {"a": _says(owner, "a"), "b": _says(owner, "b")}
    return _builder(nodes, ("", "a"), ("a", "b"), ("b", ""))


def _asking(owner: _Graph) -> Any:
    nodes = {
        "first": _says(owner, "first"),
        "work": _says(owner, "work"),
        "ask": _asks(owner, "ask"),
        "check": _asks(owner, "check"),
        "last": _says(owner, "last"),
    }
    middle = ("work", "ask", "check")
    edges = [edge for name in middle for edge in (("first", name), (name, "last"))]
    return _builder(nodes, ("", "first"), *edges, ("last", ""))


def _nested(owner: _Graph) -> Any:
    nodes = {"in": _says(owner, "in"), "ask": _asks(owner, "ask")}
    inner = _builder(nodes, ("", "in"), ("in", "ask"), ("ask", ""))
    return _around(owner, inner.compile())


def _stateful(owner: _Graph) -> Any:
    inner = _builder({"in": _says(owner, "in")}, ("", "in"), ("in", ""))
    return _around(owner, inner.compile(checkpointer=True))


def _around(owner: _Graph, inner: Any) -> Any:
    """A graph with a node that calls the subgraph, with a state of its own."""

    def call(state: Any, config: RunnableConfig) -> Any:
        return report(inner.invoke({"log": ["call"]}, config))

    async def acall(state: Any, config: RunnableConfig) -> Any:
        return report(await inner.ainvoke({"log": ["call"]}, config))

    def report(heard: Any) -> Any:
        return {"log": [f"subgraph said {heard['log']}"]}

    nodes = {"a": _says(owner, "a"), "sub": RunnableLambda(call, acall), "b": _says(owner, "b")}
    return _builder(nodes, ("", "a"), ("a", "sub"), ("sub", "b"), ("b", ""))
