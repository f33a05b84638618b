"""Savers whose prune has one fault each."""

from __future__ import annotations

from dataclasses import replace

from delta_mixin.adapters.memory import DeltaInMemorySaver
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


class StrangerForAParent(DeltaInMemorySaver):
    """Hangs the oldest kept row below the newest one, so that its parent is stored."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for ns, checkpoint_id in plan.detached:
                stored = self.storage[plan.thread_id][ns]
                stored[checkpoint_id] = (*stored[checkpoint_id][:2], max(stored))


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


class DeletesByPrefix(DeltaInMemorySaver):
    """Deletes what is stored under keys that begin like the thread's."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            keys = [key for key in self.writes if key[0].startswith(plan.thread_id)]
            for key in keys:
                if key[0] != plan.thread_id:
                    del self.writes[key]


class IgnoresNamespaces(DeltaInMemorySaver):
    """Keeps the newest checkpoint of the thread, whatever namespace it is in."""

    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            newest = max(plan.kept, key=lambda key: key.checkpoint_id, default=None)
            others = [k for k in plan.kept if newest and k[0] != newest[0]]
            super()._delete_checkpoint_rows([doom_more(plan, others)])


class PrunesByIdRange(DeltaInMemorySaver):
    """Keeps every row from the oldest one that is needed to the newest, on any branch."""

    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            first = {}
            for ns, checkpoint_id in plan.kept:
                first[ns] = min(checkpoint_id, first.get(ns, checkpoint_id))
            between = [k for k in plan.doomed if k[0] in first and k[1] > first[k[0]]]
            doomed = tuple(k for k in plan.doomed if k not in between)
            super()._delete_checkpoint_rows([replace(plan, doomed=doomed)])


class TrustsAnEmptyDeclaration(DeltaInMemorySaver):
    """Takes only declared channels for delta channels, and declares none."""

    def _list_checkpoint_rows(self, thread_ids):
        return [
            row._replace(
                metadata={**row.metadata, "counters_since_delta_snapshot": {}},
                snapshots=frozenset(),
                write_channels=frozenset(),
            )
            for row in super()._list_checkpoint_rows(thread_ids)
        ]


class RewritesMetadata(DeltaInMemorySaver):
    """Notes in the metadata of kept rows that they were cleaned."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for ns, checkpoint_id in plan.kept:
                checkpoint, metadata, parent = self.storage[plan.thread_id][ns][checkpoint_id]
                noted = {**self.serde.loads_typed(metadata), "cleaned": True}
                row = (checkpoint, self.serde.dumps_typed(noted), parent)
                self.storage[plan.thread_id][ns][checkpoint_id] = row


class DeletesMoreEachTime(DeltaInMemorySaver):
    """Takes rows without a parent, which an earlier prune has detached, for left-overs."""

    def __init__(self):
        super().__init__()
        self.detached = set()

    def prune(self, thread_ids, **options):
        before = [place for place in self.detached if place[0] in thread_ids]
        super().prune(thread_ids, **options)
        for thread_id, ns, checkpoint_id in before:
            self.storage[thread_id][ns].pop(checkpoint_id, None)

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            self.detached |= {(plan.thread_id, *key) for key in plan.detached}


class ReordersWrites(DeltaInMemorySaver):
    """Stores the writes of kept rows anew, in the order of their values."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for key in plan.replay_only:
                stored = self.writes.get((plan.thread_id, *key), {})
                anew = sorted(stored.items(), key=lambda kept: kept[1][2][1], reverse=True)
                paths = sorted(write[3] for write in stored.values())
                stored.clear()
                for (name, write), path in zip(anew, paths, strict=True):
                    stored[name] = (*write[:3], path)


