"""Pictures of threads."""

from __future__ import annotations

import textwrap

import pytest

from delta_mixin.drawing import draw_thread
from delta_mixin.model import CheckpointRow, CleanupPlan, Reason, RowKey


def row(checkpoint_id, parent_id=None, ns="", **known):
    known = {name: frozenset(v) if isinstance(v, list) else v for name, v in known.items()}
    return CheckpointRow("thread", ns, checkpoint_id, parent_id, **known)


def drawn(rows, plan=None, **options):
    return draw_thread(rows, plan, **options).split("\n")


def expected(picture):
    return textwrap.dedent(picture).strip("\n").split("\n")


def test_a_chain_shows_runs_snapshots_and_writes_newest_first():
    rows = [
        row("id-0001", metadata={"run_id": "a"}, write_channels=["log"]),
        row(
            "id-0002",
            "id-0001",
            metadata={"run_id": "b"},
            populated=["log", "topic"],
            snapshots=["log"],
            write_channels=["seen", "log"],
        ),
        row("id-0003", "id-0002"),
    ]
    assert drawn(rows) == expected(
        """
        root namespace
        *  …0003
        *  …0002  run b, snapshot of log, holds topic, writes log, seen
        *  …0001  run a, writes log
        """
    )


def test_branches_are_lanes_that_join_at_their_base():
    rows = [row("1000"), row("2000", "1000"), row("3000", "2000"), row("4000", "1000")]
    rows += [row("5000", "2000"), row("6000", "3000")]
    assert drawn(rows) == expected(
        """
        root namespace
        *  6000
        | *  5000
        | | *  4000
        * | |  3000
        |/  |
        *   |  2000
        |__/
        *  1000
        """
    )


def test_lanes_to_the_right_go_on_where_one_in_the_middle_ends():
    rows = [row("1000"), row("2000", "1000"), row("3000"), row("4000", "1000"), row("5000", "2000")]
    assert drawn(rows) == expected(
        """
        root namespace
        *  5000
        | *  4000
        | | *  3000
        * |  2000
        |/
        *  1000
        """
    )


def test_namespaces_follow_one_another():
    rows = [row("1000", ns="child"), row("2000"), row("3000", "2000")]
    assert drawn(rows) == expected(
        """
        root namespace
        *  3000
        *  2000
        namespace 'child'
        *  1000
        """
    )


def test_parents_that_are_not_stored_and_loops_are_told():
    assert drawn([row("2000", "1000"), row("3000", "2000")]) == expected(
        """
        root namespace
        *  3000
        *  2000
        ?  1000 is not stored
        """
    )
    assert drawn([row("1000", "3000"), row("2000", "1000"), row("3000", "2000")]) == expected(
        """
        root namespace
        *  3000
        *  2000
        *  1000
        ?  3000 is drawn above: a loop
        """
    )


def test_a_plan_crosses_out_and_tells_why():
    rows = [row("id-1000"), row("id-2000", "id-1000"), row("id-3000", "id-2000")]
    plan = CleanupPlan(
        "thread",
        "prune",
        kept={
            RowKey("", "id-2000"): (Reason("replay", "log", "id-3000"),),
            RowKey("", "id-3000"): (Reason("latest"), Reason("pinned")),
        },
        doomed=(RowKey("", "id-1000"),),
    )
    assert drawn(rows, plan) == expected(
        """
        root namespace
        *  …3000  (latest; pinned)
        o  …2000  (replays log for …3000)
        x  …1000
        """
    )


def test_rows_that_are_gone_are_crossed_out():
    rows = [row("1000"), row("2000", "1000", ns="child")]
    lines = drawn(rows, gone=[("child", "2000")])
    assert [line[0] for line in lines] == ["r", "*", "n", "x", "?"]


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["aaaa-1234", "bbbb-1234", "cccc-5678"], ["…a-1234", "…b-1234", "…c-5678"]),
        (["1-aaaa", "2-aaaa"], ["1-aaaa", "2-aaaa"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_ids_are_cut_to_endings_that_tell_them_apart(ids, names):
    assert sorted(line.split()[1] for line in drawn(map(row, ids))[1:]) == sorted(names)


def test_many_channels_and_no_rows_stay_short():
    channels = [f"c{n}" for n in range(9)]
    assert drawn([row("1000", write_channels=channels)])[1].endswith("writes c0, c1, c2, c3, c4, …")
    assert drawn([]) == [""]


def test_a_long_thread_with_many_forks_is_drawn_in_full():
    rows = [row("0000")]
    rows += [row(f"{n:04}", f"{n - 1 - n % 3:04}" if n > 3 else "0000") for n in range(1, 3000)]
    lines = drawn(rows)
    told = [word for line in lines for word in line.split() if word.isdigit()]
    assert sorted(told) == [f"{n:04}" for n in range(3000)]
    assert told.index("0000") == len(told) - 1
