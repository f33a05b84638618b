from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from delta_mixin import RowKey
from delta_mixin._copying import select_for_copy
from delta_mixin.planner import (
    PruneRules,
    SaverTraits,
    checkpoint_time,
    plan_delete_for_runs,
    plan_prune,
    plan_whole_thread,
)

DEFAULT_RULES = PruneRules()
NO_TRAITS = SaverTraits()


def prune(backend, rows, *, rules=DEFAULT_RULES, traits=NO_TRAITS, heads=None):
    stand_in = backend(rows)
    return stand_in.run(plan_prune("t", stand_in.views(), rules, traits, heads or {}))


def ids(keys, ns=""):
    return [key.checkpoint_id for key in keys if key.checkpoint_ns == ns]


def test_a_head_keeps_its_ancestors_back_to_the_snapshot(backend, chain):
    plan = prune(backend, chain(25, every=10))
    assert ids(plan.kept) == ["020", "021", "022", "023", "024"]
    assert ids(plan.detached) == ["020"]
    assert [str(r) for r in plan.kept[("", "024")]] == ["latest"]
    assert [str(r) for r in plan.kept[("", "021")]] == ["replays m for 024"]
    assert ids(plan.replay_only) == ["020", "021", "022", "023"]
    assert plan.heads == {"": "024"}
    assert plan.delta_channels == {"": frozenset({"m"})}


def test_a_snapshot_head_needs_nothing_above_it(backend, chain):
    assert ids(prune(backend, chain(21, every=10)).kept) == ["020"]


def test_only_the_needed_rows_are_read(lean, chain):
    stand_in = lean(chain(95, every=10))
    plan = stand_in.run(plan_prune("t", stand_in.views(), PruneRules(), SaverTraits(), {}))
    assert len(plan.kept) == 5
    assert stand_in.reads == {"metadata": 5, "checkpoint": 2}


def test_keep_last_keeps_the_newest_and_what_each_needs(backend, chain):
    plan = prune(backend, chain(25, every=10), rules=PruneRules(keep_last=6))
    assert ids(plan.kept) == [f"{i:03}" for i in range(10, 25)]
    assert ids(plan.replay_only) == [f"{i:03}" for i in range(10, 19)]


def test_pinned_rows_stay_with_what_they_need(backend, chain):
    plan = prune(backend, chain(25, every=10), rules=PruneRules(pinned=frozenset(["012", "zz"])))
    assert ids(plan.kept) == ["010", "011", "012", "020", "021", "022", "023", "024"]
    assert ids(plan.detached) == ["010", "020"]


def test_the_row_get_tuple_returns_is_a_root_even_if_older(backend, chain):
    plan = prune(backend, chain(25, every=10), heads={"": "011"})
    assert ids(plan.kept) == ["010", "011", "020", "021", "022", "023", "024"]
    assert plan.heads == {"": "011"}


def test_young_rows_and_rows_of_unknown_age_stay(backend, row):
    old, young = "1ef00000-0000-6000-8000-000000000000", "1f200000-0000-6000-8000-000000000000"
    rows = [row(old, source="x"), row(young, old, populated=["m"]), row("zzz", young)]
    cutoff = checkpoint_time(young) - timedelta(seconds=1)
    plan = prune(backend, rows, rules=PruneRules(cutoff=cutoff))
    assert [r.kind for r in plan.kept[("", young)]] == ["recent"]
    assert {r.kind for r in plan.kept[("", "zzz")]} == {"latest", "unknown age"}
    assert ids(plan.doomed) == [old]


def test_checkpoint_time_is_that_of_the_uuid():
    base_id = pytest.importorskip("langgraph.checkpoint.base.id")
    before = datetime.now(timezone.utc) - timedelta(milliseconds=50)
    told = checkpoint_time(str(base_id.uuid6(clock_seq=3)))
    assert before < told < datetime.now(timezone.utc) + timedelta(seconds=1)
    assert checkpoint_time("not a uuid") is None
    assert checkpoint_time("8d3bd3a0-1111-4111-8111-000000000000") is None


def test_two_channels_keep_as_far_as_the_farther_one_needs(backend, row):
    rows = [
        row("0", versions="ab", snapshots=["b"]),
        row("1", "0", versions="ab", snapshots=["a"], counters={"b": [1, 1]}),
        row("2", "1", versions="ab", counters={"a": [1, 1], "b": [2, 2]}),
    ]
    plan = prune(backend, [row(".", versions=()), *rows])
    assert ids(plan.kept) == ["0", "1", "2"]
    assert [str(r) for r in plan.kept[("", "1")]] == ["replays a for 2", "replays b for 2"]
    assert [str(r) for r in plan.kept[("", "0")]] == ["replays b for 2"]


