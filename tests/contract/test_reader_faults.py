"""Faults that the reading tests have to catch, as seen in savers in use."""

from __future__ import annotations

from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin.adapters.memory import DeltaInMemorySaver


def test_an_index_sorted_as_text_is_caught(expect_fault):
    class IndexAsText(DeltaInMemorySaver):
        def get_delta_channel_history(self, *, config, channels):
            histories = super().get_delta_channel_history(config=config, channels=channels)
            for history in histories.values():
                stored = list(enumerate(history["writes"]))
                history["writes"] = [w for _, w in sorted(stored, key=lambda each: str(each[0]))]
            return histories

    name = "test_history_keeps_the_order_of_one_tasks_writes"
    expect_fault(IndexAsText, name, match="writes at")


def test_versions_that_repeat_on_branches_are_caught(expect_fault):
    class Counted(DeltaInMemorySaver):
        def get_next_version(self, current, channel):
            return (current or 0) + 1

    name = "test_each_branch_of_a_fork_reads_its_own_values"
    expect_fault(Counted, name, match="'left': \\['right'\\]")


def test_run_ids_that_are_not_stored_are_caught(expect_fault):
    class NoRunId(DeltaInMemorySaver):
        def put(self, config, *args):
            return InMemorySaver.put(self, {"configurable": config["configurable"]}, *args)

    name = "test_run_deletion_leaves_the_states_of_other_runs"
    expect_fault(NoRunId, name, match="drops the run_id")
