"""Object storage on a local folder: an object per row and per write, found by path."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from langgraph_checkpoint_objectstorage import ObjectStorageSaver, keys

from delta_mixin import CleanupPlan, CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin


class DeltaObjectStorageSaver(
    DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, ObjectStorageSaver
):
    NEWEST_ID_IS_HEAD = True

    def _list_namespaces(self, thread_id: str) -> set[str]:
        prefix = keys.thread_prefix(self.root, thread_id)
        first = {path[len(prefix) :].split("/")[0] for path in self.fs.find(prefix)}
        return {"" if name in ("checkpoints", "writes") else name for name in first}

    def _list_run_threads(self, run_ids: Sequence[str]) -> set[str]:
        return {path[len(self.root) + 1 :].split("/")[0] for path in self.fs.find(self.root)}

    def _delete_checkpoint_rows(self, plans: Sequence[CleanupPlan]) -> None:
        for plan in plans:
            thread = (self.root, plan.thread_id)
            gone = [keys.writes_prefix(*thread, *key) for key in plan.doomed]
            gone += [keys.checkpoint_key(*thread, *key) for key in plan.doomed]
            for ns in plan.dropped_namespaces:
                gone += [keys.writes_prefix(*thread, ns, ""), keys.checkpoints_prefix(*thread, ns)]
            for path in filter(self.fs.exists, gone):
                self.fs.rm(path, recursive=True)
            for ns, checkpoint_id in plan.detached:
                here = self._checkpoint_config(plan.thread_id, ns, checkpoint_id)
                saved = self.get_tuple(here)
                nowhere = self._checkpoint_config(plan.thread_id, ns, None)
                self.put(nowhere, saved.checkpoint, saved.metadata, {})


@contextmanager
def open_saver(
    where: str, saver_class: type[ObjectStorageSaver] = DeltaObjectStorageSaver
) -> Iterator[ObjectStorageSaver]:
    root = f"{where}/objects"
    shutil.rmtree(root, ignore_errors=True)
    saver = saver_class.from_conn_string(f"file://{root}")
    try:
        yield saver
    finally:
        # Upstream stops its event loop when the saver is collected, but does not close it.
        if loop := saver._bg_loop:
            loop.call_soon_threadsafe(loop.stop)
            saver._bg_thread.join()
            loop.close()


UPSTREAM = ObjectStorageSaver