def test_a_channel_never_written_keeps_nothing(backend, row):
    rows = [
        row("0", versions=["m"], counters={"never": [0, 1]}, snapshots=["m"]),
        row("1", "0", versions=["m"], counters={"never": [0, 2]}, populated=["m"]),
    ]
    assert ids(prune(backend, rows).kept) == ["1"]


def test_a_channel_that_left_the_counters_is_still_found(backend, row):
    # Changed back to a plain reducer: the head's counters no longer name it.
    rows = [
        row("0", snapshots=["m"]),
        row("1", "0", counters={"m": [1, 1]}, writes=["m"]),
        row("2", "1"),
    ]
    assert ids(prune(backend, rows).kept) == ["0", "1", "2"]


def test_a_snapshot_alone_makes_a_channel_delta(backend, row):
    rows = [row("0"), row("1", "0", snapshots=["m"]), row("2", "1")]
    assert ids(prune(backend, rows).kept) == ["1", "2"]


def test_an_empty_declaration_is_not_trusted_and_a_full_one_adds(backend, row):
    rows = [row("0"), row("1", "0"), row("2", "1")]
    assert ids(prune(backend, rows).kept) == ["2"]
    declared = SaverTraits(declared=frozenset(["m"]))
    assert ids(prune(backend, rows, traits=declared).kept) == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["m", "__root__"])
def test_update_state_rows_without_counters_are_kept_by_their_writes(backend, row, name):
    rows = [
        row("0", source="update", versions=(), writes=[name]),
        row("1", "0", source="update", versions=[name], writes=[name]),
        row("2", "1", source="update", versions=[name]),
    ]
    assert ids(prune(backend, rows).kept) == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["m", "__root__"])
def test_a_channel_that_old_update_state_alone_wrote_outlives_a_graph_without_it(
    backend, row, name
):
    # No counters, no snapshot, and a head of the loop that has the channel open like an
    # ephemeral one: only that writes moved its version and stored no value tells.
    rows = [
        row("0", source="update", versions=(), writes=[name]),
        row("1", "0", source="update", versions=[name]),
        row("2", "1", versions=[name]),
    ]
    assert ids(prune(backend, rows).kept) == ["0", "1", "2"]
    # A plain channel that the graph dropped has a value where it was written: no delta.
    held = row("1", "0", source="update", versions=[name], populated=[name])
    plain = [rows[0], held, rows[2]]
    assert ids(prune(backend, plain).kept) == ["2"]


def test_an_ephemeral_channel_is_no_evidence(backend, row):
    rows = [
        row("0", versions=["e"], writes=["e"]),
        row("1", "0", source="update", versions=["e"], writes=["e"]),
    ]
    assert ids(prune(backend, rows).kept) == ["1"]


def test_triggers_and_internal_channels_are_no_evidence(backend, row):
    names = ["branch:to:a", "__start__"]
    rows = [
        row("0", versions=names, writes=names),
        row("1", "0", source="update", versions=names, writes=names),
    ]
    assert ids(prune(backend, rows).kept) == ["1"]
    # Beside a channel that has to be looked into, they still are none.
    rows = [
        row("0", versions=names, writes=names),
        row("1", "0", versions=[*names, "m"], snapshots=["m"], writes=["m", *names]),
        row("2", "1", source="update", versions=[*names, "m"]),
    ]
    assert ids(prune(backend, rows).kept) == ["1", "2"]


def test_a_plain_value_from_before_the_migration_is_a_seed(backend, row):
    rows = [row("0", populated=["m"]), row("1", "0", populated=["m"])]
    rows.append(row("2", "1", counters={"m": [1, 1]}))
    assert ids(prune(backend, rows).kept) == ["1", "2"]


def test_the_early_counters_count(backend, row):
    rows = [row("0"), row("1", "0", delta_updates_since_snapshot={"m": 1})]
    assert ids(prune(backend, rows).kept) == ["0", "1"]


def test_an_older_root_without_versions_walks_every_detected_channel(backend, row):
    rows = [row("0", snapshots=["m"]), row("1", "0", counters={"m": [1, 1]})]
    rows.append(row("2", "1", versions=()))
    assert ids(prune(backend, rows).kept) == ["0", "1", "2"]


def test_a_loop_of_parents_ends(backend, row):
    rows = [row("0", "2", counters={"m": [1, 1]}), row("1", "0", counters={"m": [2, 2]})]
    rows.append(row("2", "1", counters={"m": [3, 3]}))
    assert ids(prune(backend, rows).kept) == ["0", "1", "2"]


