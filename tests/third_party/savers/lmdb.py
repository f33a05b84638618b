"""LMDB: rows under `thread NUL namespace NUL id`, writes under the row's key and a NUL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import lmdb
from langgraph_checkpoint_lmdb import LMDBSaver

from delta_mixin import CleanupPlan, CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin


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
