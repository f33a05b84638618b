"""Plain Redis: a key per row, one per channel version, a sorted set of ids as the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from langgraph_checkpoint_plainredis import RedisSaver
from langgraph_checkpoint_plainredis.saver import _pack_typed, _unpack_typed

from delta_mixin import CleanupPlan, CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin


class DeltaRedisSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, RedisSaver):
    VERSIONED_BLOBS = True
    LISTS_ALL_THREADS = True

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            t, pipe = plan.thread_id, self.client.pipeline()  # all or nothing
            for key in plan.doomed:
                pipe.delete(self._key_checkpoint(t, *key), self._key_writes(t, *key))
                pipe.zrem(self._key_index(t, key.checkpoint_ns), key.checkpoint_id)
            for blob in plan.dead_blobs:
                pipe.delete(self._key_blob(t, *blob))
            for ns in plan.dropped_namespaces:
                pipe.hdel(self._key_threads(), self._key_index(t, ns))
            for row in [self._key_checkpoint(t, *key) for key in plan.detached]:
                stored = self.serde.loads_typed(_unpack_typed(self.client.get(row)))
                mended = self.serde.dumps_typed({**stored, "parent_id": None})
                pipe.set(row, _pack_typed(*mended), keepttl=True)
            for ns, head in plan.heads.items():
                if head:  # the head is the last in the timeline
                    last = self.client.incr(self._key_seq())
                    pipe.zadd(self._key_index(t, ns), {head: last})
            pipe.execute()


@contextmanager
def open_saver(where: str, saver_class: type[RedisSaver] = DeltaRedisSaver) -> Iterator[RedisSaver]:
    saver = saver_class(url=f"redis://{where}/0")
    saver.client.flushdb()
    try:
        yield saver
    finally:
        saver.close()


UPSTREAM = RedisSaver
