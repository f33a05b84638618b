"""No false alarm: threads of six releases, before and after every operation, on five savers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin import SeveredHistoryError, StrictDeltaHistoryMixin
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.adapters.sqlite import DeltaSqliteSaver
from delta_mixin.testing import (
    Channel,
    Pruning,
    Step,
    ThreadHistory,
    prunings,
    thread_histories,
    write_history,
)
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing.strategies import run_selections
from delta_mixin.verification import verify_thread


def assert_healthy(subject, thread, before, rootless=()):
    """No finding; each checkpoint reads as before, or is one kept for others' sake and raises."""
    assert subject.verify(thread).findings == ()
    assert subject.verify(thread, channels=sorted(subject.delta)).findings == ()
    for key, histories in subject.read_all(thread).items():
        for channel, history in histories.items():
            lawful = history == before[key][channel]
            assert lawful or (history == "severed" and key in rootless), (key, channel)


PRUNES = ({}, {"keep_last": 3}, {"pinned": "every third"})


def copies(subject):
    """Names for copies of the thread, each made when it is asked for."""
    for n in itertools.count():
        target = f"copy {n}"
        subject.view.copy_thread(subject.id, target)
        yield target


def test_no_alarm_before_and_after_every_operation(subject, kind):
    before = subject.read_all()
    assert "severed" not in [h for of_row in before.values() for h in of_row.values()]
    assert_healthy(subject, subject.id, before)

    done = []
    targets = copies(subject)
    for options in PRUNES:
        if "pinned" in options:
            options = {"pinned": [i for _, i in sorted(before)[::3]]}
        target = next(targets)
        assert_healthy(subject, target, before)
        subject.view.prune([target], on_plan=done.append, **options)
        assert_healthy(subject, target, before, done[-1].replay_only)

    configs = {key: subject.view.config(subject.id, *key) for key in before}
    found = {subject.view.get_tuple(c).metadata.get("run_id") for c in configs.values()}
    for run in sorted(found - {None}):
        target = next(targets)
        subject.view.delete_for_runs([run], thread_ids=[target], on_plan=done.append)
        assert_healthy(subject, target, before, done[-1].replay_only)

    ids = sorted(i for ns, i in before if ns == "")
    # A server takes longer, and has the same rows to choose from.
    for n, i in enumerate(ids[::4] if "postgres" in kind else ids):
        subject.view.copy_thread(subject.id, f"at {n}", checkpoint_id=i)
        assert subject.verify(f"at {n}").findings == ()
        assert subject.read(f"at {n}", "", i) == before["", i]


class PlainStrict(StrictDeltaHistoryMixin, InMemorySaver):
    """A saver with a reader of its own, and none of the hooks."""


def test_a_saver_without_hooks(open_subject, corpus_thread):
    with open_subject("memory", *corpus_thread) as subject:
        plain = PlainStrict()
        for store in ("storage", "writes", "blobs"):
            getattr(plain, store).update(getattr(subject.view.saver, store))
        report = verify_thread(plain, subject.id)
        assert report.findings == ()
        assert report.checkpoints == len(subject.stored())
        assert not report.orphans_checked
        before = subject.read_all()
        with open_saver(lambda: plain) as view:
            subject.view = view
            assert subject.read_all() == before


class StrictMemory(StrictDeltaHistoryMixin, DeltaInMemorySaver):
    pass


class StrictSqlite(StrictDeltaHistoryMixin, DeltaSqliteSaver):
    pass


def read_strictly(view, thread, history):
    """The histories that a host asks for, or "severed", by checkpoint and channel."""
    found = {}
    for saved in view.list(view.config(thread, None)):
        checkpoint = saved.checkpoint
        key = (saved.config["configurable"]["checkpoint_ns"], checkpoint["id"])
        config = view.config(thread, *key)
        for channel in history.delta_channels:
            values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
            if channel in versions and channel not in values:
                try:
                    read = view.get_delta_channel_history(config=config, channels=[channel])
                except SeveredHistoryError:
                    read = "severed"
                found[(*key, channel)] = read
    return found


@pytest.mark.parametrize(
    "maker",
    [StrictMemory, lambda: StrictSqlite.from_conn_string(":memory:")],
    ids=["memory", "sqlite"],
)
@example(
    # A row of an old release that a prune detached, at the step of a thread's first update.
    history=ThreadHistory(
        (Channel("items", snapshot_every=1, plain_rows=2), Channel("log", snapshot_every=1)),
        (
            Step((("items", "log"),), source="update"),
            Step(source="update", old=True),
            Step((("log",),), source="update"),
        ),
    ),
    pruning=Pruning(),
    runs=["run 0"],
)
@given(history=thread_histories(max_steps=24), pruning=prunings(), runs=run_selections())
def test_random_threads(maker, history, pruning, runs):
    with open_saver(maker) as view:
        write_history(view, history, "t")
        before = read_strictly(view, "t", history)
        keys = {
            (s.config["configurable"]["checkpoint_ns"], s.checkpoint["id"])
            for s in view.list(view.config("t", None))
        }
        assert "severed" not in before.values()
        assert_sound(view, "t", history, before)
        if keys:
            view.copy_thread("t", "copy")
            done = []
            view.delete_for_runs(runs, thread_ids=["copy"], on_plan=done.append)
            rootless = {key for plan in done for key in plan.replay_only}
            assert_sound(view, "copy", history, before, rootless)
        (plan,) = view.plan_prune(["t"], **pruning.options(keys)) or [None]
        pruning.clean(view, "t", keys)
        assert_sound(view, "t", history, before, plan.replay_only if plan else ())


def assert_sound(view, thread, history, before, rootless=()):
    """No finding, and each read is as before or raises where it may."""
    for declared in ((), history.delta_channels):
        report = verify_thread(view.saver, thread, channels=declared)
        assert [*map(str, report.findings)] == []
    for (ns, i, channel), read in read_strictly(view, thread, history).items():
        lawful = read == before[ns, i, channel]
        assert lawful or (read == "severed" and (ns, i) in rootless), (ns, i, channel)


@given(history=thread_histories(max_steps=24, old_releases=False), keep=st.integers(1, 3))
def test_random_threads_pruned_naively(history, keep):
    """What a naive prune changes at the newest checkpoint is found, and does not read."""
    with open_saver(StrictMemory) as view:
        write_history(view, history, "t")
        before = read_strictly(view, "t", history)
        heads = {}
        for ns, rows in view.saver.storage["t"].items():
            heads[ns] = max(rows)
            for i in sorted(rows)[:-keep]:
                del rows[i]
                view.saver.writes.pop(("t", ns, i), None)
        plain = open_saver(DeltaInMemorySaver)
        with plain as host:
            for store in ("storage", "writes", "blobs"):
                getattr(host.saver, store).update(getattr(view.saver, store))
            now = read_strictly(host, "t", history)
        after = read_strictly(view, "t", history)
        report = verify_thread(view.saver, "t", channels=history.delta_channels)
        for (ns, i, channel), read in now.items():
            if read != before[ns, i, channel]:
                assert after[ns, i, channel] == "severed"
                if i == heads[ns]:
                    told = {(f.checkpoint_ns, f.channel) for f in report.findings}
                    assert (ns, channel) in told
