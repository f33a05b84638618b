"""Savers whose reading has one fault each: histories, keep-sets, tuples and listings."""

from __future__ import annotations

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver


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


class KeepsetIsTheCheckpoint(DeltaInMemorySaver):
    """Keeps the checkpoint that is named, and nothing that it is rebuilt from."""

    def get_delta_channel_keepset(self, config, channels):
        return {config["configurable"].get("checkpoint_id")}


class KeepsetIsTheThread(DeltaInMemorySaver):
    """Keeps every checkpoint of the thread."""

    def get_delta_channel_keepset(self, config, channels):
        thread = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
        return {saved.checkpoint["id"] for saved in self.list(thread)}


class KeepsetOfTheFirstSeed(DeltaSqliteSaver):
    """Ends every channel's walk at the nearest seed of any of them."""

    def get_delta_channel_keepset(self, config, channels):
        kept = [
            super(KeepsetOfTheFirstSeed, self).get_delta_channel_keepset(config, [c])
            for c in channels
        ]
        return min(kept, key=len, default=set()) or super().get_delta_channel_keepset(config, [])


class LosesTaskPathsOnPut(DeltaInMemorySaver):
    """Stores writes without the argument it does not know."""

    def put_writes(self, config, writes, task_id, task_path=""):
        super().put_writes(config, writes, task_id)


class StoresPlainJson(DeltaInMemorySaver):
    """Stores values as JSON, which has lists and no snapshots."""

    def put(self, config, checkpoint, metadata, new_versions):
        values = {
            channel: list(value.value) if isinstance(value, _DeltaSnapshot) else value
            for channel, value in checkpoint["channel_values"].items()
        }
        return super().put(config, {**checkpoint, "channel_values": values}, metadata, new_versions)


class StoresWritesAsPlainJson(DeltaInMemorySaver):
    """Stores values as they are, but writes as JSON."""

    def put_writes(self, config, writes, task_id, task_path=""):
        flat = [
            (channel, list(value.value) if isinstance(value, _DeltaSnapshot) else value)
            for channel, value in writes
        ]
        super().put_writes(config, flat, task_id, task_path)


class LosesCountersOnPut(DeltaInMemorySaver):
    """Stores the metadata that it knows."""

    def put(self, config, checkpoint, metadata, new_versions):
        known = {k: v for k, v in metadata.items() if k != "counters_since_delta_snapshot"}
        return super().put(config, checkpoint, known, new_versions)


class LosesRunIds(DeltaInMemorySaver):
    """Stores the metadata it is given, not that of the config."""

    def put(self, config, checkpoint, metadata, new_versions):
        bare = {"configurable": config["configurable"]}
        return super().put(bare, checkpoint, metadata, new_versions)


class ClearsEarlyWrites(DeltaInMemorySaver):
    """Takes writes that lie under a new checkpoint's id for left-overs."""

    def put(self, config, checkpoint, metadata, new_versions):
        conf = config["configurable"]
        place = (conf["thread_id"], conf.get("checkpoint_ns", ""), checkpoint["id"])
        self.writes.pop(place, None)
        return super().put(config, checkpoint, metadata, new_versions)


class AddsWritesUp(DeltaInMemorySaver):
    """Numbers writes by what is stored already."""

    def put_writes(self, config, writes, task_id, task_path=""):
        conf = config["configurable"]
        place = (conf["thread_id"], conf.get("checkpoint_ns", ""), conf["checkpoint_id"])
        stored = len(self.writes[place])
        padding = [("padding", None)] * stored
        super().put_writes(config, [*padding, *writes], task_id, task_path)
        for key in [k for k, w in self.writes[place].items() if w[1] == "padding"]:
            del self.writes[place][key]


