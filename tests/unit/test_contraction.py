"""What a squash plans: which rows are contracted, and what their base rows hold."""

from __future__ import annotations

import uuid

import pytest

from delta_mixin import RowKey
from delta_mixin._copying import select_for_copy
from delta_mixin._ids import id_below
from delta_mixin._sweeping import SaverTraits
from delta_mixin.base_rows import SQUASHED
from delta_mixin.drawing import draw_thread
from delta_mixin.planner import PruneRules, plan_delete_for_runs, plan_prune

NO_TRAITS = SaverTraits()


@pytest.fixture
def squash(backend):
    def plan(rows, traits=NO_TRAITS, **rules):
        stand_in = backend(rows)
        planning = plan_prune(
            "t", stand_in.views(), PruneRules(delta="squash", **rules), traits, {}
        )
        return stand_in.run(planning)

    return plan


def ids(keys):
    return [key.checkpoint_id for key in keys]


def parts(base):
    return [(part.checkpoint_id, part.channels) for part in base.writes]


def seeds(base):
    return [(seed.channel, seed.checkpoint_id) for seed in base.seeds]


def counting(row, number, *, snapshots=(), channels=("m",), every=None, parent=None, **more):
    """Row `number` of a chain whose channels have counters unless they are stored."""
    counters = {c: [1, 1] for c in channels if c not in snapshots}
    return row(
        f"{number:03}",
        parent or (f"{number - 1:03}" if number else None),
        counters=counters,
        versions=channels,
        snapshots=snapshots,
        writes=channels,
        **more,
    )


def test_a_linear_thread_becomes_its_head_and_a_base_row(squash, chain):
    plan = squash(chain(25, every=10))
    (base,) = plan.bases
    assert ids(plan.kept) == ["024"]
    assert base.replaces == ("020", "021", "022", "023")
    assert "023" < base.checkpoint_id < "024"
    assert (base.parent_id, base.children) == (None, ("024",))
    assert seeds(base) == [("m", "020")]
    assert parts(base) == [(i, ("m",)) for i in base.replaces]
    assert not plan.detached
    assert set(ids(plan.doomed)) >= set(base.replaces)
    assert plan.heads == {"": "024"}


def test_each_channel_starts_at_its_own_seed(squash, row):
    channels = ("a", "b", "c")
    stored = {1: ("a",), 3: ("b",), 5: ()}
    rows = [counting(row, n, channels=channels, snapshots=stored.get(n, ()), v=4) for n in range(7)]
    (base,) = squash(rows).bases
    assert seeds(base) == [("b", "003"), ("a", "001")]
    assert parts(base) == [
        ("000", ("c",)),
        ("001", ("a", "c")),
        ("002", ("a", "c")),
        *((f"{n:03}", channels) for n in (3, 4, 5)),
    ]


def test_a_base_row_is_marked_names_its_channels_and_nothing_of_a_run(squash, chain):
    (base,) = squash(chain(6, every=10)).bases
    assert base.metadata[SQUASHED] == "004"
    assert base.metadata["counters_since_delta_snapshot"] == {"m": [0, 0]}
    assert "run_id" not in base.metadata
    assert base.channel_versions == {"m": "1"}
    made = base.checkpoint({"m": "seed"})
    assert (made["channel_values"], made["versions_seen"]) == ({"m": "seed"}, {})
    assert made["id"] == base.checkpoint_id


def test_task_ids_are_uuids_that_sort_as_the_writes_do(squash, chain):
    (base,) = squash(chain(30, every=100)).bases
    tasks = [part.task_id for part in base.writes]
    paths = [part.task_path for part in base.writes]
    assert len(tasks) == 29
    assert tasks == sorted(set(tasks))
    assert paths == sorted(set(paths))
    assert all(str(uuid.UUID(t)) == t and uuid.UUID(t).int for t in tasks)


def test_a_single_row_stays_as_it_is(squash, chain):
    plan = squash(chain(12, every=10))
    assert plan.bases == ()
    assert ids(plan.kept) == ["010", "011"]


def test_runs_end_at_branches_and_at_roots(squash, row):
    rows = [counting(row, n, snapshots=("m",) if n == 0 else ()) for n in range(6)]
    rows += [counting(row, 6, parent="003"), counting(row, 7), counting(row, 8)]
    plan = squash(rows, pinned=frozenset(["005"]))
    assert ids(plan.kept) == ["004", "005", "008"]
    upper, lower = plan.bases
    assert upper.replaces == ("000", "001", "002", "003")
    assert upper.children == ("004",)
    assert lower.replaces == ("006", "007")
    assert (lower.parent_id, lower.children) == (upper.checkpoint_id, ("008",))
    assert upper.checkpoint_id < "004"
    plan = squash(rows, pinned=frozenset(["002", "005"]))
    assert [base.replaces for base in plan.bases] == [("000", "001"), ("006", "007")]
    assert ids(plan.kept) == ["002", "003", "004", "005", "008"]


