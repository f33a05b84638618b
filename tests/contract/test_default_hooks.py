"""The default hooks: savers that write only the hook without a default."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from delta_mixin import CopyAndDeleteForRunsMixin, DeltaChannelAwarePruneMixin
from delta_mixin.testing import SaverContract


class DictStore:
    """Checkpoints with their values inline, in dicts."""

    def __init__(self, serde):
        self.serde = serde
        self.rows = {}
        self.writes = defaultdict(dict)
        self.heads = {}

    def get(self, config):
        thread_id, ns = _where(config)
        checkpoint_id = get_checkpoint_id(config) or self.head(thread_id, ns)
        key = (thread_id, ns, checkpoint_id)
        return self.load(key) if key in self.rows else None

    def head(self, thread_id, ns):
        return max((i for t, n, i in self.rows if (t, n) == (thread_id, ns)), default=None)

    def load(self, key):
        checkpoint, metadata, parent_id = self.rows[key]
        stored = self.writes.get(key, {})
        order = sorted(stored, key=lambda k: (stored[k][2], *k))
        return CheckpointTuple(
            _config(*key),
            self.serde.loads_typed(checkpoint),
            self.serde.loads_typed(metadata),
            _config(*key[:2], parent_id) if parent_id else None,
            [(k[0], stored[k][0], self.serde.loads_typed(stored[k][1])) for k in order],
        )

    def find(self, config, filter=None, before=None, limit=None):
        wanted = (config or {"configurable": {}})["configurable"]
        end = before and get_checkpoint_id(before)
        found = []
        for key in sorted(self.rows, key=lambda k: k[2], reverse=True):
            asked = zip(("thread_id", "checkpoint_ns", "checkpoint_id"), key, strict=True)
            if all(str(wanted.get(name, part)) == part for name, part in asked):
                saved = self.load(key)
                matches = all(saved.metadata.get(k) == v for k, v in (filter or {}).items())
                if matches and (not end or key[2] < end):
                    found.append(saved)
        return found[:limit]

    def put(self, config, checkpoint, metadata):
        key = (*_where(config), checkpoint["id"])
        self.rows[key] = (
            self.serde.dumps_typed(checkpoint),
            self.serde.dumps_typed(get_checkpoint_metadata(config, metadata)),
            get_checkpoint_id(config),
        )
        self.heads[key[:2]] = checkpoint["id"]
        return _config(*key)

    def put_writes(self, config, writes, task_id, task_path):
        stored = self.writes[(*_where(config), get_checkpoint_id(config))]
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            if index < 0 or (task_id, index) not in stored:
                stored[task_id, index] = (channel, self.serde.dumps_typed(value), task_path)

    def delete_thread(self, thread_id):
        for store in (self.rows, self.writes, self.heads):
            for key in [k for k in store if k[0] == thread_id]:
                del store[key]

    def carry_out(self, plans):
        for plan in plans:
            for key in plan.doomed:
                self.writes.pop((plan.thread_id, *key), None)
                self.rows.pop((plan.thread_id, *key), None)
            for key in plan.detached:
                checkpoint, metadata, _ = self.rows[(plan.thread_id, *key)]
                self.rows[(plan.thread_id, *key)] = (checkpoint, metadata, None)
            for ns in plan.dropped_namespaces:
                for key in [k for k in self.writes if k[:2] == (plan.thread_id, ns)]:
                    del self.writes[key]
            for ns, head in plan.heads.items():
                self.heads[plan.thread_id, ns] = head


class PointerStore(DictStore):
    """`get_tuple` without an id returns what was put last, whatever its id."""

    def head(self, thread_id, ns):
        return self.heads.get((thread_id, ns))


class SyncSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, BaseCheckpointSaver[int]):
    LISTS_ALL_THREADS = True
    Store = DictStore

    def __init__(self):
        super().__init__()
        self.store = self.Store(self.serde)

    def get_tuple(self, config):
        return self.store.get(config)

    def list(self, config, *, filter=None, before=None, limit=None):
        yield from self.store.find(config, filter, before, limit)

    def put(self, config, checkpoint, metadata, new_versions):
        return self.store.put(config, checkpoint, metadata)

    def put_writes(self, config, writes, task_id, task_path=""):
        self.store.put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id):
        self.store.delete_thread(thread_id)

    def _delete_checkpoint_rows(self, plans):
        self.store.carry_out(plans)


class PointerSaver(SyncSaver):
    Store = PointerStore


class AsyncSaver(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, BaseCheckpointSaver[int]):
    LISTS_ALL_THREADS = True

    def __init__(self):
        super().__init__()
        self.store = DictStore(self.serde)

    async def aget_tuple(self, config):
        return self.store.get(config)

    async def alist(self, config, *, filter=None, before=None, limit=None):
        for saved in self.store.find(config, filter, before, limit):
            yield saved

    async def aput(self, config, checkpoint, metadata, new_versions):
        return self.store.put(config, checkpoint, metadata)

    async def aput_writes(self, config, writes, task_id, task_path=""):
        self.store.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id):
        self.store.delete_thread(thread_id)

    async def _adelete_checkpoint_rows(self, plans):
        self.store.carry_out(plans)


class TestSyncSaverWithOneHook(SaverContract):
    ends_looped_histories = False  # the host's default walk does not

    @contextmanager
    def make_saver(self):
        yield SyncSaver()


class TestSaverThatKeepsAHeadPointer(SaverContract):
    ends_looped_histories = False

    @contextmanager
    def make_saver(self):
        yield PointerSaver()


class TestAsyncSaverWithOneHook(SaverContract):
    sides = ("async",)
    ends_looped_histories = False

    @contextmanager
    def make_saver(self):
        yield AsyncSaver()


def _where(config):
    conf = config["configurable"]
    return str(conf["thread_id"]), conf.get("checkpoint_ns", "")


def _config(thread_id, checkpoint_ns, checkpoint_id):
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }
