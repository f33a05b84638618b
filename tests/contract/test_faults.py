"""Faults planted in prune and run deletion, each with the contract's test that must catch it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delta_mixin.adapters.sqlite import DeltaSqliteSaver


def doom_more(plan, keys):
    """The plan with further rows deleted."""
    kept = {key: why for key, why in plan.kept.items() if key not in keys}
    return replace(plan, kept=kept, doomed=(*plan.doomed, *keys))


class NaiveKeepLatest(DeltaSqliteSaver):
    """Keeps the newest checkpoint of each namespace and nothing else."""

    def prune(self, thread_ids, **options):
        with self.cursor() as cursor:
            for thread_id in thread_ids:
                for table in ("writes", "checkpoints"):
                    cursor.execute(
                        f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_id < ("
                        "SELECT max(checkpoint_id) FROM checkpoints AS newest WHERE "
                        f"newest.thread_id = {table}.thread_id AND "
                        f"newest.checkpoint_ns = {table}.checkpoint_ns)",
                        (thread_id,),
                    )


class OneRowShort(DeltaSqliteSaver):
    """Deletes the row that holds the seed: the walk is taken to end above it."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows([doom_more(p, p.replay_only[:1]) for p in plans])


class OneRowTooMany(DeltaSqliteSaver):
    """Keeps a row that nothing needs."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows([replace(p, doomed=p.doomed[:-1]) for p in plans])


class DropsWritesOfKeptRows(DeltaSqliteSaver):
    """Cleans the table of writes down to those of the heads."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for ns, checkpoint_id in plan.replay_only:
                key = (plan.thread_id, ns, checkpoint_id)
                statement = "DELETE FROM writes WHERE (thread_id, checkpoint_ns, checkpoint_id)"
                self.conn.execute(f"{statement} = (?, ?, ?)", key)


class SweepsPendingWrites(DeltaSqliteSaver):
    """Takes the head's own writes for left-overs."""

    def prune(self, thread_ids, **options):
        super().prune(thread_ids, **options)
        self.sweep(thread_ids)

    def delete_for_runs(self, run_ids, *, thread_ids=None, on_plan=None):
        super().delete_for_runs(run_ids, thread_ids=thread_ids, on_plan=on_plan)
        self.sweep(thread_ids)

    def sweep(self, thread_ids):
        for thread_id in thread_ids:
            head = self.get_tuple({"configurable": {"thread_id": thread_id}})
            with self.cursor() as cursor:
                statement = "DELETE FROM writes WHERE (thread_id, checkpoint_id) = (?, ?)"
                cursor.execute(statement, (thread_id, head.checkpoint["id"]))


class DeletesByPattern(DeltaSqliteSaver):
    """Deletes a thread's namespaces with LIKE, where `_` matches anything."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            ids = [i for _, i in plan.kept]
            self.conn.execute(
                "DELETE FROM checkpoints WHERE thread_id LIKE ? AND checkpoint_id NOT IN "
                f"({', '.join('?' * len(ids))}) AND thread_id NOT IN ('u', 'u_')",
                (plan.thread_id + "%", *ids),
            )


class DanglingParent(DeltaSqliteSaver):
    """Leaves the oldest kept row pointing to a parent that is gone."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows([replace(p, detached=()) for p in plans])


class LosesMetadata(DeltaSqliteSaver):
    """Writes kept rows anew with the metadata it knows."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            self.conn.execute(
                "UPDATE checkpoints SET metadata = json_remove(CAST(metadata AS TEXT), '$.user') "
                "WHERE thread_id = ?",
                (plan.thread_id,),
            )


class DropsStatefulSubgraphs(DeltaSqliteSaver):
    """Takes every namespace but the root for that of an ended call."""

    def _delete_checkpoint_rows(self, plans):
        plans = [
            replace(
                doom_more(p, [key for key in p.kept if key.checkpoint_ns]),
                dropped_namespaces=tuple(ns for ns in p.heads if ns),
            )
            for p in plans
        ]
        super()._delete_checkpoint_rows(plans)


class LeavesEndedCalls(DeltaSqliteSaver):
    """Cleans the root namespace only."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(
            [
                replace(p, doomed=tuple(k for k in p.doomed if not k[0]), dropped_namespaces=())
                for p in plans
            ]
        )


