"""What rows alone tell of damage: one guard after the other, without a saver."""

import pytest

from delta_mixin.findings import HistoryEnd
from delta_mixin.inspection import inspect, lost_channels


@pytest.fixture
def findings(backend):
    """Kind, checkpoint, channel and severity of what is found in rows, and promises left open."""

    def findings(rows, declared=()):
        made = backend(rows)
        (view,) = made.views().values()
        found = made.run(inspect("t", view, declared))
        told = {(f.kind, f.checkpoint_id, f.channel, f.severity) for f in found.findings}
        return told | {("promise", p.row[1], p.channel, p.least) for p in found.promises}

    return findings


def counted(row, i, updates, supersteps, **more):
    """Row `i` of a linear thread whose step is its number."""
    parent = f"{i - 1:03}" if i else None
    return row(f"{i:03}", parent, counters={"m": [updates, supersteps]}, step=i, **more)


def test_a_thread_from_its_start_is_healthy(findings, row):
    rows = [
        row("000", versions=(), step=-2, source=None, writes=("m",)),
        row("001", "000", step=-1, counters={"m": [1, 1]}, writes=("m",)),
        row("002", "001", step=0, counters={"m": [2, 2]}),
    ]
    assert findings(rows) == set()


def test_a_parent_that_a_reader_passes_is_missed(findings, chain):
    rows = [r for r in chain(8, 20) if r.checkpoint_id != "003"]
    assert findings(rows) == {("severed", "004", "m", "error")}


def test_a_parent_above_every_value_is_not_needed(findings, chain):
    rows = [r for r in chain(8, 5) if r.checkpoint_id > "004"]
    assert findings(rows) == {("dangling parent", "005", None, "note")}


def test_a_dangling_parent_may_matter_to_a_channel_that_nothing_names(findings, row):
    rows = [row("004", "003"), row("005", "004")]
    assert findings(rows) == {("dangling parent", "004", None, "warning")}
    assert findings(rows, ["m"]) == {("severed", "004", "m", "error")}


def test_a_channel_not_yet_written_at_the_break_has_lost_nothing(findings, row):
    rows = [
        row("004", "003", versions=("n",), populated=("n",), writes=("m",), step=4),
        row("005", "004", counters={"m": [1, 1]}, step=5),
    ]
    assert findings(rows) == {("dangling parent", "004", None, "note")}


def test_a_row_without_parent_that_has_a_version_but_no_value_is_no_start(findings, row):
    rows = [row("004", writes=("m",), step=4), counted(row, 5, 4, 6)]
    assert findings(rows) == {("cut off", "004", "m", "error")}


def test_rows_kept_for_replay_alone_need_not_read_back(findings, row):
    # The value of m lies at 005, n is replayed from 004: there m has no history any more.
    rows = [
        row("004", versions=("m", "n"), snapshots=("n",), counters={"m": [3, 3]}, writes=("m",)),
        row("005", "004", versions=("m", "n"), snapshots=("m",), counters={"n": [0, 1]}),
        row("006", "005", versions=("m", "n"), counters={"n": [0, 2], "m": [0, 1]}),
    ]
    assert findings(rows) == set()


def test_the_first_update_of_old_releases_is_no_damage(findings, row):
    rows = [row("000", source="update", step=0, writes=("m",)), counted(row, 1, 1, 1)]
    assert findings(rows) == set()
    second = rows[0]._replace(channel_versions={"m": "1", "n": "2"})
    assert findings([second, rows[1]]) == {("cut off", "000", "m", "error")}
    later = [row("000", source="update", step=3, writes=("m",)), counted(row, 1, 1, 1)]
    assert findings(later) == {("cut off", "000", "m", "error")}


def test_rows_that_the_host_did_not_write_prove_nothing(findings, row):
    base = row("000", source="squash", versions=("m",), step=4)
    assert findings([base, counted(row, 1, 5, 5)]) == set()
    silent = row("000", source="squash", versions=("n",), populated=("n",), step=4)
    assert findings([silent, counted(row, 1, 5, 5)]) == set()


@pytest.mark.parametrize(
    ("step", "updates", "expected"),
    [
        (1, 1, {("dropped writes", "000", "m", "error")}),
        (1, 0, set()),
        # Counters that do not go with the steps began to count elsewhere.
        (5, 1, set()),
    ],
)
def test_updates_promise_writes(findings, row, step, updates, expected):
    after = row("001", "000", counters={"m": [updates, 1]}, step=step)
    assert findings([row("000", snapshots=("m",), step=0), after]) == expected


def test_a_new_version_without_a_value_promises_a_write(findings, row):
    rows = [
        row("000", versions=(), step=-2, source=None, writes=("m",)),
        row("001", "000", source="update", step=0),
    ]
    assert findings(rows, ["m"]) == set()
    bare = [row("000", versions=(), step=-2, source=None), rows[1]]
    assert findings(bare, ["m"]) == {("dropped writes", "000", "m", "error")}
    # Without anything that names the channel it could be one that is never stored.
    assert findings(bare) == set()


def test_many_updates_at_once_promise_as_many_writes(findings, row):
    rows = [
        row("000", versions=(), step=-2, source=None, writes=("m",)),
        row("001", "000", step=4, counters={"m": [5, 6]}),
    ]
    assert findings(rows) == {("promise", "000", "m", 5)}


def test_writes_above_every_value_are_missed_only_by_older_checkpoints(findings, row):
    rows = [
        row("000", snapshots=("m",), step=0),
        row("001", "000", counters={"m": [1, 1]}, step=1, writes=("m",)),
        row("002", "001", snapshots=("m",), step=2, writes=("m",)),
        row("003", "002", counters={"m": [1, 1]}, step=3),
    ]
    assert findings(rows) == {("dropped writes", "000", "m", "warning")}


def test_a_loop_is_told_once(findings, row):
    rows = [
        row("001", "003", counters={"m": [1, 1]}, writes=("m",)),
        row("002", "001", counters={"m": [2, 2]}, writes=("m",)),
        row("003", "002", counters={"m": [3, 3]}, writes=("m",)),
        row("004", "003", counters={"m": [4, 4]}),
    ]
    assert findings(rows) == {("loop", "001", None, "error")}


def test_a_mark_that_names_no_channel_is_told(findings, row):
    rows = [row("000"), row("001", "000", delta_writes_versioned=True)]
    assert findings(rows) == {("unknown channels", None, None, "warning")}
    assert findings(rows, ["m"]) >= {("cut off", "000", "m", "error")}


@pytest.mark.parametrize("why", ["start", "missing", "loop"])
def test_where_a_walk_ended_tells_what_began_above(row, why):
    parent = None if why == "start" else "003"
    end = HistoryEnd(row("004", parent, versions=("m", "n"), populated=("n",), step=4), why)
    assert lost_channels(end, ["m", "n", "never"]) == ["m"]


def test_a_row_without_versions_is_a_start_but_no_excuse_for_a_missing_parent(row):
    stub = row("000", versions=(), step=-2, source=None)
    assert lost_channels(HistoryEnd(stub, "start"), ["m"]) == []
    assert lost_channels(HistoryEnd(row("000", "0", versions=()), "missing"), ["m"]) == ["m"]
    foreign = row("000", source="squash")
    assert lost_channels(HistoryEnd(foreign, "start"), ["m"]) == []
    assert lost_channels(HistoryEnd(row("000", "0", source="squash"), "missing"), ["m"]) == ["m"]
