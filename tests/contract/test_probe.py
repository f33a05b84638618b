"""The probe: right answers on sound savers, each fault seen, nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.testing import _findings, aprobe_saver, probe_saver
from delta_mixin.testing.oracle import SETTLED_HOST

SOUND = {
    "config_keys": ("checkpoint_ns",),
    "lists_all_namespaces": True,
    "lists_all_threads": True,
    "filters": "exact",
    "keeps_run_id": True,
    "write_order": "task_path",
    "keeps_task_order": True,
    "keeps_early_writes": True,
    "reput": "replaces",
    "reput_keeps_writes": True,
    "reput_moves_parent": True,
    "head": "greatest id",
    "versioned_blobs": False,
    "keeps_branches_apart": True,
    "open_list_blocks": False,
    "deletes_threads": True,
    "left_behind": (),
}
if not SETTLED_HOST:
    SOUND["write_order"] = "task_id"


def answers(report):
    return {name: getattr(report, name) for name in SOUND}


def verdicts(report):
    return {advice.hook: advice.verdict for advice in report.hooks}


def stored(saver):
    # The host's dicts grow an empty entry for a thread that is only looked at.
    rows = [thread_id for thread_id, rows in saver.storage.items() if any(rows.values())]
    return rows, [key for key, writes in saver.writes.items() if writes], [*saver.blobs]


@pytest.mark.parametrize("saver_class", [InMemorySaver, DeltaInMemorySaver])
def test_the_in_memory_savers(saver_class):
    saver = saver_class()
    order = "task_path" if SETTLED_HOST else "put order"
    expected = {**SOUND, "versioned_blobs": True, "write_order": order}
    report = probe_saver(saver)
    assert answers(report) == expected
    assert answers(asyncio.run(aprobe_saver(saver))) == expected
    assert not report.failures
    assert report.attributes == {
        "LISTS_ALL_THREADS": True,
        "NEWEST_ID_IS_HEAD": True,
        "VERSIONED_BLOBS": True,
    }
    assert stored(saver) == ([], [], []), "scratch rows are left behind"


@pytest.mark.parametrize("saver_class", [SqliteSaver, DeltaSqliteSaver])
def test_the_sqlite_savers(saver_class):
    with saver_class.from_conn_string(":memory:") as saver:
        report = probe_saver(saver, patience=0.3)
        assert answers(report) == {**SOUND, "open_list_blocks": True}
        left = [
            saver.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("checkpoints", "writes")
        ]
        assert left == [0, 0], "scratch rows are left behind"
    written = {hook for hook, verdict in verdicts(report).items() if verdict == "written"}
    assert ("_delete_checkpoint_rows" in written) is (saver_class is DeltaSqliteSaver)


@pytest.mark.parametrize("saver_class", [AsyncSqliteSaver, AsyncDeltaSqliteSaver])
def test_the_async_sqlite_savers(saver_class):
    async def probe():
        async with saver_class.from_conn_string(":memory:") as saver:
            return await aprobe_saver(saver, patience=0.3)

    report = asyncio.run(probe())
    assert answers(report) == {**SOUND, "open_list_blocks": True}
    assert report.side == "async"


class NoRunId(InMemorySaver):
    def put(self, config, *args):
        return super().put({"configurable": config["configurable"]}, *args)


class NoTaskPath(InMemorySaver):
    def put_writes(self, config, writes, task_id, task_path=""):
        super().put_writes(config, writes, task_id)


class Changed(InMemorySaver):
    """Reads tuples that differ from what is stored."""

    def change(self, saved):
        return saved

    def get_tuple(self, config):
        saved = super().get_tuple(config)
        return saved and self.change(saved)


class IndexAsText(Changed):
    def change(self, saved):
        count = len(saved.pending_writes)
        order = sorted(range(count), key=str)
        return saved._replace(pending_writes=[saved.pending_writes[n] for n in order])


class NoEarlyWrites(InMemorySaver):
    def put(self, config, checkpoint, *args):
        conf = config["configurable"]
        self.writes.pop((conf["thread_id"], conf["checkpoint_ns"], checkpoint["id"]), None)
        return super().put(config, checkpoint, *args)


class RefusesAgain(InMemorySaver):
    def put(self, config, checkpoint, *args):
        conf = config["configurable"]
        if checkpoint["id"] in self.storage[conf["thread_id"]][conf["checkpoint_ns"]]:
            raise RuntimeError("409")
        return super().put(config, checkpoint, *args)


class IgnoresAgain(InMemorySaver):
    def put(self, config, checkpoint, *args):
        conf = config["configurable"]
        if checkpoint["id"] in self.storage[conf["thread_id"]][conf["checkpoint_ns"]]:
            return config
        return super().put(config, checkpoint, *args)


class ListsTwice(InMemorySaver):
    def list(self, config, **options):
        for saved in super().list(config, **options):
            yield saved
            if saved.checkpoint["channel_values"].get("value") == ["after"]:
                yield saved


class CountedVersions(InMemorySaver):
    def get_next_version(self, current, channel):
        return (current or 0) + 1


class LastPut(InMemorySaver):
    def put(self, config, checkpoint, *args):
        conf = config["configurable"]
        self.last = {**getattr(self, "last", {})}
        self.last[conf["thread_id"], conf["checkpoint_ns"]] = checkpoint["id"]
        return super().put(config, checkpoint, *args)

    def get_tuple(self, config):
        conf = config["configurable"]
        key = (conf["thread_id"], conf.get("checkpoint_ns", ""))
        head = conf.get("checkpoint_id") or self.last.get(key)
        return super().get_tuple({"configurable": {**conf, "checkpoint_id": head}})


class RootOnly(InMemorySaver):
    def list(self, config, **options):
        if config is not None:
            config = {"configurable": {"checkpoint_ns": "", **config["configurable"]}}
        yield from super().list(config, **options)


class OneThreadOnly(InMemorySaver):
    def list(self, config, **options):
        if config is None:
            raise ValueError("which thread?")
        yield from super().list(config, **options)


class NoFilter(InMemorySaver):
    def list(self, config, *, filter=None, **options):
        yield from super().list(config, **options)


class RunsOfRootOnly(InMemorySaver):
    def list(self, config, *, filter=None, **options):
        for saved in super().list(config, filter=filter, **options):
            if not filter or saved.config["configurable"]["checkpoint_ns"] == "":
                yield saved


class Locked(InMemorySaver):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def list(self, config, **options):
        with self.lock:
            yield from super().list(config, **options)

    def put_writes(self, *args):
        with self.lock:
            super().put_writes(*args)


class NoDeletion(InMemorySaver):
    def delete_thread(self, thread_id):
        raise NotImplementedError


class DeletesRootOnly(InMemorySaver):
    def delete_thread(self, thread_id):
        self.storage[thread_id].pop("", None)


class Needs(InMemorySaver):
    def put(self, config, *args):
        assert config["configurable"]["actor_id"]
        return super().put(config, *args)


MEMORY = {**SOUND, "versioned_blobs": True}
if not SETTLED_HOST:
    MEMORY["write_order"] = "put order"


@pytest.mark.parametrize(
    ("saver_class", "seen", "to_write"),
    [
        (NoRunId, {"keeps_run_id": False}, ()),
        (NoTaskPath, {"write_order": "task_id" if SETTLED_HOST else "put order"}, ()),
        (IndexAsText, {"keeps_task_order": False}, ()),
        (NoEarlyWrites, {"keeps_early_writes": False, "reput_keeps_writes": False}, ()),
        (
            RefusesAgain,
            {"reput": "fails", "reput_keeps_writes": None, "reput_moves_parent": None},
            (),
        ),
        (IgnoresAgain, {"reput": "ignored", "reput_moves_parent": False}, ()),
        (ListsTwice, {"reput": "lists twice"}, ()),
        (CountedVersions, {"keeps_branches_apart": False}, ()),
        (LastPut, {"head": "last put"}, ()),
        (RootOnly, {"lists_all_namespaces": False}, ("_list_namespaces",)),
        (OneThreadOnly, {"lists_all_threads": False, "filters": "fails"}, ("_list_run_threads",)),
        (NoFilter, {"filters": "more"}, ()),
        (RunsOfRootOnly, {"filters": "less"}, ("_list_run_threads",)),
        (Locked, {"open_list_blocks": True}, ()),
        (Needs, {"config_keys": ("actor_id", "checkpoint_ns")}, ("_checkpoint_config",)),
    ],
)
def test_a_saver_with_one_quirk(saver_class, seen, to_write):
    report = probe_saver(saver_class(), patience=0.3)
    assert answers(report) == {**MEMORY, **seen}, report.failures
    written = [hook for hook, verdict in verdicts(report).items() if verdict == "write it"]
    assert written == [
        hook for hook in verdicts(report) if hook in ("_delete_checkpoint_rows", *to_write)
    ]


@pytest.mark.parametrize("saver_class", [NoDeletion, DeletesRootOnly])
def test_what_cannot_be_deleted_is_named(saver_class):
    saver = saver_class()
    report = probe_saver(saver)
    assert report.deletes_threads is False
    assert [*report.left_behind] == stored(saver)[0]
    assert report.left_behind[0] in str(report)


def test_prune_cleans_up_where_delete_thread_does_not_exist():
    class Mixed(DeltaInMemorySaver):
        delete_thread = NoDeletion.delete_thread

    saver = Mixed()
    assert probe_saver(saver).left_behind == ()
    assert stored(saver) == ([], [], [])


class LosesMetadata(InMemorySaver):
    def put(self, config, checkpoint, metadata, new_versions):
        seen = self.seen = getattr(self, "seen", set())
        metadata = {} if checkpoint["id"] in seen else metadata
        seen.add(checkpoint["id"])
        return super().put(config, checkpoint, metadata, new_versions)


def test_the_default_copy_is_tried_and_compared():
    (advice,) = (
        each for each in probe_saver(LosesMetadata()).hooks if each.hook == "_copy_checkpoint_rows"
    )
    assert (advice.verdict, advice.why) == ("write it", "metadata of a copied row differs")


def test_a_question_that_raises_does_not_end_the_probe():
    class Fragile(InMemorySaver):
        def put_writes(self, config, writes, task_id, task_path=""):
            if len(writes) > 10:
                raise OverflowError("too many")
            super().put_writes(config, writes, task_id, task_path)

    saver = Fragile()
    report = probe_saver(saver)
    assert report.write_order is report.keeps_task_order is None
    assert report.failures["keeps_task_order"] == "OverflowError: too many"
    assert report.head == "greatest id"
    assert stored(saver) == ([], [], [])


def test_each_side_refuses_a_saver_of_the_other():
    class SyncOnly(InMemorySaver):
        async def aput(self, *args):
            raise NotImplementedError

    class AsyncOnly(InMemorySaver):
        def put(self, *args):
            raise NotImplementedError

    with pytest.raises(TypeError, match="AsyncOnly has no sync methods: use await aprobe_saver"):
        probe_saver(AsyncOnly())
    with pytest.raises(TypeError, match="SyncOnly has no async methods: use probe_saver"):
        asyncio.run(aprobe_saver(SyncOnly()))


def test_given_keys_stand_in_every_config():
    class Insists(InMemorySaver):
        def get_tuple(self, config):
            assert config["configurable"]["tenant"] == "mine"
            return super().get_tuple(config)

    report = probe_saver(Insists(), config_keys={"tenant": "mine"})
    assert report.config_keys == ("tenant", "checkpoint_ns")
    assert not report.failures


def test_an_interrupted_probe_cleans_up():
    class Interrupted(InMemorySaver):
        def delete_thread(self, thread_id):
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            super().delete_thread(thread_id)

    saver = Interrupted()
    saver.interrupted = False
    with pytest.raises(KeyboardInterrupt):
        probe_saver(saver)
    assert stored(saver) == ([], [], [])


def test_a_report_is_a_table_with_and_without_rich(monkeypatch):
    report = probe_saver(RootOnly())
    drawn = [str(report)]

    def without_rich(name):
        raise ImportError(name)

    monkeypatch.setattr(_findings, "import_module", without_rich)
    drawn.append(str(report))
    for page in drawn:
        assert "RootOnly, sync side" in page
        for question, _, _ in report.rows():
            assert question in page
        assert "_list_namespaces" in page
        assert "NEWEST_ID_IS_HEAD = True" in page
    assert max(map(len, drawn[1].splitlines())) < 160


def test_every_finding_is_asked_for_and_told():
    report = probe_saver(InMemorySaver())
    names = {f.name for f in fields(report)} - {"saver", "side", "hooks", "failures", "left_behind"}
    assert names == {*SOUND} - {"left_behind"}
    assert len(report.rows()) == len(names)
    assert all(getattr(report, name) is not None for name in names)
