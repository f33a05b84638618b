"""Faults planted in readers, copies and stores, each with the contract's test that catches it."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from delta_mixin import RowKey
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.testing.oracle import SETTLED_HOST

settled_host = pytest.mark.skipif(not SETTLED_HOST, reason="this host orders writes by task id")


class LosesTaskPaths(DeltaSqliteSaver):
    """Copies writes without the column it does not know."""

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        statement = "UPDATE writes SET task_path = '' WHERE thread_id = ?"
        self.conn.execute(statement, (target_thread_id,))


class CopiesTheHeadOnly(DeltaSqliteSaver):
    """Copies the newest checkpoint of each namespace."""

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        newest = {row.checkpoint_ns: row for row in sorted(rows, key=lambda r: r.checkpoint_id)}
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, list(newest.values()))


class DeletesSharedBlobs(DeltaInMemorySaver):
    """Deletes every value that a deleted row refers to."""

    def _delete_checkpoint_rows(self, plans):
        for plan in plans:
            rows = self._list_checkpoint_rows([plan.thread_id])
            for row in rows:
                if RowKey(*row.key) in plan.doomed:
                    for pair in row.channel_versions.items():
                        self.blobs.pop((plan.thread_id, row.checkpoint_ns, *pair), None)
        super()._delete_checkpoint_rows(plans)


class LeavesWritesBehind(DeltaInMemorySaver):
    """Deletes checkpoints, but not their writes."""

    def _delete_checkpoint_rows(self, plans):
        writes = dict(self.writes)
        super()._delete_checkpoint_rows(plans)
        self.writes.update(writes)


class FlattensSnapshots(DeltaInMemorySaver):
    """Copies values through a format that has no `_DeltaSnapshot`."""

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        for key, blob in list(self.blobs.items()):
            value = self.serde.loads_typed(blob) if blob[0] != "empty" else None
            if key[0] == target_thread_id and isinstance(value, tuple):
                self.blobs[key] = self.serde.dumps_typed(tuple(value))


class SharesWrites(DeltaInMemorySaver):
    """Lets a copy use its source's writes."""

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        for row in rows:
            shared = self.writes[(source_thread_id, *row.key)]
            self.writes[(target_thread_id, *row.key)] = shared


class CopiesUnchecked(DeltaInMemorySaver):
    """Copies whatever rows there are to wherever it is told."""

    def copy_thread(self, source_thread_id, target_thread_id, *, checkpoint_id=None):
        rows = self._list_checkpoint_rows([str(source_thread_id)])
        wanted = [row for row in rows if checkpoint_id in (None, row.checkpoint_id)]
        self._copy_checkpoint_rows(str(source_thread_id), str(target_thread_id), wanted)


class KeepsetIsTheCheckpoint(DeltaInMemorySaver):
    """Keeps the checkpoint that is named, and nothing that it is rebuilt from."""

    def get_delta_channel_keepset(self, config, channels):
        return {config["configurable"].get("checkpoint_id")}


class KeepsetIsTheThread(DeltaInMemorySaver):
    """Keeps every checkpoint of the thread."""

    def get_delta_channel_keepset(self, config, channels):
        thread = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
        return {saved.checkpoint["id"] for saved in self.list(thread)}


class ReadsItsOwnWrites(DeltaInMemorySaver):
    """Starts the walk at the checkpoint itself."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        own = self.get_tuple(config).pending_writes
        for channel, history in found.items():
            history["writes"] += [write for write in own if write[1] == channel]
        return found


class ReadsNewestFirst(DeltaInMemorySaver):
    """Returns writes in the order the parents are walked."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        for history in found.values():
            history["writes"].reverse()
        return found


class OrdersByTaskId(DeltaInMemorySaver):
    """Sorts the writes of a checkpoint by task id, as savers before 4.3 did."""

    def _ordered_writes(self, thread_id, checkpoint_ns, checkpoint_id):
        writes = self.writes.get((thread_id, checkpoint_ns, checkpoint_id), {})
        return [writes[key] for key in sorted(writes)]


class StopsAfterAThousand(DeltaInMemorySaver):
    """Reads one page of a thread and looks for ancestors in it."""

    def get_delta_channel_history(self, *, config, channels):
        page = {
            s.checkpoint["id"]
            for s in self.list(
                {
                    "configurable": {
                        k: config["configurable"][k] for k in ("thread_id", "checkpoint_ns")
                    }
                },
                limit=1024,
            )
        }
        if config["configurable"]["checkpoint_id"] not in page:
            return {channel: {"writes": []} for channel in channels}
        return super().get_delta_channel_history(config=config, channels=channels)