class SortsIndexesAsText(DeltaInMemorySaver):
    """Sorts the writes of a task by their indexes as text."""

    def get_tuple(self, config):
        saved = super().get_tuple(config)
        if saved is None:
            return None
        conf = saved.config["configurable"]
        place = (conf["thread_id"], conf["checkpoint_ns"], conf["checkpoint_id"])
        stored = self.writes.get(place, {})
        order = sorted(stored, key=lambda key: (stored[key][3], key[0], str(key[1])))
        writes = [(stored[k][0], stored[k][1], self.serde.loads_typed(stored[k][2])) for k in order]
        return saved._replace(pending_writes=writes)


class ReplaysIndexesAsText(DeltaInMemorySaver):
    """Replays the writes of a channel by their positions as text."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        for history in found.values():
            stored = list(enumerate(history["writes"]))
            history["writes"] = [w for _, w in sorted(stored, key=lambda each: str(each[0]))]
        return found


class RepeatsVersions(DeltaInMemorySaver):
    """Counts versions up, so that the branches of a fork share them, and values with them."""

    def get_next_version(self, current, channel):
        return (current or 0) + 1


class GuessesParents(DeltaInMemorySaver):
    """Takes the checkpoint before, by id, for the parent."""

    def get_tuple(self, config):
        saved = super().get_tuple(config)
        if saved is None or saved.parent_config is None:
            return saved
        conf = saved.config["configurable"]
        ids = self.storage[conf["thread_id"]][conf["checkpoint_ns"]]
        before = max(i for i in ids if i < conf["checkpoint_id"])
        parent = {"configurable": {**conf, "checkpoint_id": before}}
        return saved._replace(parent_config=parent)


class HeadOfAnyNamespace(DeltaInMemorySaver):
    """Returns the newest checkpoint of the thread, whatever namespace it is in."""

    def get_tuple(self, config):
        conf = config["configurable"]
        if not conf.get("checkpoint_id"):
            namespaces = self.storage.get(conf["thread_id"], {})
            newest = max(((i, ns) for ns in namespaces for i in namespaces[ns]), default=None)
            if newest is not None:
                place = {"checkpoint_id": newest[0], "checkpoint_ns": newest[1]}
                config = {"configurable": {**conf, **place}}
        return super().get_tuple(config)


class TakesUnknownForNewest(DeltaInMemorySaver):
    """Returns the newest checkpoint where the one that is asked for is not stored."""

    def get_tuple(self, config):
        conf = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
        return super().get_tuple(config) or super().get_tuple({"configurable": conf})


class DeletesThreadsByPrefix(DeltaInMemorySaver):
    """Deletes all threads whose id begins like the one that is named."""

    def delete_thread(self, thread_id):
        for stored in [t for t in self.storage if str(t).startswith(str(thread_id))]:
            super().delete_thread(stored)


class WalksForEver(DeltaInMemorySaver):
    """Walks parents without looking back: the host's own walk."""

    get_delta_channel_history = InMemorySaver.get_delta_channel_history


class FollowsIds(DeltaInMemorySaver):
    """Takes every checkpoint with a smaller id for an ancestor."""

    def get_delta_channel_history(self, *, config, channels):
        conf = config["configurable"]
        ids = self.storage[conf["thread_id"]][conf["checkpoint_ns"]]
        found = {channel: {"writes": []} for channel in channels}
        for channel, history in found.items():
            for checkpoint_id in sorted(
                (i for i in ids if i < conf["checkpoint_id"]), reverse=True
            ):
                place = {"configurable": {**conf, "checkpoint_id": checkpoint_id}}
                saved = self.get_tuple(place)
                history["writes"][:0] = [w for w in saved.pending_writes if w[1] == channel]
                if channel in saved.checkpoint["channel_values"]:
                    history["seed"] = saved.checkpoint["channel_values"][channel]
                    break
        return found


class EndsAllWalksTogether(DeltaInMemorySaver):
    """Stops the walk of every channel at the nearest seed of any."""

    def get_delta_channel_history(self, *, config, channels):
        found = super().get_delta_channel_history(config=config, channels=channels)
        shortest = min((len(history["writes"]) for history in found.values()), default=0)
        for history in found.values():
            del history["writes"][: len(history["writes"]) - shortest]
        return found


