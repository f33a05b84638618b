"""Threads that are pruned without a plan: each as a plan would, and none that needs one."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

from delta_mixin import CleanupFailedError
from delta_mixin.adapters import _postgres_bodies, _postgres_settled, postgres
from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.testing import histories, strategies, writing
from delta_mixin.testing._bridge import open_saver

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def settled(dsn, *thread_ids):
    """Which threads the savers prune without a plan; the two of them agree. Undone afterwards."""

    class UndoError(Exception):
        pass

    async def on_the_async_side():
        async with AsyncDeltaPostgresSaver.from_conn_string(dsn) as saver:
            try:
                async with saver._acleanup_scope(thread_ids):
                    raise UndoError(await saver._aprune_settled_threads(thread_ids))
            except UndoError as done:
                return done.args[0]

    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        try:
            with saver._cleanup_scope(thread_ids):
                raise UndoError(saver._prune_settled_threads(thread_ids))
        except UndoError as done:
            found = done.args[0]
    assert asyncio.run(on_the_async_side()) == found
    return sorted(found)


def rows_without_thread(rows_of, dsn, thread_id):
    return {table: [row[1:] for row in rows] for table, rows in rows_of(dsn, thread_id).items()}


def assert_pruned_as_planned(dsn, rows_of, names):
    """Prune threads as a fleet, and twins of them with plans; returns which were settled."""
    done = settled(dsn, *names)
    with psycopg.connect(dsn) as conn:
        for table in TABLES:
            conn.execute(
                f"INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object("
                f"'thread_id', 'twin of ' || t.thread_id))).* FROM {table} t"
            )
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune([*names, "nobody"])
        saver.prune([f"twin of {name}" for name in names], on_plan=lambda plan: None)
    for name in names:
        pruned = rows_without_thread(rows_of, dsn, name)
        assert pruned == rows_without_thread(rows_of, dsn, f"twin of {name}"), name
    return done


@st.composite
def flat_histories(draw):
    """Threads of one namespace, most of them without a delta channel."""
    cadence = draw(st.sampled_from([None, None, 1, 2]))
    used = [histories.Channel("note", kind="plain"), histories.Channel("other", kind="plain")]
    if cadence is not None:
        used.append(histories.Channel("log", snapshot_every=cadence))
    step = strategies.steps([channel.name for channel in used], [""])
    return histories.ThreadHistory(tuple(used), tuple(draw(st.lists(step, max_size=12))))


def test_random_threads(server, fresh_schema, rows_of):
    """The schema serves all examples."""
    seen = {True: 0, False: 0}
    with fresh_schema(server) as dsn:

        @given(st.lists(flat_histories() | strategies.thread_histories(), min_size=2, max_size=4))
        def law(drawn):
            with psycopg.connect(dsn, autocommit=True) as conn:
                conn.execute(f"TRUNCATE {', '.join(TABLES)}")
            names = [f"t{number}" for number in range(len(drawn))]
            with open_saver(lambda: PostgresSaver.from_conn_string(dsn)) as view:
                for name, history in zip(names, drawn, strict=True):
                    writing.write_history(view, history, name)
            stored = {row[0] for row in rows_of(dsn)["checkpoints"]}
            done = assert_pruned_as_planned(dsn, rows_of, sorted(stored)) if stored else ()
            for name in stored:
                seen[name in done] += 1

        law()
    assert min(seen.values()) > 5, seen


# -- what settles a thread ---------------------------------------------------------------------


@pytest.fixture
def change(dsn):
    """Runs SQL on the tables."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn.execute


@pytest.fixture
def plain(dsn, threads):
    """Two plain threads; the ids of their checkpoints, oldest first."""
    with psycopg.connect(dsn) as conn:
        return threads.write_threads(conn, ["t", "other"], 25)


HEAD = "checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints) AND thread_id = 't'"
UNSETTLING = {
    "a format before 4": "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{v}', '3') "
    f"WHERE {HEAD}",
    "no format": f"UPDATE checkpoints SET checkpoint = checkpoint - 'v' WHERE {HEAD}",
    "counters": "UPDATE checkpoints SET metadata = metadata || "
    f"""'{{"counters_since_delta_snapshot": {{"messages": [1, 1]}}}}' WHERE {HEAD}""",
    "early counters": "UPDATE checkpoints SET metadata = metadata || "
    f"""'{{"delta_updates_since_snapshot": {{"messages": 1}}}}' WHERE {HEAD}""",
    "written by LangGraph.js": "UPDATE checkpoints SET metadata = metadata || "
    f"""'{{"delta_writes_versioned": true}}' WHERE {HEAD}""",
    "a base row": "UPDATE checkpoints SET metadata = metadata || "
    f"""'{{"delta_mixin_squashed": "1"}}' WHERE {HEAD}""",
    "no versions": "UPDATE checkpoints SET checkpoint = "
    f"jsonb_set(checkpoint, '{{channel_versions}}', '{{}}') WHERE {HEAD}",
    "a channel without a value": "UPDATE checkpoints SET checkpoint = "
    f"""jsonb_set(checkpoint, '{{channel_versions,log}}', '"7"') WHERE {HEAD}""",
    "a null inline": "UPDATE checkpoints SET checkpoint = "
    f"jsonb_set(checkpoint, '{{channel_values,step}}', 'null') WHERE {HEAD}",
    "a lost blob": "DELETE FROM checkpoint_blobs WHERE thread_id = 't' AND channel = 'messages' "
    "AND version = (SELECT max(version) FROM checkpoint_blobs)",
    "an empty blob": "UPDATE checkpoint_blobs SET type = 'empty' WHERE thread_id = 't' "
    "AND version = (SELECT max(version) FROM checkpoint_blobs)",
    "a stored None": "UPDATE checkpoint_blobs SET type = 'null' WHERE thread_id = 't' "
    "AND version = (SELECT max(version) FROM checkpoint_blobs)",
    "a subgraph": "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint) "
    "VALUES ('t', 'memory', '1', '{}')",
}


