"""Savers whose squash has one fault each."""

from __future__ import annotations

import uuid
from dataclasses import replace

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver

NULL_TASK = "00000000-0000-0000-0000-000000000000"


def with_bases(plans, change):
    """The plans with every base row changed."""
    return [replace(p, bases=tuple(change(base) for base in p.bases)) for p in plans]


class Changed(DeltaSqliteSaver):
    """Stores base rows as they are changed here: sound, as it changes nothing."""

    def changed(self, base):
        return base

    def _squash_checkpoint_rows(self, plans):
        super()._squash_checkpoint_rows(with_bases(plans, self.changed))


class WritesOutOfOrder(Changed):
    """Numbers moved writes without leading zeros, under the ids of no particular order."""

    def changed(self, base):
        parts = [
            part._replace(task_id=str(uuid.uuid5(uuid.NAMESPACE_OID, path)), task_path=path)
            for number, part in enumerate(base.writes)
            for path in [str(number)]
        ]
        return replace(base, writes=tuple(parts))


class WritesByTaskId(DeltaInMemorySaver):
    """Moves the writes of a row in the order of their task ids."""

    @staticmethod
    def _in_order(writes):
        return [writes[key] for key in sorted(writes)]


class WritesFromAboveTheSeed(Changed):
    """Takes every channel's writes from every row of the run."""

    def changed(self, base):
        every = tuple(sorted({channel for part in base.writes for channel in part.channels}))
        return replace(base, writes=tuple(part._replace(channels=every) for part in base.writes))


class OneSeedMissing(Changed):
    """Looks for seeds at the topmost row alone."""

    def changed(self, base):
        top = [seed for seed in base.seeds if seed.checkpoint_id == base.replaces[0]]
        return replace(base, seeds=tuple(top))


class BaseAboveItsChild(Changed):
    """Gives base rows a new id, as any other checkpoint gets."""

    def changed(self, base):
        head, _, tail = base.children[0].rpartition("-")
        above = f"{head}-{int(tail, 16) + 1:012x}"
        return replace(base, checkpoint_id=above)


class NullTaskId(Changed):
    """Stores moved writes under the null task id, one after the other."""

    def changed(self, base):
        parts = tuple(part._replace(task_id=NULL_TASK) for part in base.writes)
        return replace(base, writes=parts[:1])

    def _squash_checkpoint_rows(self, plans):
        DeltaSqliteSaver._squash_checkpoint_rows(self, plans)
        for plan in plans:
            for base in plan.bases:
                self.conn.execute(
                    "UPDATE writes SET task_id = ?, idx = idx + CAST(task_path AS INTEGER) * 1000 "
                    "WHERE thread_id = ? AND checkpoint_id = ?",
                    (NULL_TASK, plan.thread_id, base.checkpoint_id),
                )


class BaseParentWrong(Changed):
    """Hangs every base row below nothing, as if it were the only one."""

    def changed(self, base):
        return replace(base, parent_id=None)


class ChildNotHung(Changed):
    """Detaches the row below instead of hanging it below its base row."""

    def changed(self, base):
        return replace(base, children=())

    def _delete_checkpoint_rows(self, plans):
        children = [
            replace(p, detached=(*p.detached, *((b.checkpoint_ns, c) for c in b.children)))
            for p in plans
            for b in p.bases[:1]
        ]
        super()._delete_checkpoint_rows(children or plans)