class DeletesNeededRows(DeltaSqliteSaver):
    """Deletes every row of a run, whoever is rebuilt from it."""

    def _delete_checkpoint_rows(self, plans):
        needed = [
            tuple(key for key, why in p.kept.items() if all(r.kind == "replay" for r in why))
            for p in plans
        ]
        super()._delete_checkpoint_rows(map(doom_more, plans, needed))


class IgnoresNarrowing(DeltaSqliteSaver):
    """Deletes the rows of a run in every thread, whatever threads are named."""

    def delete_for_runs(self, run_ids, *, thread_ids=None, on_plan=None):
        super().delete_for_runs(run_ids, on_plan=on_plan)


class ForgetsTheSends(DeltaSqliteSaver):
    """Does not know that old heads have their sends at their parent."""

    def _delete_checkpoint_rows(self, plans):
        sends = [
            [key for key, why in p.kept.items() if why[0].kind == "pending sends"] for p in plans
        ]
        super()._delete_checkpoint_rows(map(doom_more, plans, sends))


class MissingIsRoot(DeltaSqliteSaver):
    """Takes a parent that is not stored for the start of the thread."""

    def prune(self, thread_ids, **options):
        super().prune(thread_ids, **{"severed": "ignore", **options})


class SlicesWithAnyNumber(DeltaSqliteSaver):
    """Lets a slip such as `keep_last=-1` through."""

    def prune(self, thread_ids, *, keep_last=1, **options):
        super().prune(thread_ids, keep_last=max(1, int(keep_last)), **options)


class PlanThatActs(DeltaSqliteSaver):
    """Prunes when asked for a plan."""

    def plan_prune(self, thread_ids, **options):
        plans = super().plan_prune(thread_ids, **options)
        self.prune(thread_ids, **options)
        return plans


class KeepsetOfTheFirstSeed(DeltaSqliteSaver):
    """Ends every channel's walk at the nearest seed of any of them."""

    def get_delta_channel_keepset(self, config, channels):
        kept = [
            super(KeepsetOfTheFirstSeed, self).get_delta_channel_keepset(config, [c])
            for c in channels
        ]
        return min(kept, key=len, default=set()) or super().get_delta_channel_keepset(config, [])


class SlowSideDiffers(DeltaSqliteSaver):
    """Has an async prune of its own, which knows nothing of delta channels."""

    async def aprune(self, thread_ids, **options):
        for thread_id in thread_ids:
            rows = list(self.list({"configurable": {"thread_id": thread_id}}))
            with self.cursor() as cursor:
                for row in rows[1:]:
                    key = (thread_id, row.checkpoint["id"])
                    statement = "DELETE FROM checkpoints WHERE (thread_id, checkpoint_id) = (?, ?)"
                    cursor.execute(statement, key)


