from __future__ import annotations

from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver
from delta_mixin.testing import SaverContract
from delta_mixin.testing.oracle import SETTLED_HOST


class TestAsyncDeltaSqliteSaver(SaverContract):
    orders_writes_by_task_path = SETTLED_HOST
    follows_parents_not_ids = SETTLED_HOST

    def make_saver(self):
        return AsyncDeltaSqliteSaver.from_conn_string(":memory:")

    async def stored_rows(self, saver):
        found = []
        for kind, table in (("checkpoint", "checkpoints"), ("writes", "writes")):
            columns = "thread_id, checkpoint_ns, checkpoint_id"
            rows = await saver.conn.execute_fetchall(f"SELECT {columns} FROM {table}")
            found += [(kind, *row) for row in rows]
        return found
