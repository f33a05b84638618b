"""Two threads of a real graph that get the same inputs, one of which is cleaned.

Cleaning happens between any two inputs, also between an interrupt and its resume, and a copy may
take the thread's place. Reducers are deterministic, so states can only differ by the cleaning.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langgraph.types import Command
from twin_actions import Invoke, Replay, Resume, Update, asks, cleanups, compactions, nodes
from twin_graphs import flat_graph, nested_graph

from delta_mixin import compaction
from delta_mixin.testing import cleanup_settings
from delta_mixin.testing.oracle import SETTLED_HOST


class Twins:
    """A thread that is cleaned and one that is not, driven alike."""

    def __init__(self, view, builder):
        self.view = view
        self.graph = builder.compile(checkpointer=view.saver)
        self.threads = ["cleaned", "twin"]
        self.runs = 0
        # A channel that was compacted counts its updates from there.
        self.counting = True
        # Whether a run has begun where others had left writes.
        self.branched = False
        # Ids of the same checkpoint in both threads, as far as both must read alike.
        self.pairs: list[tuple[str, str]] = []

    def do(self, action):
        getattr(self, type(action).__name__.lower())(action)
        self.compare(action)

    def invoke(self, action):
        if not self.may_branch and self.pending:
            return
        self.branched |= self.pending
        self.runs += 1
        given = [f"input {self.runs}"]
        self.run({"items": given, "log": given, "total": 1, "ask": action.ask})

    def resume(self, action):
        state = self.state(self.threads[1])
        if not state.next:
            return
        asked = [i.id for task in state.tasks for i in task.interrupts]
        if len(asked) > 1:
            raise AssertionError("one interrupt at a time is expected here")
        self.runs += 1
        self.run(Command(resume=f"answer {self.runs}") if asked else None)

    @property
    def may_branch(self):
        """Whether the two read the same where a run leaves pending writes behind at its base.

        On old releases that depends on where snapshots lie, and compaction makes another one.
        """
        return self.counting or SETTLED_HOST

    @property
    def may_compact(self):
        """Whether every checkpoint reads what it has versions of, and no more.

        On old releases a branch reads what others have left at its base, of channels too that it
        names no version of; by these it was never written, and neither compaction nor a squash
        keeps anything of it.
        """
        return SETTLED_HOST or not self.branched

    def delta(self, action):
        """What to do with delta channels: as drawn, where it leaves old releases what they read."""
        return action.delta if self.may_compact else "keep_history"

    @property
    def pending(self):
        """Whether tasks of the newest checkpoint are still to run."""
        return bool(self.state(self.threads[1]).next)

    def update(self, action):
        if not self.pairs or (not self.may_branch and (action.back or self.pending)):
            return
        self.branched |= bool(action.back) or self.pending
        pair = self.pairs[-1 - action.back % len(self.pairs)] if action.back else (None, None)
        values = {"items": [f"update {len(self.pairs)}"], "total": 10}
        self.both("update_state", pair, values, as_node=action.as_node)

    def replay(self, action):
        if not self.pairs or not self.may_branch:
            return
        self.branched = True
        self.runs += 1
        self.run(None, self.pairs[-1 - action.back % len(self.pairs)])

    def prune(self, action):
        self.view.prune([self.threads[0]], keep_last=action.keep_last, delta=self.delta(action))
        self.pairs = self.pairs[-action.keep_last :]

    def deleteoldruns(self, action):
        if runs := self.old_runs(action.spared):
            self.view.delete_for_runs(runs, delta=self.delta(action))
            self.forget(runs)

    def old_runs(self, spared):
        runs = [f"cleaned run {n}" for n in range(1, self.runs + 1 - spared)]
        for ns in ("", "memory"):
            head = self.view.get_tuple(self.view.config(self.threads[0], ns))
            if head is not None and head.metadata.get("run_id") in runs:
                return []  # a head would go, and the two would go on from different checkpoints
        return runs

    def forget(self, runs):
        self.pairs = [pair for pair in self.pairs if self.stored(pair[0]) not in (None, *runs)]

    def compact(self, action):
        if not self.may_compact:
            return
        options = {"keep_last": action.keep_last, "prune": action.prune}
        (report,) = self.compaction("compact", [self.threads[0]], **options)
        if action.prune:
            self.pairs = self.pairs[-action.keep_last :]
        if self.all_done([report]) and action.prune:
            assert not report.plan.replay_only, report

    def compactoldruns(self, action):
        if self.may_compact and (runs := self.old_runs(action.spared)):
            done = self.all_done(self.compaction("delete_for_runs", runs))
            self.forget(runs)
            stored = self.view.list(self.view.config(self.threads[0], None))
            assert not (done and [s for s in stored if s.metadata.get("run_id") in runs])

    def goonincompactcopy(self, action):
        source, copy = self.threads[0], self.threads[0] + "'"
        head = self.view.get_tuple(self.view.config(source, ""))
        if head is None or not self.may_compact:
            return
        report = self.compaction("copy_thread", source, copy, checkpoint_id=head.checkpoint["id"])
        if self.all_done([report]):
            assert not report.plan.replay_only, report
        self.view.prune([source], strategy="delete")
        self.threads[0] = copy
        self.pairs = self.pairs[-1:]

    def all_done(self, reports):
        """Whether no channel was left, which is allowed for one reason only.

        On old releases a branch reads what another has left at its base without a version of its
        own. A store by version cannot hold a value for one of the two.
        """
        left = [x for report in reports for x in report.left]
        if left:
            assert self.view.saver.VALUES_BY_VERSION
            assert not SETTLED_HOST
            assert all("shares its version" in x.why for x in left), left
        return not left

    def compaction(self, name, *args, **options):
        """A function of the module, or its twin, on the view's side."""
        self.counting = False
        if self.view.side == "sync":
            return getattr(compaction, name)(self.graph, *args, **options)
        return self.view.run(getattr(compaction, f"a{name}")(self.graph, *args, **options))

    def goonincopy(self, action):
        source, copy = self.threads[0], self.threads[0] + "'"
        head = self.view.get_tuple(self.view.config(source, ""))
        if head is None:
            return
        only = {"checkpoint_id": head.checkpoint["id"]} if action.of_head else {}
        self.view.copy_thread(source, copy, delta=self.delta(action), **only)
        self.view.prune([source], strategy="delete")
        self.threads[0] = copy
        if only:
            self.pairs = self.pairs[-1:]

    def stored(self, checkpoint_id):
        saved = self.view.get_tuple(self.view.config(self.threads[0], "", checkpoint_id))
        return None if saved is None else saved.metadata.get("run_id", "no run")

    # -- driving -----------------------------------------------------------------------------

    def run(self, given, pair=(None, None)):
        # Old releases can hang on two cores when checkpoints are saved in the background.
        self.both("invoke", pair, given, durability="sync")

    def both(self, method, pair, given, **options):
        known = [self.ids(thread) for thread in self.threads]
        for thread, checkpoint_id, kind in zip(
            self.threads, pair, ("cleaned", "twin"), strict=True
        ):
            config = self.view.config(thread, "", checkpoint_id)
            config["metadata"] = {"run_id": f"{kind} run {self.runs}"}
            args = (given, config) if method == "invoke" else (config, given)
            self.call(method, *args, **options)
        new = [
            [i for i in self.ids(thread) if i not in before]
            for thread, before in zip(self.threads, known, strict=True)
        ]
        self.pairs += zip(*new, strict=True)

    def call(self, method, *args, **options):
        # `interrupt` in an async run needs Python 3.11; sync runs work with any of the savers.
        if self.view.side == "sync" or sys.version_info < (3, 11):
            return getattr(self.graph, method)(*args, **options)
        return self.view.run(getattr(self.graph, f"a{method}")(*args, **options))

    def ids(self, thread):
        saved = self.view.list(self.view.config(thread, ""))
        return sorted(s.checkpoint["id"] for s in saved if s.config["configurable"]["thread_id"])

    # -- comparing ---------------------------------------------------------------------------

    def state(self, thread, checkpoint_id=None, **options):
        return self.call("get_state", self.view.config(thread, "", checkpoint_id), **options)

    def seen(self, thread, checkpoint_id=None, **options):
        state = seen(self.state(thread, checkpoint_id, **options))
        return state if self.counting else without_counters(state)

    def compare(self, action):
        cleaned, twin = self.threads
        assert self.seen(cleaned, subgraphs=True) == self.seen(twin, subgraphs=True), (
            f"the newest states differ after {action}"
        )
        for pair in self.pairs:
            states = [self.seen(t, i) for t, i in zip(self.threads, pair, strict=True)]
            assert states[0] == states[1], f"states at {pair} differ after {action}"