def test_parents_are_followed_whatever_their_ids(backend, row):
    # Two processes: the parent's id sorts above its child's, strangers lie in between.
    rows = [row("1", "9", counters={"m": [1, 1]}), row("9", "0", snapshots=["m"]), row("0")]
    rows.append(row("95", "1", counters={"m": [2, 2]}))
    assert ids(prune(backend, rows).kept) == ["1", "9", "95"]


def test_forks_keep_the_branch_of_the_head_alone(backend, row):
    rows = [
        row("0", snapshots=["m"]),
        row("1", "0", counters={"m": [1, 1]}),
        row("2", "1", counters={"m": [2, 2]}),
        row("3", "1", counters={"m": [2, 2]}),
    ]
    plan = prune(backend, rows)
    assert ids(plan.doomed) == ["2"]


class TestSeveredHistory:
    @pytest.fixture
    def rows(self, row):
        return [row("1"), row("5", "4", counters={"m": [3, 3]})]

    def test_leaves_the_thread_alone_and_says_where(self, backend, rows):
        plan = prune(backend, rows)
        assert plan.left_alone == "severed"
        assert not plan.changes
        assert ids(plan.kept) == ["1", "5"]
        assert "checkpoint 5 needs parent 4" in str(plan.severed[0])

    def test_sweeps_on_request_and_leaves_the_pointer_as_evidence(self, backend, rows):
        plan = prune(backend, rows, rules=PruneRules(severed="ignore"))
        assert ids(plan.doomed) == ["1"]
        assert plan.detached == ()

    def test_is_none_where_no_channel_needs_the_parent(self, backend, row):
        plan = prune(backend, [row("1"), row("5", "4", populated=["m"])])
        assert plan.left_alone is None
        assert ids(plan.detached) == ["5"]


def test_a_thread_of_langgraph_js_is_left_alone_unless_declared(backend, row):
    rows = [row("0", delta_writes_versioned=True), row("1", "0")]
    assert prune(backend, rows).left_alone == "unknown delta channels"
    plan = prune(backend, rows, traits=SaverTraits(declared=frozenset(["m"])))
    assert ids(plan.kept) == ["0", "1"]


@pytest.mark.parametrize("choice", ["skip", "refuse"])
def test_delta_threads_are_told_apart(backend, chain, row, choice):
    rules = PruneRules(delta=choice)
    assert prune(backend, chain(12, every=10), rules=rules).left_alone == "delta thread"
    plain = [row("0", populated=["m"]), row("1", "0", populated=["m"])]
    assert ids(prune(backend, plain, rules=rules).doomed) == ["0"]


class TestNamespaces:
    def test_a_call_goes_with_its_root_checkpoint(self, backend, row):
        rows = [
            row("0", populated=["m"]),
            row("1", "0", populated=["m"]),
            row("c0", ns="n:task", populated=["m"], parents={"": "0"}),
            row("c1", "c0", ns="n:task", populated=["m"], parents={"": "0"}),
        ]
        plan = prune(backend, rows)
        assert plan.dropped_namespaces == ("n:task",)
        assert ids(plan.doomed, "n:task") == ["c0", "c1"]
        assert plan.heads == {"": "1", "n:task": None}

    def test_a_call_stays_while_its_root_is_kept_or_not_stored_yet(self, backend, row):
        rows = [row("0", populated=["m"]), row("1", "0", populated=["m"])]
        rows += [row("c0", ns=f"n:{root}", populated="m", parents={"": root}) for root in "12"]
        assert prune(backend, rows).dropped_namespaces == ()

    def test_a_call_stays_with_a_root_that_is_only_replayed(self, backend, chain, row):
        call = row("c", ns="n:task", populated=["m"], parents={"": "021"})
        assert prune(backend, [*chain(25, every=10), call]).dropped_namespaces == ()
        call = row("c", ns="n:task", populated=["m"], parents={"": "019"})
        assert prune(backend, [*chain(25, every=10), call]).dropped_namespaces == ("n:task",)

    def test_a_pinned_row_holds_its_call(self, backend, row):
        rows = [row("0", populated=["m"]), row("1", "0", populated=["m"])]
        rows.append(row("c0", ns="n:task", populated=["m"], parents={"": "0"}))
        plan = prune(backend, rows, rules=PruneRules(pinned=frozenset(["c0"])))
        assert plan.dropped_namespaces == ()
        assert ids(plan.kept, "n:task") == ["c0"]

    def test_a_stateful_subgraph_outlives_its_calls(self, backend, chain, row):
        root = [row("0", populated=["m"]), row("1", "0", populated=["m"])]
        plan = prune(backend, [*root, *chain(12, every=10, ns="sub")])
        assert ids(plan.kept, "sub") == ["010", "011"]
        once = row("s", ns="other", populated=["m"], parents={"": "0"})
        assert ids(prune(backend, [*root, once]).kept, "other") == ["s"]