class KnowsSnapshotsOnly(DeltaInMemorySaver):
    """Takes a plain value for no seed."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        for history in found.values():
            if not isinstance(history.get("seed"), _DeltaSnapshot):
                history.pop("seed", None)
        return found


class WeighsSeeds(DeltaInMemorySaver):
    """Takes an empty seed for none."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        return {
            channel: history if history.get("seed") else {"writes": history["writes"]}
            for channel, history in found.items()
        }


class SkipsWritesAtPlainSeeds(DeltaSqliteSaver):
    """Takes a plain value to contain the writes stored beside it."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        for history in found.values():
            if "seed" in history and not isinstance(history["seed"], _DeltaSnapshot):
                del history["writes"][:1]
        return found


class ListsWithoutMetadata(DeltaInMemorySaver):
    """Lists checkpoints without reading their metadata."""

    def list(self, config, **options):
        for saved in super().list(config, **options):
            yield saved._replace(metadata={})


FAULTS = [
    pytest.param(
        LosesTaskPaths, "test_a_copy_keeps_the_order_of_parallel_writes", marks=settled_host
    ),
    (CopiesTheHeadOnly, "test_a_copy_reads_like_its_source"),
    (DeletesSharedBlobs, "test_prune_keeps_values_that_two_rows_share"),
    (DeletesSharedBlobs, "test_run_deletion_keeps_values_that_two_rows_share"),
    (LeavesWritesBehind, "test_run_deletion_takes_the_writes_of_deleted_rows"),
    (LeavesWritesBehind, "test_prune_takes_ended_subgraph_calls_with_their_root"),
    (FlattensSnapshots, "test_a_copy_reads_like_its_source"),
    (SharesWrites, "test_a_copy_goes_on_by_itself"),
    (ReadsItsOwnWrites, "test_history_leaves_out_the_writes_of_the_checkpoint_itself"),
    (ReadsNewestFirst, "test_history_is_oldest_first"),
    pytest.param(
        OrdersByTaskId, "test_history_orders_parallel_writes_by_task_path", marks=settled_host
    ),
    (StopsAfterAThousand, "test_history_reaches_further_than_a_thousand_rows"),
    (CopiesUnchecked, "test_a_copy_to_a_thread_with_rows_is_refused"),
    (CopiesUnchecked, "test_a_copy_of_nobody_is_refused"),
    (CopiesUnchecked, "test_a_copy_onto_itself_is_refused"),
    (CopiesUnchecked, "test_a_copy_of_an_unknown_checkpoint_is_refused"),
    (CopiesUnchecked, "test_a_copy_of_a_severed_checkpoint_is_refused"),
    (CopiesUnchecked, "test_a_copy_of_one_checkpoint_holds_what_it_needs"),
    (CopiesUnchecked, "test_a_copy_of_one_checkpoint_takes_its_subgraphs_along"),
    (KeepsetIsTheCheckpoint, "test_keepset_goes_back_to_the_nearest_snapshot"),
    (KeepsetIsTheCheckpoint, "test_keepset_without_a_snapshot_is_the_chain_to_the_root"),
    (KeepsetIsTheCheckpoint, "test_keepset_stops_at_a_plain_value"),
    (KeepsetIsTheCheckpoint, "test_keepset_without_an_id_is_that_of_the_newest"),
    (KeepsetIsTheCheckpoint, "test_keepset_of_an_unknown_checkpoint_is_empty"),
    (KeepsetIsTheCheckpoint, "test_keepset_walks_for_a_channel_that_was_never_written"),
    (KeepsetIsTheCheckpoint, "test_keepset_ends_where_the_parents_are_a_loop"),
    (KeepsetIsTheThread, "test_keepset_of_no_channels_is_the_checkpoint_alone"),
    (KeepsetIsTheThread, "test_keepset_of_a_channel_populated_here_is_the_checkpoint"),
    (KeepsetIsTheThread, "test_keepset_stays_on_its_branch_and_in_its_namespace"),
    (KeepsetIsTheThread, "test_keepset_takes_a_list_of_channels_only"),
    (KnowsSnapshotsOnly, "test_history_takes_a_plain_value_as_the_seed"),
    (WeighsSeeds, "test_history_keeps_falsy_and_boolean_seeds"),
    (SkipsWritesAtPlainSeeds, "test_history_replays_the_writes_at_a_plain_seed"),
    (ListsWithoutMetadata, "test_list_and_get_tuple_show_the_same"),
]


@pytest.mark.parametrize(
    ("broken", "name"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_the_contract_catches(expect_fault, broken, name):
    expect_fault(broken, name)
