"""Run deletion that reads a few survivors plans what it plans when it reads all of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from delta_mixin import KnownChannels
from delta_mixin._sealing import QUESTIONS, ROWS_PER_READ
from delta_mixin._sweeping import SaverTraits
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.base_rows import SQUASHED
from delta_mixin.planner import plan_delete_for_runs

TELLS = SaverTraits(tells_beyond=True)


def plan(stand_in, *runs, traits=TELLS, squashing=False):
    planning = plan_delete_for_runs(
        "t", stand_in.views(), frozenset(runs), traits, {}, squashing=squashing
    )
    return stand_in.run(planning)


def essence(found):
    """A plan without the reasons and without readers' names, as not every reader is looked at."""
    severed = {replace(b, root="") for b in found.severed}
    return replace(found, kept=dict.fromkeys(found.kept), delta_channels={}, severed=severed)


# -- any thread --------------------------------------------------------------------------------

CHANNELS = ("m", "k", "__root__", "branch:to:x", "__start__")


@st.composite
def drawn_rows(draw, row):
    """Rows of a namespace: mostly one chain on which channels join in and get values."""
    mostly = st.sampled_from([True, True, True, False])
    once = st.integers(0, 11).map((5).__eq__)
    ids = [f"{number:02}" for number in range(draw(st.integers(3, 12)))]
    delta = draw(st.sets(st.sampled_from(CHANNELS)))
    known = draw(st.sets(st.sampled_from(CHANNELS), min_size=1))
    early = draw(st.integers(1, 4))
    rows = []
    for number, row_id in enumerate(ids):
        known = known | draw(st.sets(st.sampled_from(CHANNELS), max_size=1))
        versions = set() if draw(once) else known
        stored = {c for c in sorted(versions) if draw(st.booleans() if c in delta else mostly)}
        parent = ids[number - 1] if number else None
        if draw(once):
            parent = draw(st.sampled_from([*ids, "gone", None]))
        runs = "aabc" if number < early else "bccccccc"
        metadata = {"run_id": draw(st.sampled_from(runs))}
        if draw(once):
            metadata = {SQUASHED: draw(st.sampled_from(ids))}
        # The host counts channels that were never written, too. One with a name like the host's own
        # is delta where the row itself counts it.
        counted = [
            c for c in sorted(delta - stored) if c.startswith(("branch:", "__s")) or draw(mostly)
        ]
        rows.append(
            row(
                row_id,
                parent,
                source="loop" if draw(mostly) else "update",
                counters={c: [1, 1] for c in counted},
                versions=sorted(versions),
                populated=stored,
                snapshots=stored & delta,
                writes=draw(st.sets(st.sampled_from(CHANNELS))),
                v=3 if draw(once) else 4,
                **metadata,
            )
        )
    return rows


@pytest.mark.parametrize("squashing", [False, True])
def test_the_plan_is_the_same_for_any_thread(lean, row, squashing):
    questions = 0

    @settings(max_examples=300)
    @given(
        drawn_rows(row),
        st.sets(st.sampled_from("ab"), min_size=1),
        st.sampled_from([(), ("k",), ("branch:to:x",)]),
    )
    def law(rows, runs, declared):
        nonlocal questions
        traits = SaverTraits(declared=frozenset(declared))
        whole = plan(lean(rows), *runs, traits=traits, squashing=squashing)
        stand_in = lean(rows)
        telling = replace(traits, tells_beyond=True)
        few = plan(stand_in, *runs, traits=telling, squashing=squashing)
        questions += stand_in.reads["beyond"]
        assert essence(few) == essence(whole)

    law()
    assert questions > 50


# -- what is read ------------------------------------------------------------------------------


def test_below_a_snapshot_nothing_is_read(lean, chain):
    stand_in = lean(chain(90, every=10))
    found = plan(stand_in, "r3")
    assert [key.checkpoint_id for key in found.doomed] == [f"{i:03}" for i in range(30, 40)]
    # Their runs have to be known here; of the survivors below the first is read.
    assert stand_in.reads == {"metadata": 90, "checkpoint": 1, "beyond": 1}


def test_below_a_row_that_replays_a_channel_nothing_is_read(lean, chain):
    stand_in = lean(chain(90, every=16))
    found = plan(stand_in, "r3")
    assert [key.checkpoint_id for key in found.doomed] == ["030", "031"]
    # 040 replays from the snapshot at 032, which is opened; 041 to 047 go the same way.
    assert stand_in.reads == {"metadata": 90, "checkpoint": 2, "beyond": 1}


def test_a_channel_that_the_first_row_says_nothing_of_has_all_read(lean, row):
    """Open at the loop's rows without being counted, as an ephemeral one is; then not at an update.

    The update's reader rebuilds it, by the evidence of its writes.
    """
    rows = [row("0", versions=["k"], populated=["k"], run_id="a")]
    rows.append(row("1", "0", versions=["k"], populated=["k"], writes=["k"], run_id="b"))
    rows.append(row("2", "1", versions=["k"], source="update", writes=["k"], run_id="c"))
    rows.append(row("3", "2", versions=["k"], source="update", run_id="c"))
    stand_in = lean(rows)
    assert not plan(stand_in, "b").doomed
    assert stand_in.reads == {"metadata": 4, "checkpoint": 4, "writes": 4}


def test_so_does_a_first_row_without_versions(lean, row):
    rows = [row("0", snapshots=["m"], run_id="a"), row("1", "0", snapshots=["m"], run_id="b")]
    rows.append(row("2", "1", versions=(), run_id="c"))
    rows.append(row("3", "2", counters={"m": [1, 1]}, run_id="c"))
    stand_in = lean(rows)
    assert not plan(stand_in, "b").doomed
    assert stand_in.reads["beyond"] == 0


def test_what_one_branch_has_settled_is_looked_at_on_the_other(lean, row):
    names, counted = ["m", "k"], {"k": [1, 1]}
    rows = [row("0", versions=names, snapshots=names, run_id="a")]
    rows.append(row("1", "0", versions=names, snapshots=names, run_id="b"))
    rows.append(row("2", "1", versions=names, snapshots=names, run_id="c"))
    rows.append(row("3", "2", versions=names, snapshots=["m"], counters=counted, run_id="c"))
    # A branch of a graph without `k`, and of one that has it again.
    rows.append(row("4", "1", versions=["m"], snapshots=["m"], run_id="c"))
    rows.append(row("5", "4", versions=names, snapshots=["m"], counters=counted, run_id="c"))
    assert not plan(lean(rows), "b").doomed
    assert len(plan(lean(rows[:5]), "b").doomed) == 1


def test_a_channel_first_written_below_is_looked_at(lean, row, chain):
    rows = chain(40, every=10)
    later = [
        r._replace(channel_versions={"m": "1", "late": "1"}, populated=r.populated | {"late"})
        if r.checkpoint_id >= "030"
        else r
        for r in rows
    ]
    stand_in = lean(later)
    assert [key.checkpoint_id for key in plan(stand_in, "r1").doomed] == [
        f"{i:03}" for i in range(10, 20)
    ]
    # 020 seals, 030 knows one more channel, holds it, and seals again.
    assert stand_in.reads == {"metadata": 40, "checkpoint": 3, "beyond": 2}

    open_below = [
        r._replace(
            channel_versions={"m": "1", "late": "1"},
            metadata={**r.metadata, "counters_since_delta_snapshot": {"late": [1, 1]}},
        )
        if r.checkpoint_id >= "030"
        else r
        for r in rows
    ]
    assert not plan(lean(open_below), "r1").doomed  # `late` is rebuilt from the start on


def test_rows_looked_at_first_stay_roots(lean, chain):
    """020 replays from the snapshot at 015; 030 holds all that it knows, one channel more."""
    rows = [
        r._replace(channel_versions={"m": "1", "late": "1"}, populated=r.populated | {"late"})
        if r.checkpoint_id >= "030"
        else r
        for r in chain(40, every=15)
    ]
    stand_in = lean(rows)
    assert [key.checkpoint_id for key in plan(stand_in, "r1").doomed] == [
        f"{i:03}" for i in range(10, 15)
    ]
    assert stand_in.reads["beyond"] == 2


def test_channels_of_the_host_do_not_keep_a_row_from_sealing(lean, chain):
    def known(row):
        hosts = ["branch:to:a"] if row.checkpoint_id < "030" else ["branch:to:a", "branch:to:b"]
        return row._replace(channel_versions=dict.fromkeys(["m", "__start__", *hosts], "1"))

    stand_in = lean(map(known, chain(90, every=10)))
    assert len(plan(stand_in, "r1").doomed) == 10
    # Asked again with what the newest row names, once 030 has turned out to know one more.
    assert stand_in.reads == {"metadata": 90, "checkpoint": 3, "beyond": 2}


def test_one_that_is_counted_does(lean, row):
    counted = {"branch:odd": [1, 1]}
    names = ["m", "branch:odd"]
    rows = [row("0", versions=names, snapshots=names, run_id="a")]
    rows.append(row("1", "0", versions=names, snapshots=names, run_id="b"))
    rows.append(row("2", "1", versions=names, snapshots=["m"], counters=counted, run_id="c"))
    rows.append(row("3", "2", versions=names, snapshots=["m"], counters=counted, run_id="c"))
    assert not plan(lean(rows), "b").doomed
    rows[2] = row("2", "1", versions=names, snapshots=["m"], run_id="c")
    assert not plan(lean(rows), "b").doomed