def test_a_base_row_is_squashed_with_what_follows_it_but_not_alone(squash, row):
    base = counting(row, 4, snapshots=("m",), **{SQUASHED: True})
    base = base._replace(parent_id=None)
    plan = squash([base, counting(row, 5)])
    assert not plan.changes
    plan = squash([base, counting(row, 5), counting(row, 6)])
    (new,) = plan.bases
    assert new.replaces == ("004", "005")
    plan = squash([base, counting(row, 5), counting(row, 6)], keep_last=3)
    assert ids(plan.kept) == ["004", "005", "006"]
    assert [reason.kind for reason in plan.kept[RowKey("", "004")]] == ["replay"]


def test_a_pinned_base_row_stays(squash, row):
    base = counting(row, 4, snapshots=("m",), **{SQUASHED: True})._replace(parent_id=None)
    rows = [base, counting(row, 5), counting(row, 6, snapshots=("m",))]
    assert ids(squash(rows).kept) == ["006"]
    assert ids(squash(rows, pinned=frozenset(["004"])).kept) == ["004", "006"]


def test_a_stored_none_ends_a_run_and_is_carried_along(squash, row):
    rows = [counting(row, n, snapshots=("m",) if n == 0 else ()) for n in range(7)]
    rows[3] = rows[3]._replace(metadata={"source": "loop"}, nones=frozenset(["m"]))
    upper, lower = squash(rows).bases
    assert upper.replaces == ("000", "001", "002")
    assert lower.replaces == ("003", "004", "005")
    assert seeds(lower) == [("m", "003")]
    assert lower.parent_id == upper.checkpoint_id


def test_rows_with_a_plain_seed_stay_where_readers_leave_its_writes_out(squash, row):
    rows = [counting(row, n) for n in range(5)]
    rows[1] = row("001", "000", populated=["m"], writes=["m"])
    assert seeds(squash(rows).bases[0]) == [("m", "001")]
    plan = squash(rows, SaverTraits(plain_seeds=False))
    (base,) = plan.bases
    assert base.replaces == ("002", "003")
    assert base.parent_id == "001"


def test_pending_sends_are_left_out(squash, row):
    rows = [counting(row, n, snapshots=("m",) if n == 0 else (), v=3) for n in range(5)]
    rows[3] = rows[3]._replace(write_channels=frozenset(["m", "__pregel_tasks"]))
    plan = squash(rows)
    (base,) = plan.bases
    assert base.replaces == ("000", "001", "002")
    assert base.checkpoint({})["v"] == 4  # its reader takes none from the parent
    assert ids(plan.kept) == ["003", "004"]


def test_a_loop_of_parents_stays_as_it_is(squash, row):
    rows = [counting(row, 0, parent="002"), counting(row, 1), counting(row, 2), counting(row, 3)]
    plan = squash(rows)
    assert plan.bases == ()
    assert ids(plan.kept) == ["000", "001", "002", "003"]


def test_parents_whose_ids_sort_above_their_childs(squash, row):
    rows = [
        counting(row, 7, parent="009", snapshots=()),
        counting(row, 9, snapshots=("m",))._replace(parent_id=None),
        counting(row, 8, parent="007"),
        counting(row, 10, parent="008"),
    ]
    (base,) = squash(rows).bases
    assert base.replaces == ("009", "007", "008")
    assert base.checkpoint_id < "010"


def test_a_blob_that_a_base_row_refers_to_is_not_dead(squash, row):
    rows = [counting(row, n, snapshots=("m",) if n == 0 else ()) for n in range(4)]
    rows = [
        r._replace(channel_versions={"m": n, "plain": n}, populated=r.populated | {"plain"})
        for n, r in enumerate(rows)
    ]
    plan = squash(rows, SaverTraits(versioned_blobs=True))
    assert [blob[1:] for blob in plan.dead_blobs if blob.channel == "plain"] == [
        ("plain", 0),
        ("plain", 1),
        ("plain", 2),
    ]
    assert ("m", 0) not in [blob[1:] for blob in plan.dead_blobs]
    assert ("m", 1) in [blob[1:] for blob in plan.dead_blobs]
    assert plan.bases[0].channel_versions == {"m": 0}


