"""LMDB: rows under `thread NUL namespace NUL id`, writes under the row's key and a NUL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import lmdb
from langgraph_checkpoint_lmdb import LMDBSaver

from delta_mixin import (
    BaseRow,
    CleanupPlan,
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
)


class DeltaLMDBSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, LMDBSaver):
    NEWEST_ID_IS_HEAD = True
    LISTS_ALL_THREADS = True  # `list(None)` passes the filter over, and so names more

    def _list_namespaces(self, thread_id: str) -> set[str]:
        with self.env.begin() as txn:
            keys = _below(txn, self._db, f"{thread_id}\0".encode())
            return {key.decode().split("\0")[1] for key in keys}

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        with self.lock, self.env.begin(write=True) as txn:
            for plan in plans:
                thread_id = plan.thread_id
                rows = [self._make_key(thread_id, *key) for key in plan.doomed]
                namespaces = [self._make_prefix(thread_id, ns) for ns in plan.dropped_namespaces]
                for row in rows:
                    txn.delete(row, db=self._db)
                for prefix in [*namespaces, *(row + b"\0" for row in rows)]:
                    for key in _below(txn, self._writes_db, prefix):
                        txn.delete(key, db=self._writes_db)
                for row in [self._make_key(thread_id, *key) for key in plan.detached]:
                    stored = self._deserialize(txn.get(row, db=self._db))
                    stored["parent_checkpoint_id"] = None
                    txn.put(row, self._serialize(stored), db=self._db)

    def _squash_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        with self.lock, self.env.begin(write=True) as txn:
            for plan in plans:
                for base in plan.bases:
                    self._store_base(txn, plan.thread_id, base)

    def _store_base(self, txn: lmdb.Transaction, thread_id: str, base: BaseRow) -> None:
        def key_of(checkpoint_id: str) -> bytes:
            return self._make_key(thread_id, base.checkpoint_ns, checkpoint_id)

        values = {}
        for channel, seed_id, _ in base.seeds:
            seed = self._deserialize(txn.get(key_of(seed_id), db=self._db))
            stored = self.serde.loads_typed((seed["type"], seed["checkpoint"]))
            values[channel] = stored["channel_values"][channel]
        type_, blob = self.serde.dumps_typed(base.checkpoint(values))
        metadata = dict(
            zip(("type", "value"), self.serde.dumps_typed(dict(base.metadata)), strict=True)
        )
        row = {"type": type_, "checkpoint": blob, "metadata": metadata}
        row["parent_checkpoint_id"] = base.parent_id
        txn.put(key_of(base.checkpoint_id), self._serialize(row), db=self._db)
        for part in base.writes:
            written = _below(txn, self._writes_db, key_of(part.checkpoint_id) + b"\0")
            for index, key in enumerate(written):
                write = self._deserialize(txn.get(key, db=self._writes_db))
                if write["channel"] in part.channels:
                    # Readers sort the index as text.
                    name = f"\0{part.task_id}\0{index:06}".encode()
                    write = self._serialize({**write, "task_id": part.task_id})
                    txn.put(key_of(base.checkpoint_id) + name, write, db=self._writes_db)
        for child in map(key_of, base.children):
            row = self._deserialize(txn.get(child, db=self._db))
            row["parent_checkpoint_id"] = base.checkpoint_id
            txn.put(child, self._serialize(row), db=self._db)

    def delete_thread(self, thread_id: str) -> None:
        # Upstream has none, which copying needs to take a half-made copy back.
        self.prune([thread_id], strategy="delete")


def _below(txn: lmdb.Transaction, db: object, prefix: bytes) -> list[bytes]:
    cursor = txn.cursor(db=db)
    cursor.set_range(prefix)
    return [*takewhile(lambda key: key.startswith(prefix), cursor.iternext(values=False))]


@contextmanager
def open_saver(where: str, saver_class: type[LMDBSaver] = DeltaLMDBSaver) -> Iterator[LMDBSaver]:
    with lmdb.open(where, max_dbs=2, map_size=1 << 28, sync=False) as env:
        saver = saver_class(env)
        with env.begin(write=True) as txn:
            txn.drop(saver._db, delete=False)
            txn.drop(saver._writes_db, delete=False)
        yield saver


UPSTREAM = LMDBSaver