FAULTS = [
    (
        "reorders writes: by task id",
        OrdersByTaskId,
        "test_writes_of_parallel_tasks_are_read_by_task_path",
    ),
    (
        "loses `task_path` on put",
        LosesTaskPathsOnPut,
        "test_writes_of_parallel_tasks_are_read_by_task_path",
    ),
    (
        "sorts a task's writes as text",
        SortsIndexesAsText,
        "test_writes_of_one_task_are_read_in_their_order",
    ),
    (
        "snapshot type lost to JSON on put",
        StoresPlainJson,
        "test_values_come_back_as_the_type_they_were",
    ),
    (
        "types of writes lost to JSON",
        StoresWritesAsPlainJson,
        "test_writes_come_back_as_the_type_they_were",
    ),
    ("counters lost on put", LosesCountersOnPut, "test_metadata_comes_back_whole"),
    ("run ids lost", LosesRunIds, "test_metadata_of_the_config_is_kept"),
    (
        "clears writes that came before their checkpoint",
        ClearsEarlyWrites,
        "test_writes_stored_before_their_checkpoint_are_read",
    ),
    (
        "adds writes up that are put again",
        AddsWritesUp,
        "test_writes_that_are_put_again_are_read_once",
    ),
    (
        "replays a task's writes in the order of their indexes as text",
        ReplaysIndexesAsText,
        "test_history_keeps_the_order_of_one_tasks_writes",
    ),
    (
        "repeats versions on the branches of a fork",
        RepeatsVersions,
        "test_each_branch_of_a_fork_reads_its_own_values",
    ),
    ("guesses parents from ids", GuessesParents, "test_parents_come_back"),
    (
        "reads the head of another namespace",
        HeadOfAnyNamespace,
        "test_the_newest_is_read_without_an_id",
    ),
    (
        "takes an unknown id for the newest",
        TakesUnknownForNewest,
        "test_what_is_not_stored_is_not_read",
    ),
    ("deletes threads by prefix", DeletesThreadsByPrefix, "test_threads_are_read_apart"),
    ("lists without metadata", ListsWithoutMetadata, "test_list_and_get_tuple_show_the_same"),
    (
        "replays the checkpoint's own writes",
        ReadsItsOwnWrites,
        "test_history_leaves_out_the_writes_of_the_checkpoint_itself",
    ),
    ("replays newest first", ReadsNewestFirst, "test_history_is_oldest_first"),
    (
        "reads one page of a thread",
        StopsAfterAThousand,
        "test_history_reaches_further_than_a_thousand_rows",
    ),
    (
        "takes only snapshots for seeds",
        KnowsSnapshotsOnly,
        "test_history_takes_a_plain_value_as_the_seed",
    ),
    ("takes falsy seeds for none", WeighsSeeds, "test_history_keeps_falsy_and_boolean_seeds"),
    (
        "leaves out writes at a plain seed",
        SkipsWritesAtPlainSeeds,
        "test_history_replays_the_writes_at_a_plain_seed",
    ),
    ("follows ids instead of parents", FollowsIds, "test_history_follows_the_branch_of_a_fork"),
    (
        "ends all channels' walks together",
        EndsAllWalksTogether,
        "test_history_ends_each_channel_at_its_own_seed",
    ),
    ("walks a loop for ever", WalksForEver, "test_history_ends_where_the_parents_are_a_loop"),
    (
        "keep-set without ancestors",
        KeepsetIsTheCheckpoint,
        "test_keepset_goes_back_to_the_nearest_snapshot",
    ),
    (
        "keep-set of the whole thread",
        KeepsetIsTheThread,
        "test_keepset_of_no_channels_is_the_checkpoint_alone",
    ),
    (
        "keep-set that ends all channels' walks together",
        KeepsetOfTheFirstSeed,
        "test_keepset_of_several_channels_is_their_union",
    ),
]