class SweepsTheSeedsBlob(DeltaInMemorySaver):
    """Sweeps the blobs of the rows that base rows stand for, with the one they refer to."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for base in plan.bases:
                for seed in base.seeds:
                    key = (plan.thread_id, base.checkpoint_ns, seed.channel, seed.version)
                    self.blobs.pop(key, None)


class LeavesMovedWrites(DeltaInMemorySaver):
    """Forgets the writes of squashed rows once they are copied."""

    def _delete_checkpoint_rows(self, plans):
        left = {
            (plan.thread_id, base.checkpoint_ns, i): self.writes[
                plan.thread_id, base.checkpoint_ns, i
            ]
            for plan in plans
            for base in plan.bases
            for i in base.replaces
        }
        super()._delete_checkpoint_rows(plans)
        self.writes.update(left)


class HalfDoneAfterACrash(DeltaInMemorySaver):
    """Moves writes away from their rows before anything hangs below the base row."""

    def _squash_checkpoint_rows(self, plans):
        without = with_bases(plans, lambda base: replace(base, children=()))
        super()._squash_checkpoint_rows(without)
        for plan in plans:
            for base in plan.bases:
                for row in base.replaces:
                    self.writes.pop((plan.thread_id, base.checkpoint_ns, row), None)

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for base in plan.bases:
                stored = self.storage[plan.thread_id][base.checkpoint_ns]
                for child in base.children:
                    stored[child] = (*stored[child][:2], base.checkpoint_id)


class KeepsTheRunsName(Changed):
    """Passes the metadata of the lowest row on to the base row."""

    def changed(self, base):
        return replace(base, metadata={**base.metadata, "run_id": "doomed"})


class UnmarkedBaseRow(Changed):
    """Stores base rows that look like any checkpoint."""

    def changed(self, base):
        metadata = dict(base.metadata)
        del metadata["delta_mixin_squashed"]
        return replace(base, metadata=metadata)


class SquashesTheFirstNamespaceOnly(Changed):
    """Stores the base rows of the root namespace and no others."""

    def _squash_checkpoint_rows(self, plans):
        root = [replace(p, bases=tuple(b for b in p.bases if not b.checkpoint_ns)) for p in plans]
        super()._squash_checkpoint_rows(root)


class LeavesTheTorsoOfACopy(DeltaInMemorySaver):
    """Does not take a copy back that could not be squashed."""

    def delete_thread(self, thread_id):
        pass


class RewritesSingleRows(DeltaSqliteSaver):
    """Marks a row that is alone between two roots as if it stood for others."""

    def _delete_checkpoint_rows(self, plans):
        super()._delete_checkpoint_rows(plans)
        for plan in plans:
            for ns, checkpoint_id in plan.replay_only:
                key = (plan.thread_id, ns, checkpoint_id)
                self.conn.execute(
                    "UPDATE checkpoints SET metadata = '{\"delta_mixin_squashed\": true}' "
                    "WHERE (thread_id, checkpoint_ns, checkpoint_id) = (?, ?, ?)",
                    key,
                )


class KeepsARowInAnyCase(DeltaSqliteSaver):
    """Leaves a row behind each head that it squashes, needed or not."""

    squashing = False

    def prune(self, thread_ids, **options):
        self.squashing = options.get("delta") == "squash"
        super().prune(thread_ids, **options)

    def _delete_checkpoint_rows(self, plans):
        if self.squashing:
            plans = [p if p.bases else replace(p, doomed=p.doomed[:-1]) for p in plans]
        super()._delete_checkpoint_rows(plans)


FAULTS = [
    ("writes out of order", WritesOutOfOrder, "test_squash_keeps_the_order_of_writes"),
    (
        "parallel writes out of order",
        WritesByTaskId,
        "test_squash_keeps_the_order_of_parallel_writes",
    ),
    (
        "writes from above a channel's seed",
        WritesFromAboveTheSeed,
        "test_squash_starts_each_channel_at_its_own_seed",
    ),
    (
        "seed of one channel missing",
        OneSeedMissing,
        "test_squash_starts_each_channel_at_its_own_seed",
    ),
    ("base id above its child", BaseAboveItsChild, "test_a_base_row_sorts_below_its_child"),
    ("null task id", NullTaskId, "test_writes_of_a_base_row_belong_to_no_task"),
    ("base parent wrong", BaseParentWrong, "test_base_rows_hang_where_the_rows_hung"),
    ("child not hung below", ChildNotHung, "test_squash_leaves_the_head_and_one_base_row"),
    (
        "blob of a seed swept",
        SweepsTheSeedsBlob,
        "test_squash_leaves_the_head_and_one_base_row",
    ),
    (
        "moved writes left behind",
        LeavesMovedWrites,
        "test_squash_leaves_no_orphaned_writes_or_blobs",
    ),
    (
        "half-done squash after a crash",
        HalfDoneAfterACrash,
        "test_a_squash_that_is_cut_off_reads_as_before_and_can_be_repeated",
    ),
    ("base row of a run", KeepsTheRunsName, "test_a_base_row_says_what_it_is"),
    ("base row without its mark", UnmarkedBaseRow, "test_a_base_row_says_what_it_is"),
    (
        "base rows of the root namespace only",
        SquashesTheFirstNamespaceOnly,
        "test_squash_reaches_every_namespace",
    ),
    (
        "single rows rewritten",
        RewritesSingleRows,
        "test_squash_leaves_a_single_row_as_it_is",
    ),
    (
        "a row kept that nothing needs, in a squash",
        KeepsARowInAnyCase,
        "test_squash_of_a_thread_without_delta_channels_is_a_prune",
    ),
    (
        "torso of a squashing copy",
        LeavesTheTorsoOfACopy,
        "test_a_squashing_copy_that_is_cut_off_leaves_no_target",
    ),
]