FAULTS = [
    (NaiveKeepLatest, "test_prune_keeps_the_head_and_what_it_is_rebuilt_from"),
    (NaiveKeepLatest, "test_prune_keeps_the_whole_chain_where_there_is_no_snapshot"),
    (NaiveKeepLatest, "test_prune_keeps_what_each_channel_needs"),
    (NaiveKeepLatest, "test_prune_keeps_a_plain_seed_and_the_writes_at_it"),
    (NaiveKeepLatest, "test_prune_keeps_values_that_update_state_alone_wrote"),
    (NaiveKeepLatest, "test_pinned_checkpoints_read_back_as_before"),
    (NaiveKeepLatest, "test_prune_keeps_each_branch_that_is_asked_for"),
    (NaiveKeepLatest, "test_a_pruned_graph_goes_on_like_its_twin"),
    (NaiveKeepLatest, "test_an_interrupted_subgraph_resumes_after_a_prune"),
    (OneRowShort, "test_prune_keeps_the_head_and_what_it_is_rebuilt_from"),
    (OneRowShort, "test_keep_last_keeps_that_many_of_the_newest"),
    (OneRowShort, "test_older_than_keeps_what_is_younger"),
    (OneRowTooMany, "test_prune_keeps_the_head_and_what_it_is_rebuilt_from"),
    (OneRowTooMany, "test_plan_prune_tells_what_prune_then_does"),
    (DropsWritesOfKeptRows, "test_prune_keeps_the_head_and_what_it_is_rebuilt_from"),
    (DropsWritesOfKeptRows, "test_prune_of_a_fork_drops_the_branch_that_was_left"),
    (SweepsPendingWrites, "test_prune_keeps_pending_writes_of_the_head"),
    (
        SweepsPendingWrites,
        "test_interrupts_survive_a_prune_and_finished_tasks_do_not_run_again",
    ),
    (SweepsPendingWrites, "test_run_deletion_keeps_pending_writes_of_survivors"),
    (DeletesByPattern, "test_prune_leaves_other_threads_alone"),
    (DanglingParent, "test_prune_leaves_no_pointer_to_a_deleted_parent"),
    (LosesMetadata, "test_prune_keeps_the_metadata_of_the_head"),
    (DropsStatefulSubgraphs, "test_a_stateful_subgraph_outlives_the_calls_of_it"),
    (DropsStatefulSubgraphs, "test_a_stateful_subgraph_remembers_after_a_prune"),
    (DropsStatefulSubgraphs, "test_prune_keeps_calls_whose_root_is_not_saved_yet"),
    (LeavesEndedCalls, "test_prune_takes_ended_subgraph_calls_with_their_root"),
    (LeavesEndedCalls, "test_run_deletion_reaches_every_namespace"),
    (DeletesNeededRows, "test_run_deletion_keeps_what_other_runs_are_rebuilt_from"),
    (DeletesNeededRows, "test_run_deletion_keeps_each_branch_of_a_fork"),
    (DeletesNeededRows, "test_run_deletion_leaves_the_states_of_other_runs"),
    (IgnoresNarrowing, "test_run_deletion_can_be_narrowed_to_threads"),
    (ForgetsTheSends, "test_prune_keeps_the_parent_that_holds_a_heads_sends"),
    (MissingIsRoot, "test_a_severed_thread_is_left_alone_and_named"),
    (PlanThatActs, "test_plan_prune_tells_what_prune_then_does"),
    (KeepsetOfTheFirstSeed, "test_keepset_of_several_channels_is_their_union"),
]


@pytest.mark.parametrize(
    ("broken", "name"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_the_contract_catches(expect_fault, broken, name):
    expect_fault(broken, name)


def test_the_contract_catches_a_side_that_differs(expect_fault):
    expect_fault(SlowSideDiffers, "test_prune_through_one_side_shows_on_the_other")


@pytest.mark.parametrize("keep_last", [0, -1])
def test_the_contract_catches_unchecked_arguments(expect_fault, keep_last):
    expect_fault(
        SlicesWithAnyNumber,
        "test_unusable_arguments_are_refused_before_reading",
        match="DID NOT RAISE",
        error=ValueError,
        arguments={"keep_last": keep_last},
    )


def test_a_failure_tells_the_steps_and_what_was_read(contract_test):
    name = "test_prune_keeps_the_head_and_what_it_is_rebuilt_from"
    with pytest.raises(AssertionError) as failed:
        contract_test(DropsWritesOfKeptRows, name)
    told = str(failed.value)
    assert "does not read as before" in told
    assert "rebuilt: expected {'log': Rebuilt(seed=_DeltaSnapshot(" in told
    assert "read {'log': Rebuilt(" in told
    assert "1. put " in told
    assert "prune()" in told
    assert "sync view of DropsWritesOfKeptRows" in told