def test_a_plain_thread_is(dsn, plain):
    assert settled(dsn, "t", "other", "nobody") == ["other", "t"]


def test_on_every_kind_of_connection(dsn, plain, call, ids_of, monkeypatch, orphans_of):
    monkeypatch.setattr(_postgres_bodies, "list_rows", None)
    call(dsn, "prune", ["t", "other"])
    assert ids_of(dsn, "t") == ids_of(dsn, "other") == plain[-1:]
    assert orphans_of(dsn) == {"writes": 0, "blobs": 0}


@pytest.mark.parametrize("what", UNSETTLING)
def test_what_needs_a_plan_is_left_to_it(dsn, plain, change, rows_of, what):
    assert change(UNSETTLING[what]).rowcount == 1
    assert assert_pruned_as_planned(dsn, rows_of, ["t", "other"]) == ["other"]


@pytest.mark.parametrize("channel", ["branch:to:node", "__start__"])
def test_a_channel_that_no_reader_rebuilds_does_not_matter(dsn, plain, change, rows_of, channel):
    change(
        "UPDATE checkpoints SET checkpoint = "
        f"""jsonb_set(checkpoint, '{{channel_versions,{channel}}}', '"7"') WHERE {HEAD}"""
    )
    assert assert_pruned_as_planned(dsn, rows_of, ["t", "other"]) == ["other", "t"]


@pytest.mark.parametrize("parent", ["''", "checkpoint_id", "'gone'", "NULL"])
def test_heads_lose_the_parents_that_plans_would_clear(dsn, plain, change, rows_of, parent):
    change(f"UPDATE checkpoints SET parent_checkpoint_id = {parent} WHERE {HEAD}")
    assert assert_pruned_as_planned(dsn, rows_of, ["t", "other"]) == ["other", "t"]


def test_a_delta_thread_at_its_snapshot_is(dsn, threads, rows_of):
    """Its head holds the value; the writes above it are nobody's any more."""
    with psycopg.connect(dsn) as conn:
        threads.write_threads(conn, ["at"], 21, snapshot_every=10)
        threads.write_threads(conn, ["past"], 25, snapshot_every=10)
    assert assert_pruned_as_planned(dsn, rows_of, ["at", "past"]) == ["at"]


@pytest.mark.parametrize(("version", "collation"), [(18, "C"), (15, "und-x-icu")])
def test_the_newest_is_the_greatest_id_by_its_bytes(
    server_of, fresh_schema, ids_of, version, collation
):
    """As for the planner; the order of a language has `a` before `B`."""
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with fresh_schema(server_of(version)) as dsn:
        with psycopg.connect(dsn) as conn:
            conn.execute(
                f'ALTER TABLE checkpoints ALTER checkpoint_id TYPE text COLLATE "{collation}"'
            )
        with DeltaPostgresSaver.from_conn_string(dsn) as saver:
            for checkpoint_id in ("B", "a", "C"):
                saved = {**empty_checkpoint(), "v": 4, "id": checkpoint_id}
                saved |= {"channel_versions": {"step": "1"}, "channel_values": {"step": 1}}
                saver.put(config, saved, {"source": "loop"}, {"step": "1"})
            assert [key.checkpoint_id for key in saver.plan_prune(["t"])[0].kept] == ["a"]
            assert settled(dsn, "t") == ["t"]
            saver.prune(["t", "nobody"])
        assert ids_of(dsn, "t") == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {"on_plan": lambda plan: None},
        {"keep_last": 2},
        {"pinned": ["no such checkpoint"]},
        {"delta": "skip"},
        {"strategy": "delete"},
    ],
)
def test_a_prune_that_asks_for_more_plans(dsn, plain, monkeypatch, options):
    def refuse(thread_ids):
        raise AssertionError

    monkeypatch.setattr(postgres, "prune_settled", refuse)
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"], **options)
        with pytest.raises(AssertionError):
            saver.prune(["t", "other"])


@pytest.mark.parametrize("hook", ["_list_checkpoint_rows", "_delete_checkpoint_rows"])
def test_a_hook_of_the_savers_own_is_not_passed_over(dsn, plain, hook):
    called = []

    class Archiving(DeltaPostgresSaver):
        pass

    def own(self, *args):
        called.append(args)
        return getattr(super(Archiving, self), hook)(*args)

    setattr(Archiving, hook, own)
    with Archiving.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])
    assert called