class TestRunDeletion:
    def plan(self, backend, rows, *runs):
        stand_in = backend(rows)
        planning = plan_delete_for_runs(
            "t", stand_in.views(), frozenset(runs), NO_TRAITS, {}, squashing=True
        )
        return stand_in.run(planning)

    def chain(self, row, runs):
        return [
            counting(row, n, run_id=run, snapshots=("m",) if n == 0 else ())
            for n, run in enumerate(runs)
        ]

    def test_even_a_single_row_goes(self, backend, row):
        plan = self.plan(backend, self.chain(row, "aabaccca"), "b", "c")
        assert ids(plan.doomed) == ["002", "004", "005", "006"]
        assert [base.replaces for base in plan.bases] == [("002",), ("004", "005", "006")]
        assert [base.parent_id for base in plan.bases] == ["001", "003"]
        assert ids(plan.kept) == ["000", "001", "003", "007"]

    def test_a_base_row_is_no_survivor_to_read_back(self, backend, row):
        base = counting(row, 1, snapshots=("m",), **{SQUASHED: True})._replace(parent_id=None)
        rows = [base, *(counting(row, n, run_id="b") for n in (2, 3)), counting(row, 4)]
        (new,) = self.plan(backend, rows, "b").bases
        assert new.replaces == ("001", "002", "003")

    def test_a_base_row_stays_that_only_the_runs_stood_on(self, backend, row):
        base = counting(row, 1, snapshots=("m",), **{SQUASHED: True})._replace(parent_id=None)
        rows = [base, *(counting(row, n, run_id="b") for n in (2, 3))]
        plan = self.plan(backend, rows, "b")
        assert ids(plan.kept) == ["001"]

    def test_a_base_row_stays_although_nothing_stands_on_it(self, backend, row):
        base = counting(row, 1, snapshots=("m",), **{SQUASHED: "000"})._replace(parent_id=None)
        rows = [base, counting(row, 2, snapshots=("m",))._replace(parent_id=None)]
        rows += [counting(row, 3, run_id="b"), counting(row, 4, snapshots=("m",))]
        plan = self.plan(backend, rows, "b")
        assert "001" in ids(plan.kept)

    def test_a_base_row_goes_that_a_cut_off_squash_has_left(self, backend, row):
        left = counting(row, 2, **{SQUASHED: "002"})._replace(checkpoint_id="002z", parent_id=None)
        rows = [*self.chain(row, "aba"), left, counting(row, 3), counting(row, 4)]
        plan = self.plan(backend, rows, "b")
        assert "002z" in ids(plan.doomed)

    def test_a_namespace_without_rows_of_the_runs_stays_as_it_is(self, backend, row):
        rows = [*self.chain(row, "aba"), counting(row, 0, ns="n"), counting(row, 1, ns="n")]
        plan = self.plan(backend, rows, "b")
        assert {key.checkpoint_ns for key in plan.doomed} == {""}


def test_a_copy_is_planned_on_what_is_copied(backend, chain):
    stand_in = backend(chain(25, every=10))
    rows, plan = stand_in.run(
        select_for_copy(stand_in.views(), "017", NO_TRAITS, "copy", squashing=True)
    )
    assert [row.checkpoint_id for row in rows] == [f"{n:03}" for n in range(10, 18)]
    assert plan.thread_id == "copy"
    assert ids(plan.doomed) == [f"{n:03}" for n in range(10, 17)]
    assert plan.bases[0].children == ("017",)


def test_a_plan_draws_its_base_rows(squash, chain):
    rows = chain(24, every=20)
    assert draw_thread(rows[18:], squash(rows)).splitlines()[1:5] == [
        "*  023  run r2, writes m  (latest)",
        "+  022z  base row for 3 rows, seed m of 020, writes m",
        "x  022  run r2, writes m",
        "x  021  run r2, writes m",
    ]
    (base,) = squash(rows).bases
    assert str(base) == "base row 022z for 3 row(s), seeds: m of 020, writes: m"


UUID = "1f0e6a61-3d26-6300-8008-4b1301d6d903"


@pytest.mark.parametrize(
    ("child", "parent", "used", "found"),
    [
        (UUID, None, (), UUID[:-1] + "2"),
        (UUID, UUID[:-1] + "0", (UUID[:-1] + "2",), UUID[:-1] + "1"),
        ("1f0e6a61-3d26-6300-8008-000000000000", None, (), "1f0e6a61-3d26-6300-8007-ffffffffffff"),
        ("cp-0005", "cp-0004", (), "cp-0004z"),
        ("cp-0005", "cp-0004z", ("cp-0004z",), "cp-0004zz"),
        ("cp-0100", "cp-0099", (), "cp-00z"),
        ("b", None, ("az",), "azz"),
        ("0", None, (), None),
        ("", None, (), None),
    ],
)
def test_ids_below(child, parent, used, found):
    assert id_below(child, parent, used) == found
    assert found is None or found < child


def test_an_id_below_is_found_where_there_is_no_room_above_the_parent():
    near = UUID[:-1] + "2"
    assert id_below(UUID, near, {near}) == UUID[:-1] + "1"
