from __future__ import annotations

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import SaverContract
from delta_mixin.testing.oracle import SETTLED_HOST


class TestDeltaInMemorySaver(SaverContract):
    orders_writes_by_task_path = SETTLED_HOST
    replays_writes_of_plain_seeds = SETTLED_HOST

    def make_saver(self):
        return DeltaInMemorySaver()

    def stored_rows(self, saver):
        for thread_id, namespaces in saver.storage.items():
            for ns, saved in namespaces.items():
                yield from (("checkpoint", thread_id, ns, i) for i in saved)
        yield from (("writes", *key) for key, writes in saver.writes.items() if writes)
        yield from (("blob", *key) for key in saver.blobs)
