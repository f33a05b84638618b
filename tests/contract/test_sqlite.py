from __future__ import annotations

from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.testing import SaverContract
from delta_mixin.testing.oracle import SETTLED_HOST


class TestDeltaSqliteSaver(SaverContract):
    orders_writes_by_task_path = SETTLED_HOST
    follows_parents_not_ids = SETTLED_HOST

    def make_saver(self):
        return DeltaSqliteSaver.from_conn_string(":memory:")

    def stored_rows(self, saver):
        for kind, table in (("checkpoint", "checkpoints"), ("writes", "writes")):
            columns = "thread_id, checkpoint_ns, checkpoint_id"
            yield from (
                (kind, *row) for row in saver.conn.execute(f"SELECT {columns} FROM {table}")
            )
