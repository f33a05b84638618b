"""Savers under test, and a look at their stores around the methods under test."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager

import pytest

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.testing._bridge import open_saver


@contextmanager
def in_memory():
    yield DeltaInMemorySaver()


MAKERS = {
    "memory": in_memory,
    "sqlite": lambda: DeltaSqliteSaver.from_conn_string(":memory:"),
    "async-sqlite": lambda: AsyncDeltaSqliteSaver.from_conn_string(":memory:"),
}


# Of the session, as Hypothesis runs many examples in one call of a test.
@pytest.fixture(scope="session", params=list(MAKERS))
def make_saver(request):
    return MAKERS[request.param]


@pytest.fixture(scope="session")
def opened(make_saver):
    """Opens a fresh saver: one for each example."""
    return lambda: open_saver(make_saver)


class Store:
    """What a saver has stored, down to the last blob."""

    def __init__(self, view):
        self.view = view

    def by_thread(self):
        """All records by thread id."""
        if isinstance(self.view.saver, DeltaInMemorySaver):
            found = self._memory()
        else:
            found = [
                (thread_id, (table, *record))
                for table in ("checkpoints", "writes")
                for thread_id, *record in self._sql(f"SELECT * FROM {table}")
            ]
        records = defaultdict(set)
        for thread_id, record in found:
            records[thread_id].add(record)
        return records

    @contextmanager
    def without(self, thread_id, ns, checkpoint_id):
        """Hide a checkpoint and its writes, and nothing else."""
        if isinstance(self.view.saver, DeltaInMemorySaver):
            saver = self.view.saver
            row = saver.storage[thread_id][ns].pop(checkpoint_id)
            writes = saver.writes.pop((thread_id, ns, checkpoint_id), None)
            yield
            saver.storage[thread_id][ns][checkpoint_id] = row
            if writes is not None:
                saver.writes[thread_id, ns, checkpoint_id] = writes
            return
        away = "hidden " + thread_id
        rename = (
            "UPDATE {} SET thread_id = ? "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        )
        for table in ("checkpoints", "writes"):
            self._sql(rename.format(table), away, thread_id, ns, checkpoint_id)
        yield
        for table in ("checkpoints", "writes"):
            self._sql(rename.format(table), thread_id, away, ns, checkpoint_id)

    def _memory(self):
        saver = self.view.saver
        for thread_id, namespaces in saver.storage.items():
            for ns, rows in namespaces.items():
                for checkpoint_id, row in rows.items():
                    yield thread_id, ("checkpoints", ns, checkpoint_id, *row)
        for (thread_id, *key), writes in saver.writes.items():
            for write in writes.items():
                yield thread_id, ("writes", *key, *write)
        for (thread_id, *key), blob in saver.blobs.items():
            yield thread_id, ("blobs", *key, blob)

    def _sql(self, statement, *parameters):
        saver = self.view.saver
        if isinstance(saver, DeltaSqliteSaver):
            with saver.cursor() as cursor:
                return cursor.execute(statement, parameters).fetchall()

        async def run():
            async with saver.lock:
                found = list(await saver.conn.execute_fetchall(statement, parameters))
                await saver.conn.commit()
                return found

        return self.view.run(run())


@pytest.fixture(scope="session")
def store_of():
    return Store