@pytest.mark.parametrize(("v", "sends", "kept"), [(3, True, 2), (3, False, 1), (4, True, 1)])
def test_an_old_head_keeps_the_parent_that_holds_its_sends(backend, row, v, sends, kept):
    writes = ["__pregel_tasks"] if sends else ["m"]
    rows = [row("0"), row("1", "0", writes=writes), row("2", "1", populated=["m"], v=v)]
    assert len(prune(backend, rows).kept) == kept


def test_blobs_that_a_kept_row_shares_are_not_dead(backend, row):
    rows = [row("0", versions="ab", populated="ab"), row("1", "0", versions="a", populated="a")]
    plan = prune(backend, rows, traits=SaverTraits(versioned_blobs=True))
    assert plan.dead_blobs == (("", "b", "1"),)
    assert prune(backend, rows).dead_blobs == ()


def test_a_whole_thread_goes(lean, row):
    plan = plan_whole_thread("t", lean([row("0"), row("1", ns="n:x")]).views())
    assert plan.doomed == (RowKey("", "0"), RowKey("n:x", "1"))
    assert plan.dropped_namespaces == ("", "n:x")


class TestDeleteForRuns:
    def plan(self, backend, rows, *runs, traits=NO_TRAITS):
        stand_in = backend(rows)
        return stand_in.run(
            plan_delete_for_runs("t", stand_in.views(), frozenset(runs), traits, {})
        )

    def test_rows_that_a_survivor_is_rebuilt_from_stay(self, backend, chain):
        plan = self.plan(backend, chain(35, every=7), "r1")
        # 021 is of run r2 and snapshots; 020 is rebuilt from 014 on, but goes itself.
        assert ids(plan.doomed) == [f"{i:03}" for i in range(10, 14)]
        assert ids(plan.replay_only) == [f"{i:03}" for i in range(14, 20)]
        assert ids(plan.detached) == ["014"]

    def test_the_newest_run_goes_whole(self, backend, chain):
        plan = self.plan(backend, chain(25, every=10), "r2")
        assert ids(plan.doomed) == ["020", "021", "022", "023", "024"]
        assert plan.heads == {"": "019"}

    def test_an_unknown_run_changes_nothing(self, backend, chain):
        plan = self.plan(backend, chain(12, every=10), "r9")
        assert not plan.changes
        assert len(plan.kept) == 12

    def test_a_dangling_pointer_is_not_its_business(self, backend, row):
        rows = [row("1", "0", populated=["m"], run_id="a"), row("2", run_id="b")]
        assert self.plan(backend, rows, "b").detached == ()

    def test_a_survivor_that_is_broken_already_leaves_the_thread_alone(self, backend, row):
        rows = [row("5", "4", counters={"m": [1, 1]}, run_id="a")]
        rows.append(row("6", "5", counters={"m": [2, 2]}, run_id="b"))
        assert self.plan(backend, rows, "a").left_alone == "severed"

    def test_run_ids_are_compared_as_text(self, backend, row):
        rows = [row("1", populated=["m"], run_id=7), row("2", "1", populated=["m"])]
        assert ids(self.plan(backend, rows, "7").doomed) == ["1"]
        assert ids(self.plan(backend, rows, "None").doomed) == []


class TestSelectForCopy:
    def select(self, backend, rows, checkpoint_id):
        stand_in = backend(rows)
        rows, plan = stand_in.run(select_for_copy(stand_in.views(), checkpoint_id, SaverTraits()))
        assert not plan.severed
        assert not plan.changes
        return [tuple(row.key) for row in rows]

    def test_takes_what_the_checkpoint_needs_and_stood_beside_it(self, backend, chain, row):
        rows = [
            *chain(25, every=10),
            row("c0", ns="n:here", populated=["m"], parents={"": "012"}),
            row("c1", "c0", ns="n:here", populated=["m"], parents={"": "012"}),
            row("c2", ns="n:later", populated=["m"], parents={"": "013"}),
            row("s0", ns="sub", snapshots=["m"], parents={"": "003"}),
            row("s1", "s0", ns="sub", counters={"m": [1, 1]}, parents={"": "009"}),
            row("s2", "s1", ns="sub", counters={"m": [2, 2]}, parents={"": "013"}),
            row("t0", ns="tub", snapshots=["m"], parents={"": "003"}),
            row("t1", "t0", ns="tub", snapshots=["m"], parents={"": "012"}),
        ]
        assert self.select(backend, rows, "012") == [
            ("", "010"),
            ("", "011"),
            ("", "012"),
            ("n:here", "c0"),
            ("n:here", "c1"),
            ("sub", "s0"),
            ("sub", "s1"),
            ("tub", "t1"),
        ]