def seen(state):
    """What a caller sees of a state, without the ids, which differ between two threads."""
    if state is None:
        return None
    tasks = [
        (
            task.name,
            str(task.error),
            [i.value for i in task.interrupts],
            task.result,
            seen(task.state) if hasattr(task.state, "tasks") else None,
        )
        for task in state.tasks
    ]
    metadata = state.metadata or {}
    return {
        "values": state.values,
        "next": state.next,
        "tasks": tasks,
        "metadata": {k: metadata.get(k) for k in ("source", "step")},
        "counters": metadata.get("counters_since_delta_snapshot"),
    }


def without_counters(state, inner=False):
    """The state without what tells of the snapshots behind it."""
    if state is None:
        return None
    tasks = [(*task[:-1], without_counters(task[-1], inner=True)) for task in state["tasks"]]
    state = {**state, "tasks": tasks, "counters": None}
    # Old releases show a subgraph's delta channels as empty unless they are stored right there.
    return state if SETTLED_HOST or not inner else {**state, "values": None}


def drive(view, builder, turns):
    twins = Twins(view, builder)
    for given_, cleanup in turns:
        twins.do(given_)
        if cleanup is not None:
            twins.do(cleanup)


class TwinMachine(RuleBasedStateMachine):
    """Runs, forks, interrupts and cleanups of all kinds in any order; states equal after each.

    Subclasses say how to open a saver.
    """

    subgraphs = False

    def open(self):
        raise NotImplementedError

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        view = self.stack.enter_context(self.open())
        self.twins = Twins(view, nested_graph() if self.subgraphs else flat_graph())

    def teardown(self):
        self.stack.close()

    @initialize(ask=asks)
    def begin(self, ask):
        self.twins.do(Invoke(ask))

    @rule(ask=asks)
    def invoke(self, ask):
        self.twins.do(Invoke(ask))

    @rule()
    def resume(self):
        self.twins.do(Resume())

    @precondition(lambda self: not self.subgraphs)
    @rule(back=st.integers(0, 6), node=nodes)
    def update(self, back, node):
        self.twins.do(Update(back, node))

    @precondition(lambda self: not self.subgraphs)
    @rule(back=st.integers(0, 6))
    def replay(self, back):
        self.twins.do(Replay(back))

    @rule(compaction=compactions)
    def compact(self, compaction):
        self.twins.do(compaction)

    @rule(cleanup=cleanups)
    def clean(self, cleanup):
        self.twins.do(cleanup)


def run_machine(open_view, max_examples, subgraphs, **changes):
    """Drive the machine on savers that `open_view` opens."""

    class Machine(TwinMachine):
        def open(self):
            return open_view()

    Machine.subgraphs = subgraphs
    chosen = cleanup_settings(max_examples=max_examples, stateful_step_count=12, **changes)
    run_state_machine_as_test(Machine, settings=chosen)