class PointedSaver(DeltaInMemorySaver):
    """Keeps a pointer to each namespace's head, as savers on Redis do. Sound."""

    NEWEST_ID_IS_HEAD = False

    def __init__(self):
        super().__init__()
        self.heads = {}

    def put(self, config, checkpoint, metadata, new_versions):
        conf = config["configurable"]
        self.heads[conf["thread_id"], conf.get("checkpoint_ns", "")] = checkpoint["id"]
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
            self.point(plan)

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        newest = {}
        for row in rows:
            ns = row.checkpoint_ns
            newest[ns] = max(row.checkpoint_id, newest.get(ns, ""))
        for ns, checkpoint_id in newest.items():
            head = self.heads.get((source_thread_id, ns))
            copied = head in {r.checkpoint_id for r in rows if r.checkpoint_ns == ns}
            self.heads[target_thread_id, ns] = head if copied else checkpoint_id

    def point(self, plan):
        for ns, head in plan.heads.items():
            self.heads[plan.thread_id, ns] = head


class HeadPointerNotMoved(PointedSaver):
    """Leaves the pointer where it was when the head goes."""

    def point(self, plan):
        pass


FAULTS = [
    ("naive keep-latest", NaiveKeepLatest, "test_prune_keeps_the_head_and_what_it_is_rebuilt_from"),
    (
        "stops one row short of the snapshot",
        OneRowShort,
        "test_prune_keeps_the_row_with_the_snapshot",
    ),
    ("keeps a row that nothing needs", OneRowTooMany, "test_plan_prune_tells_what_prune_then_does"),
    (
        "drops writes of kept rows",
        DropsWritesOfKeptRows,
        "test_prune_keeps_the_writes_of_rows_kept_for_replay",
    ),
    ("deletes by prefix", DeletesByPrefix, "test_prune_leaves_other_threads_alone"),
    ("deletes by pattern", DeletesByPattern, "test_prune_leaves_other_threads_alone"),
    ("ignores namespaces", IgnoresNamespaces, "test_prune_keeps_the_newest_of_each_namespace"),
    (
        "prunes by id range instead of parents",
        PrunesByIdRange,
        "test_prune_of_a_fork_drops_the_branch_that_was_left",
    ),
    (
        "treats a missing parent as root",
        MissingIsRoot,
        "test_a_severed_thread_is_left_alone_and_named",
    ),
    (
        "trusts an empty declaration",
        TrustsAnEmptyDeclaration,
        "test_prune_keeps_the_whole_chain_where_there_is_no_snapshot",
    ),
    ("reorders writes", ReordersWrites, "test_prune_keeps_the_order_of_parallel_writes"),
    ("loses metadata", LosesMetadata, "test_prune_keeps_the_metadata_of_the_head"),
    ("rewrites metadata", RewritesMetadata, "test_prune_keeps_the_metadata_of_the_head"),
    (
        "sweeps pending writes at the head",
        SweepsPendingWrites,
        "test_prune_keeps_pending_writes_of_the_head",
    ),
    (
        "drops a `checkpointer=True` namespace",
        DropsStatefulSubgraphs,
        "test_a_stateful_subgraph_outlives_the_calls_of_it",
    ),
    (
        "keeps dead subgraph calls",
        LeavesEndedCalls,
        "test_prune_takes_ended_subgraph_calls_with_their_root",
    ),
    ("dangling parent left", DanglingParent, "test_prune_leaves_no_pointer_to_a_deleted_parent"),
    (
        "a stranger for a parent",
        StrangerForAParent,
        "test_prune_leaves_no_pointer_to_a_deleted_parent",
    ),
    (
        "head pointer not moved",
        HeadPointerNotMoved,
        "test_run_deletion_of_the_newest_run_leaves_the_newest_survivor",
    ),
    ("sync differs from async", SlowSideDiffers, "test_prune_through_one_side_shows_on_the_other"),
    ("not idempotent", DeletesMoreEachTime, "test_prune_twice_changes_nothing_more"),
    (
        "loses sends kept at the head's parent",
        ForgetsTheSends,
        "test_prune_keeps_the_parent_that_holds_a_heads_sends",
    ),
    (
        "does not check arguments",
        SlicesWithAnyNumber,
        "test_unusable_arguments_are_refused_before_reading",
    ),
    ("acts when asked for a plan", PlanThatActs, "test_plan_prune_tells_what_prune_then_does"),
]
