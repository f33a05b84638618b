"""Threads in all five savers, each of them strict, and ways to damage what they store."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from delta_mixin import CheckpointRow, SeveredHistoryError, StrictDeltaHistoryMixin
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.adapters.sqlite import AsyncDeltaSqliteSaver, DeltaSqliteSaver
from delta_mixin.testing._bridge import open_saver
from delta_mixin.verification import averify_thread, verify_thread

TESTS = Path(__file__).parents[1]


def _load(folder, name="conftest"):
    path = TESTS / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_corpus = _load("corpus")
_postgres = _load("postgres")
server_of, server = _postgres.server_of, _postgres.server
fresh_schema, dsn = _postgres.fresh_schema, _postgres.dsn

THREADS = [
    pytest.param((release, thread), id=f"{release}-{thread}")
    for release in _corpus.RELEASES
    for thread in sorted(_corpus.EXPECTED[release]["threads"])
]


class StrictMemory(StrictDeltaHistoryMixin, DeltaInMemorySaver):
    pass


class StrictSqlite(StrictDeltaHistoryMixin, DeltaSqliteSaver):
    pass


class StrictAsyncSqlite(StrictDeltaHistoryMixin, AsyncDeltaSqliteSaver):
    pass


class StrictPostgres(StrictDeltaHistoryMixin, DeltaPostgresSaver):
    pass


class StrictAsyncPostgres(StrictDeltaHistoryMixin, AsyncDeltaPostgresSaver):
    pass


class MemoryStore:
    """The dictionaries of the in-memory saver, to damage them."""

    has_blobs = True

    def __init__(self, saver):
        self.saver = saver

    def drop_rows(self, thread, ns, ids):
        for i in ids:
            self.saver.storage[thread][ns].pop(i)
            self.saver.writes.pop((thread, ns, i), None)
        used = {
            (ns, channel, version)
            for ns, rows in self.saver.storage[thread].items()
            for row in rows.values()
            for channel, version in self.saver.serde.loads_typed(row[0])["channel_versions"].items()
        }
        for key in [k for k in self.saver.blobs if k[0] == thread and k[1:] not in used]:
            del self.saver.blobs[key]

    def set_parent(self, thread, ns, checkpoint_id, parent):
        row = self.saver.storage[thread][ns][checkpoint_id]
        self.saver.storage[thread][ns][checkpoint_id] = (row[0], row[1], parent)

    def drop_writes(self, thread, ns, checkpoint_id, channel, keep=0):
        writes = self.saver.writes[thread, ns, checkpoint_id]
        for key in [k for k, write in writes.items() if write[1] == channel][keep:]:
            del writes[key]

    def drop_snapshots(self, thread):
        dropped = set()
        for key, blob in list(self.saver.blobs.items()):
            loaded = None if blob[0] == "empty" else self.saver.serde.loads_typed(blob)
            if key[0] == thread and type(loaded).__name__ == "_DeltaSnapshot":
                del self.saver.blobs[key]
                dropped.add(key[1:3])
        return dropped

    def add_blob(self, thread, ns):
        self.saver.blobs[thread, ns, "log", "nobody's"] = ("empty", b"")


class SqliteStore:
    """A file of the SQLite savers, to damage it."""

    has_blobs = False
    writes = "writes"

    def __init__(self, path):
        self.path = path

    def execute(self, statement, *parameters):
        with closing(sqlite3.connect(self.path)) as conn:
            found = conn.execute(statement, parameters).fetchall()
            conn.commit()
            return found

    def drop_rows(self, thread, ns, ids):
        for table in ("checkpoints", self.writes):
            for i in ids:
                self.execute(
                    f"DELETE FROM {table} "
                    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                    *(thread, ns, i),
                )

    def set_parent(self, thread, ns, checkpoint_id, parent):
        self.execute(
            "UPDATE checkpoints SET parent_checkpoint_id = ? "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
            *(parent, thread, ns, checkpoint_id),
        )

    def drop_writes(self, thread, ns, checkpoint_id, channel, keep=0):
        where = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? AND channel = ?"
        key = (thread, ns, checkpoint_id, channel)
        found = self.execute(f"SELECT task_id, idx FROM {self.writes} {where}", *key)
        for task_id, idx in sorted(found)[keep:]:
            statement = f"DELETE FROM {self.writes} {where} AND task_id = ? AND idx = ?"
            self.execute(statement, *key, task_id, idx)

    def drop_snapshots(self, thread):
        serde = JsonPlusSerializer()
        dropped = set()
        for ns, i, type_, blob in self.execute(
            "SELECT checkpoint_ns, checkpoint_id, type, checkpoint FROM checkpoints "
            "WHERE thread_id = ?",
            thread,
        ):
            checkpoint = serde.loads_typed((type_, blob))
            values = checkpoint["channel_values"]
            snapshots = {c for c, v in values.items() if type(v).__name__ == "_DeltaSnapshot"}
            if snapshots:
                checkpoint["channel_values"] = {c: values[c] for c in values.keys() - snapshots}
                self.execute(
                    "UPDATE checkpoints SET type = ?, checkpoint = ? "
                    "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                    *serde.dumps_typed(checkpoint),
                    *(thread, ns, i),
                )
                dropped |= {(ns, c) for c in snapshots}
        return dropped


class PostgresStore(SqliteStore):
    """The tables of the Postgres savers, to damage them."""

    has_blobs = True
    writes = "checkpoint_writes"

    def execute(self, statement, *parameters):
        with psycopg.connect(self.path) as conn:
            cursor = conn.execute(statement.replace("?", "%s"), parameters)
            return cursor.fetchall() if cursor.description else []

    def drop_rows(self, thread, ns, ids):
        super().drop_rows(thread, ns, ids)
        self.execute(
            "DELETE FROM checkpoint_blobs b WHERE thread_id = ? AND NOT EXISTS ("
            "SELECT FROM checkpoints c WHERE c.thread_id = b.thread_id "
            "AND c.checkpoint_ns = b.checkpoint_ns "
            "AND c.checkpoint -> 'channel_versions' ->> b.channel = b.version)",
            thread,
        )

    def drop_snapshots(self, thread):
        serde = JsonPlusSerializer()
        dropped = set()
        for ns, channel, version, type_, blob in self.execute(
            "SELECT checkpoint_ns, channel, version, type, blob FROM checkpoint_blobs "
            "WHERE thread_id = ? AND type <> 'empty'",
            thread,
        ):
            if type(serde.loads_typed((type_, blob))).__name__ == "_DeltaSnapshot":
                self.execute(
                    "DELETE FROM checkpoint_blobs WHERE thread_id = ? AND checkpoint_ns = ? "
                    "AND channel = ? AND version = ?",
                    *(thread, ns, channel, version),
                )
                dropped.add((ns, channel))
        return dropped

    def add_blob(self, thread, ns):
        self.execute(
            "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type) "
            "VALUES (?, ?, 'log', 'nobody''s', 'empty')",
            *(thread, ns),
        )


class Subject:
    """A thread of the corpus in a saver of our own.

    Attributes:
        view: The saver, through one synchronous view.
        store: What it stores, to damage it.
        id: The thread.
        delta: Its delta channels, known from the graph.
    """

    def __init__(self, view, store, thread, delta):
        self.view, self.store, self.id, self.delta = view, store, thread, delta

    def copied(self, name):
        """A copy of the thread, as a subject of its own."""
        self.view.copy_thread(self.id, name)
        return Subject(self.view, self.store, name, self.delta)

    def verify(self, thread=None, channels=()):
        """The report, the same from both sides."""
        thread = thread or self.id
        report = verify_thread(self.view.saver, thread, channels=channels)
        again = averify_thread(self.view.saver, thread, channels=channels)
        assert self.view.run(again) == report
        return report

    def stored(self, thread=None):
        """Namespace and id of each checkpoint."""
        found = self.view.list(self.view.config(thread or self.id, None))
        return [(t.config["configurable"]["checkpoint_ns"], t.checkpoint["id"]) for t in found]

    def read(self, thread, ns, checkpoint_id, *, severed="severed"):
        """The histories of the channels that a host of any release asks for, by channel."""
        config = self.view.config(thread, ns, checkpoint_id)
        checkpoint = self.view.get_tuple(config).checkpoint
        found = {}
        for channel in self.delta - checkpoint["channel_values"].keys():
            try:
                found |= self.view.get_delta_channel_history(config=config, channels=[channel])
            except SeveredHistoryError:
                found[channel] = severed
        return found

    def heads(self):
        """Per namespace, the newest checkpoint."""
        newest = {}
        for ns, i in self.stored():
            newest[ns] = max(i, newest.get(ns, ""))
        return newest

    def row(self, ns, checkpoint_id):
        return CheckpointRow.from_tuple(
            self.view.get_tuple(self.view.config(self.id, ns, checkpoint_id))
        )

    def chain(self, ns, checkpoint_id):
        """The checkpoint and its ancestors, nearest first."""
        found = []
        while checkpoint_id is not None:
            found.append(self.row(ns, checkpoint_id))
            checkpoint_id = found[-1].parent_id
        return found

    def unchecked(self, ns, checkpoint_id):
        """What the saver without the strict mixin reads, for channels a host of today asks for."""
        config = self.view.config(self.id, ns, checkpoint_id)
        checkpoint = self.view.get_tuple(config).checkpoint
        written = self.delta & checkpoint["channel_versions"].keys()
        channels = sorted(written - checkpoint["channel_values"].keys())
        if not channels:
            return {}
        host = super(StrictDeltaHistoryMixin, self.view.saver)
        arguments = {"config": config, "channels": channels}
        if self.view.base_side == "async":
            return self.view.run(host.aget_delta_channel_history(**arguments))
        return host.get_delta_channel_history(**arguments)

    def read_all(self, thread=None):
        thread = thread or self.id
        return {key: self.read(thread, *key) for key in self.stored(thread)}


@pytest.fixture
def open_subject(tmp_path, request):
    """Opens a thread of the corpus in a saver of the given kind."""

    @contextmanager
    def open_subject(kind, release, thread):
        # A copy, as opening a file can change it.
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        file.write_bytes((_corpus.FOLDER / f"langgraph-{release}.sqlite").read_bytes())
        recorded = _corpus.EXPECTED[release]["threads"][thread]["delta"]
        delta = frozenset(c for names in recorded.values() for c in names)
        if kind == "memory":
            make = StrictMemory
        elif "sqlite" in kind:
            cls = StrictAsyncSqlite if "async" in kind else StrictSqlite

            def make():
                return cls.from_conn_string(str(file))

            store = SqliteStore(file)
        else:
            dsn = request.getfixturevalue("dsn")
            with PostgresSaver.from_conn_string(dsn) as saver:
                _corpus.load_into_memory(file, thread, saver)
            cls = StrictAsyncPostgres if "async" in kind else StrictPostgres

            def make():
                return cls.from_conn_string(dsn)

            store = PostgresStore(dsn)
        with open_saver(make) as view:
            if kind == "memory":
                _corpus.load_into_memory(file, thread, view.saver)
                store = MemoryStore(view.saver)
            elif "sqlite" in kind:
                view.list(view.config(thread))  # migrates the file before another one writes to it
            yield Subject(view, store, thread, delta)

    return open_subject


@pytest.fixture(params=_corpus.RELEASES)
def release(request):
    return request.param


KINDS = ("memory", "sqlite", "async_sqlite", "postgres", "async_postgres")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=THREADS)
def corpus_thread(request):
    """Release and name of a thread of the corpus."""
    return request.param


@pytest.fixture
def subject(open_subject, kind, corpus_thread):
    with open_subject(kind, *corpus_thread) as subject:
        yield subject
