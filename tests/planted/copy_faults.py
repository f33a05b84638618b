"""Savers whose copies have one fault each."""

from __future__ import annotations

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver


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


class KeepsTheThreadInside(DeltaInMemorySaver):
    """Keeps a thread's id in its rows, as savers on document stores do. Sound."""

    def __init__(self):
        super().__init__()
        self.named = {}

    def put(self, config, checkpoint, metadata, new_versions):
        conf = config["configurable"]
        place = (str(conf["thread_id"]), conf.get("checkpoint_ns", ""), checkpoint["id"])
        self.named[place] = conf["thread_id"]
        return super().put(config, checkpoint, metadata, new_versions)

    def get_tuple(self, config):
        saved = super().get_tuple(config)
        return saved and self.name_thread(saved)

    def list(self, config, **options):
        return map(self.name_thread, super().list(config, **options))

    def name_thread(self, saved):
        conf = saved.config["configurable"]
        place = (str(conf["thread_id"]), conf["checkpoint_ns"], conf["checkpoint_id"])
        named = {"thread_id": self.named[place]}
        configs = [
            each and {"configurable": {**each["configurable"], **named}}
            for each in (saved.config, saved.parent_config)
        ]
        return saved._replace(config=configs[0], parent_config=configs[1])

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        for row in rows:
            self.named[(target_thread_id, *row.key)] = self.name_of(row, target_thread_id)
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)

    def _store_base(self, key, row):
        self.named[(str(key), row.checkpoint_ns, row.checkpoint_id)] = key
        super()._store_base(key, row)

    def name_of(self, row, target_thread_id):
        return target_thread_id


class CopiesTheSourcesThreadId(KeepsTheThreadInside):
    """Copies rows with all that is in them."""

    def name_of(self, row, target_thread_id):
        return row.thread_id


class LeavesTheTargetHalfCopied(DeltaInMemorySaver):
    """Copies row by row, and finds out on the way that one is missing."""

    def copy_thread(self, source_thread_id, target_thread_id, *, checkpoint_id=None):
        try:
            super().copy_thread(source_thread_id, target_thread_id, checkpoint_id=checkpoint_id)
        except LookupError:
            raise
        except Exception:
            rows = self._list_checkpoint_rows([source_thread_id])
            if source_thread_id != str(target_thread_id) and target_thread_id not in self.storage:
                self._copy_checkpoint_rows(source_thread_id, target_thread_id, rows[-1:])
            raise


class LosesMetadataOfCopies(DeltaInMemorySaver):
    """Copies the metadata that it knows."""

    known = ("source", "step", "parents", "run_id", "counters_since_delta_snapshot")

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        for row in rows:
            ns, checkpoint_id = row.key
            stored = self.storage[target_thread_id][ns]
            checkpoint, metadata, parent = stored[checkpoint_id]
            known = {k: v for k, v in self.serde.loads_typed(metadata).items() if k in self.known}
            stored[checkpoint_id] = (checkpoint, self.serde.dumps_typed(known), parent)


class LosesCountersOfCopies(LosesMetadataOfCopies):
    """Copies metadata without the counters since the last snapshot."""

    known = ("source", "step", "parents", "run_id", "user")


class ChainsCopiesByAge(DeltaInMemorySaver):
    """Gives each copied row the one before it for a parent."""

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        for stored in self.storage[target_thread_id].values():
            before = None
            for checkpoint_id in sorted(stored):
                stored[checkpoint_id] = (*stored[checkpoint_id][:2], before)
                before = checkpoint_id


class CopiesBlobsOfTheHead(DeltaInMemorySaver):
    """Copies the values of the newest checkpoint only."""

    def _copy_checkpoint_rows(self, source_thread_id, target_thread_id, rows):
        super()._copy_checkpoint_rows(source_thread_id, target_thread_id, rows)
        newest = {r.checkpoint_ns: r for r in sorted(rows, key=lambda r: r.checkpoint_id)}
        used = {(ns, *pair) for ns, r in newest.items() for pair in r.channel_versions.items()}
        for key in [k for k in self.blobs if k[0] == target_thread_id and k[1:] not in used]:
            del self.blobs[key]


FAULTS = [
    ("loses `task_path`", LosesTaskPaths, "test_a_copy_keeps_the_order_of_parallel_writes"),
    ("copies only the head", CopiesTheHeadOnly, "test_a_copy_reads_like_its_source"),
    (
        "copies with the source's thread id inside",
        CopiesTheSourcesThreadId,
        "test_a_copy_names_its_own_thread",
    ),
    (
        "leaves the target half copied",
        LeavesTheTargetHalfCopied,
        "test_a_copy_of_a_severed_checkpoint_is_refused",
    ),
    ("loses metadata of copies", LosesMetadataOfCopies, "test_a_copy_keeps_the_metadata"),
    ("counters lost", LosesCountersOfCopies, "test_a_copy_keeps_the_metadata"),
    ("snapshot type lost to JSON", FlattensSnapshots, "test_a_copy_reads_like_its_source"),
    (
        "copies without the blobs of older rows",
        CopiesBlobsOfTheHead,
        "test_a_copy_stores_what_its_source_does",
    ),
    ("chains copied rows by age", ChainsCopiesByAge, "test_a_copy_keeps_the_parents"),
    ("shares writes between copy and source", SharesWrites, "test_a_copy_goes_on_by_itself"),
    (
        "copies onto whatever is there",
        CopiesUnchecked,
        "test_a_copy_to_a_thread_with_rows_is_refused",
    ),
]
