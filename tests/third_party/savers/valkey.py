"""Valkey: a key per row, one for its writes, and a list of ids per namespace, newest first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import orjson
from langgraph_checkpoint_aws.checkpoint.valkey import ValkeySaver

from delta_mixin import CleanupPlan, CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin


class DeltaValkeySaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, ValkeySaver):
    def _list_namespaces(self, thread_id: str) -> list[str]:
        prefix = self._make_thread_key(thread_id, "")
        pattern = re.sub(r"([*?\[\]\\^-])", r"\\\1", prefix) + "*"
        return [key.decode()[len(prefix) :] for key in self.client.scan_iter(pattern, 1000)]

    def _list_run_threads(self, run_ids: Sequence[str]) -> set[str]:
        keys = (key.decode() for key in self.client.scan_iter("thread:{*", 1000))
        return {key[len("thread:{") : key.index("}:")] for key in keys}

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            thread_id, pipe = plan.thread_id, self.client.pipeline()  # all or nothing
            for key in plan.doomed:
                pipe.delete(self._make_checkpoint_key(thread_id, *key))
                pipe.delete(self._make_writes_key(thread_id, *key))
                pipe.lrem(self._make_thread_key(thread_id, key.checkpoint_ns), 0, key.checkpoint_id)
            for row in [self._make_checkpoint_key(thread_id, *key) for key in plan.detached]:
                stored = orjson.loads(self.client.get(row))
                mended = orjson.dumps({**stored, "parent_checkpoint_id": None})
                pipe.set(row, mended, keepttl=True)
            for ns, head in plan.heads.items():
                if head:  # the head is the first of the list
                    pipe.lrem(self._make_thread_key(thread_id, ns), 0, head)
                    pipe.lpush(self._make_thread_key(thread_id, ns), head)
            pipe.execute()


@contextmanager
def open_saver(
    where: str, saver_class: type[ValkeySaver] = DeltaValkeySaver
) -> Iterator[ValkeySaver]:
    with saver_class.from_conn_string(f"valkey://{where}/1") as saver:
        saver.client.flushdb()
        yield saver


UPSTREAM = ValkeySaver