def test_so_does_one_that_is_declared(lean, row):
    rows = [row("0", snapshots=["m"], run_id="a"), row("1", "0", snapshots=["m"], run_id="b")]
    rows.append(row("2", "1", snapshots=["m"], run_id="c"))
    rows.append(row("3", "2", versions=["m", "branch:odd"], snapshots=["m"], run_id="c"))
    declaring = replace(TELLS, declared=frozenset({"branch:odd"}))
    assert not plan(lean(rows), "b", traits=declaring).doomed
    assert len(plan(lean(rows), "b").doomed) == 1


def test_questions_come_to_an_end(lean, row):
    """Each row knows one channel more: what is in question after a few is read."""
    rows = [row("00", versions=["c0"], snapshots=["c0"], run_id="a")]
    for i in range(1, 40):
        names = [f"c{n}" for n in range(i + 1)]
        run = "b" if i == 1 else "c"
        rows.append(row(f"{i:02}", f"{i - 1:02}", versions=names, snapshots=names, run_id=run))
    stand_in = lean(rows)
    assert [key.checkpoint_id for key in plan(stand_in, "b").doomed] == ["01"]
    assert stand_in.reads["beyond"] == QUESTIONS
    assert stand_in.reads["checkpoint"] == 38


def test_few_rows_are_read_rather_than_all_asked_about(lean, chain):
    long = chain(20 * ROWS_PER_READ, every=10)
    stand_in = lean(long)
    plan(stand_in, "r30")
    below = len(long) - 310
    assert below * ROWS_PER_READ < len(long)
    assert stand_in.reads["beyond"] == 0
    assert stand_in.reads["checkpoint"] == below


def test_rows_that_a_backend_cannot_tell_of_are_read(lean, chain):
    stand_in = lean(chain(40, every=10))
    stand_in.beyond = lambda known: None
    assert len(plan(stand_in, "r1").doomed) == 10
    assert stand_in.reads["checkpoint"] == 20


# -- the hook ----------------------------------------------------------------------------------


class Telling(DeltaInMemorySaver):
    """Lists lean rows, records what it is asked, and tells that no row knows more channels."""

    VERSIONED_BLOBS = False  # so that nothing is read but for marking

    def __init__(self):
        super().__init__()
        self.asked = []
        self.read = []

    def _list_checkpoint_rows(self, thread_ids):
        return [
            type(r)(*r[:4], metadata=r.metadata) for r in super()._list_checkpoint_rows(thread_ids)
        ]

    def _list_rows_beyond(self, requests):
        self.asked.append(requests)
        return {**dict.fromkeys(requests, ()), "stranger": ["1"]}

    def _read_batch_rows(self, requests):
        self.read += map(len, requests.values())
        return super()._read_batch_rows(requests)


class Mute(Telling):
    """Leaves every thread out."""

    def _list_rows_beyond(self, requests):
        self.asked.append(requests)
        return {}


class ReadsElsewhere(Telling):
    """Reads in a way of its own, which the hook of its base knows nothing of."""

    def _read_checkpoint_rows(self, thread_id, keys):
        return super()._read_checkpoint_rows(thread_id, keys)


def filled(saver):
    for thread_id in ("a", "b"):
        config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        for number in range(5):
            versions = {"x": f"{number:04}", "__start__": "0000"}
            saved = {**empty_checkpoint(), "v": 4, "channel_versions": versions}
            saved["channel_values"] = {"x": number}
            metadata = {"source": "loop", "run_id": f"run-{number}"}
            config = saver.put(config, saved, metadata, {"x": versions["x"]})
    return saver


def lengths(saver):
    return [len(saver.storage[thread_id][""]) for thread_id in ("a", "b")]


@pytest.mark.parametrize("side", ["sync", "async"])
@pytest.mark.parametrize("saver_class", [Telling, Mute, ReadsElsewhere])
def test_the_hook_saves_reads_and_changes_nothing(saver_class, side):
    saver = filled(saver_class())
    if side == "sync":
        saver.delete_for_runs(["run-1"], thread_ids=["a", "b"])
    else:
        asyncio.run(saver.adelete_for_runs(["run-1"], thread_ids=["a", "b"]))
    assert lengths(saver) == [4, 4]
    known = KnownChannels("", frozenset({"x"}), frozenset({"__start__"}))
    asked = [] if saver_class is ReadsElsewhere else [{"a": known}, {"b": known}]
    assert saver.asked == asked
    assert sum(saver.read) == {Telling: 2, Mute: 6, ReadsElsewhere: 6}[saver_class]


def test_by_default_nobody_can_tell():
    saver = DeltaInMemorySaver()
    assert saver._list_rows_beyond({"t": KnownChannels("", frozenset(), frozenset())}) == {}
    assert asyncio.run(saver._alist_rows_beyond({})) == {}
