"""A run deletion reads few of the rows below a run; the database tells which others matter."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import psycopg
import pytest
from hypothesis import given, settings
from langgraph.checkpoint.postgres import PostgresSaver

from delta_mixin import KnownChannels
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.testing import strategies, write_history
from delta_mixin.testing._bridge import open_saver

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

KNOWN = KnownChannels("", frozenset({"m", "k"}), frozenset({"__start__", 'branch:"odd"'}))

# By checkpoint id: versions, metadata, and whether the row knows more than `KNOWN`.
ROWS = {
    "fewer": ({"m": "1"}, {}, False),
    "all": ({"m": "1", "k": "1", "__start__": "1", 'branch:"odd"': "1"}, {}, False),
    "more": ({"m": "1", "other": "1"}, {}, True),
    "more of the host's": ({"m": "1", "branch:new": "1"}, {}, True),
    "only more": ({"other": "1"}, {}, True),
    "like a known one": ({"M": "1"}, {}, True),
    "null version": ({"other": None}, {}, True),
    "none": ({}, {}, True),
    "no versions": (None, {}, True),
    "array": (["m"], {}, True),
    "text": ("m", {}, True),
    "number": (1, {}, True),
    "counts a known one": ({"m": "1"}, {"counters_since_delta_snapshot": {"m": [1, 1]}}, False),
    "counts": ({"m": "1"}, {"counters_since_delta_snapshot": {"__start__": [1, 1]}}, True),
    "counts nothing": ({"m": "1"}, {"counters_since_delta_snapshot": {'branch:"odd"': 0}}, True),
    "counted": ({"m": "1"}, {"delta_updates_since_snapshot": {"__start__": 1}}, True),
    "both names": (
        {"m": "1"},
        {
            "counters_since_delta_snapshot": {"m": [1, 1]},
            "delta_updates_since_snapshot": {'branch:"odd"': 1},
        },
        True,
    ),
    "odd counters": ({"m": "1"}, {"counters_since_delta_snapshot": 3}, False),
    "null counters": ({"m": "1"}, {"counters_since_delta_snapshot": None}, False),
    "named elsewhere": ({"m": "1"}, {"__start__": {"x": 1}}, False),
}


def tell(dsn, side, requests):
    """What the saver tells of these rows."""
    if side == "sync":
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            return saver._list_rows_beyond(requests)

    async def ask():
        async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
            return await saver._alist_rows_beyond(requests)

    return asyncio.run(ask())


@pytest.fixture
def rows(dsn):
    with psycopg.connect(dsn) as conn:
        for thread_id in ("t", "u", "v"):
            for ns in ("", "call"):
                for checkpoint_id, (versions, metadata, _) in ROWS.items():
                    checkpoint = {} if versions is None else {"channel_versions": versions}
                    conn.execute(
                        "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, "
                        "checkpoint, metadata) VALUES (%s, %s, %s, %s, %s)",
                        (
                            *(thread_id, ns, checkpoint_id),
                            *(json.dumps(checkpoint), json.dumps(metadata)),
                        ),
                    )
    return dsn


@pytest.mark.parametrize("side", ["sync", "async"])
def test_rows_that_know_more_are_told(rows, side):
    more = sorted(i for i, (*_, beyond) in ROWS.items() if beyond)
    found = tell(rows, side, {"t": KNOWN, "u": KNOWN, "nobody": KNOWN})
    assert {t: sorted(ids) for t, ids in found.items()} == {"t": more, "u": more, "nobody": []}


def test_each_thread_has_a_namespace_and_channels_of_its_own(rows):
    nothing = KnownChannels("", frozenset(), frozenset())
    every = KnownChannels("call", frozenset(("m", "k", "other")), frozenset())
    found = tell(rows, "sync", {"t": nothing, "u": every})
    assert sorted(found["t"]) == sorted(ROWS)
    assert {"more", "counts", "counted"}.isdisjoint(found["u"])
    assert {"all", "more of the host's", "none", "text"} <= set(found["u"])


class ReadsAll(DeltaPostgresSaver):
    """Cannot tell."""

    def _list_rows_beyond(self, requests):
        return {}


class Records(DeltaPostgresSaver):
    """Keeps how many rows it was asked to read, and to tell of."""

    def __init__(self, conn):
        super().__init__(conn)
        self.read, self.told = 0, 0

    def _read_batch_rows(self, requests):
        self.read += sum(map(len, requests.values()))
        return super()._read_batch_rows(requests)

    def _list_rows_beyond(self, requests):
        self.told += len(requests)
        return super()._list_rows_beyond(requests)


def essence(plan):
    """A plan without the reasons and without readers' names, as not every reader is looked at."""
    severed = {replace(b, root="") for b in plan.severed}
    return replace(plan, kept=dict.fromkeys(plan.kept), delta_channels={}, severed=severed)