def test_declared_channels_are_planned(dsn, plain, monkeypatch):
    class Declaring(DeltaPostgresSaver):
        DELTA_CHANNELS = ("log",)

    monkeypatch.setattr(postgres, "prune_settled", None)
    with Declaring.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])


# -- beside others -----------------------------------------------------------------------------


def meanwhile(monkeypatch, do, times=99):
    """Do something between the sweep of settled threads and the look that follows it."""
    original = _postgres_settled.prune_settled

    def prune_settled(thread_ids):
        nonlocal times
        body, answer = original(thread_ids), None
        while True:
            try:
                statement = body.send(answer)
            except StopIteration as done:
                return done.value
            answer = yield statement
            if "DELETE" in statement.text and times:
                times -= 1
                do()

    monkeypatch.setattr(postgres, "prune_settled", prune_settled)


def put_child(dsn, parent):
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}
    with DeltaPostgresSaver.from_conn_string(dsn) as other:
        base = other.get_tuple(config).checkpoint
        saved = {**base, "id": empty_checkpoint()["id"]}
        other.put(config, saved, {"source": "fork", "parents": {}}, {})
        other.put_writes(
            {"configurable": {**config["configurable"], "checkpoint_id": saved["id"]}},
            [("messages", ["pending"])],
            "task",
        )
        return saved["id"]


def test_rows_that_a_run_appends_meanwhile_stay(dsn, plain, ids_of, monkeypatch, orphans_of):
    added = []
    meanwhile(monkeypatch, lambda: added.append(put_child(dsn, plain[-1])), times=1)
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])
        saved = saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})
    # Its parent is kept, so nothing has to be planned anew.
    assert ids_of(dsn, "t") == [plain[-1], *added]
    assert ids_of(dsn, "other") == [plain[-1]]
    assert saved.checkpoint["channel_values"]["messages"] == ["x" * 50]
    assert [value for _, _, value in saved.pending_writes] == [["pending"]]
    assert orphans_of(dsn) == {"writes": 0, "blobs": 0}


def test_a_fork_from_a_doomed_checkpoint_keeps_its_parent_until_it_is_planned(
    dsn, plain, ids_of, monkeypatch
):
    forks = []
    meanwhile(monkeypatch, lambda: forks.append(put_child(dsn, plain[13])), times=1)
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])
    # The fork is the newest now, and holds its values itself.
    assert ids_of(dsn, "t") == forks
    assert ids_of(dsn, "other") == [plain[-1]]


def test_without_looking_it_would_hang_on_nothing(dsn, plain, monkeypatch, ids_of):
    monkeypatch.setattr(_postgres_settled, "_HANGING", "SELECT WHERE false")
    forks = []
    meanwhile(monkeypatch, lambda: forks.append(put_child(dsn, plain[13])), times=1)
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])
        saved = saver.get_tuple({"configurable": {"thread_id": "t", "checkpoint_ns": ""}})
    assert saved.parent_config["configurable"]["checkpoint_id"] == plain[13]
    assert plain[13] not in ids_of(dsn, "t")


def test_threads_that_are_forked_again_and_again_are_planned(dsn, plain, ids_of, monkeypatch):
    forks = []
    meanwhile(monkeypatch, lambda: forks.append(put_child(dsn, plain[len(forks)])))
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])
    assert len(forks) == 3
    assert ids_of(dsn, "t") == forks[-1:]
    assert ids_of(dsn, "other") == [plain[-1]]


def test_a_thread_that_another_cleanup_holds_is_told(dsn, plain, ids_of):
    impatient = dsn.replace("options='", "options='-c lock_timeout=150ms ")
    with (
        DeltaPostgresSaver.from_conn_string(dsn) as saver,
        saver._cleanup_scope(["t"]),
        DeltaPostgresSaver.from_conn_string(impatient) as other,
        pytest.raises(CleanupFailedError) as caught,
    ):
        other.prune(["t", "other"])
    assert caught.value.threads == ("t",)
    assert ids_of(dsn, "other") == [plain[-1]]


def test_tables_are_swept_in_the_order_of_the_hosts_delete_thread(dsn, plain, change):
    change("CREATE TABLE swept (n serial, what text)")
    change(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO swept (what) VALUES (TG_TABLE_NAME || ' ' || TG_OP); "
        "RETURN coalesce(NEW, OLD); END $$"
    )
    for table in TABLES:
        change(
            f"CREATE TRIGGER note BEFORE DELETE OR UPDATE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION note()"
        )
    with DeltaPostgresSaver.from_conn_string(dsn) as saver:
        saver.prune(["t", "other"])
    order = [what for (what,) in change("SELECT what FROM swept GROUP BY what ORDER BY min(n)")]
    assert order == [
        "checkpoints DELETE",
        "checkpoint_blobs DELETE",
        "checkpoint_writes DELETE",
        "checkpoints UPDATE",
    ]