@pytest.mark.parametrize("delta", ["keep_history", "squash"])
def test_plans_are_those_of_reading_all(server, fresh_schema, delta):
    told = doomed = 0
    with fresh_schema(server) as dsn, psycopg.connect(dsn, autocommit=True) as conn:

        @settings(max_examples=200)
        @given(strategies.thread_histories(), strategies.run_selections())
        def law(history, runs):
            nonlocal told, doomed
            for table in TABLES:
                conn.execute(f"TRUNCATE {table}")
            with open_saver(lambda: PostgresSaver.from_conn_string(dsn)) as view:
                write_history(view, history, "t")
            few, every = Records(conn), ReadsAll(conn)
            plans = few.plan_delete_for_runs(runs, thread_ids=["t"], delta=delta)
            whole = every.plan_delete_for_runs(runs, thread_ids=["t"], delta=delta)
            assert list(map(essence, plans)) == list(map(essence, whole))
            told += few.told
            doomed += sum(len(plan.doomed) for plan in plans)

        law()
    assert told > 20
    assert doomed > 50


# The first row below replays from the last snapshot at a multiple of 7, which stays.
@pytest.mark.parametrize(("run", "doomed"), [(0, 7), (3, 5), (8, 4)])
def test_below_a_run_few_rows_are_read(dsn, threads, run, doomed):
    with psycopg.connect(dsn, autocommit=True) as conn:
        threads.write_threads(conn, ["t", "u"], 100, snapshot_every=7)
        saver = Records(conn)
        found = saver.plan_delete_for_runs([f"t-{run}", f"u-{run}"])
        assert [len(plan.doomed) for plan in found] == [doomed] * 2
        assert saver.told == 2
        assert saver.read < 20


class ListsElsewhere(Records):
    """Knows rows that its base knows nothing of."""

    def _list_rows_with_runs(self, thread_ids):
        return super()._list_rows_with_runs(thread_ids)


def test_a_class_that_lists_in_a_way_of_its_own_is_not_asked(dsn, threads):
    with psycopg.connect(dsn, autocommit=True) as conn:
        threads.write_threads(conn, ["t"], 100, snapshot_every=10)
        saver = ListsElsewhere(conn)
        (plan,) = saver.plan_delete_for_runs(["t-3"])
    assert len(plan.doomed) == 10
    assert saver.told == 0
    assert saver.read >= 60


@pytest.mark.parametrize("side", ["sync", "async"])
def test_a_thread_asked_for_twice_is_listed_once(dsn, threads, side):
    with psycopg.connect(dsn, autocommit=True) as conn:
        ids = threads.write_threads(conn, ["t"], 5)
        if side == "sync":
            listings = [
                DeltaPostgresSaver(conn)._list_checkpoint_rows(["t", "t"]),
                DeltaPostgresSaver(conn)._list_rows_with_runs(["t", "t"]),
            ]
        else:

            async def listed():
                async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
                    return [
                        await saver._alist_checkpoint_rows(["t", "t"]),
                        await saver._alist_rows_with_runs(["t", "t"]),
                    ]

            listings = asyncio.run(listed())
    assert [sorted(row.checkpoint_id for row in listing) for listing in listings] == [ids] * 2
