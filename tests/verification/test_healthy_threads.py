"""No false alarm: threads of six releases, before and after every operation, on five savers."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin import StrictDeltaHistoryMixin
from delta_mixin.adapters.memory import DeltaInMemorySaver
from delta_mixin.testing import prunings, thread_histories, write_history
from delta_mixin.testing._bridge import open_saver
from delta_mixin.testing.strategies import run_selections
from delta_mixin.verification import verify_thread


def assert_healthy(subject, thread, before, rootless=()):
    """No finding; each checkpoint reads as before, or is one kept for others' sake and raises."""
    assert subject.verify(thread).findings == ()
    for key, histories in subject.read_all(thread).items():
        for channel, history in histories.items():
            lawful = history == before[key][channel]
            assert lawful or (history == "severed" and key in rootless), (key, channel)


def test_threads_as_their_release_left_them(subject):
    before = subject.read_all()
    assert "severed" not in [h for of_row in before.values() for h in of_row.values()]
    assert_healthy(subject, subject.id, before)


PRUNES = ({}, {"keep_last": 3}, {"pinned": ...}, {"delta": "skip"})


@pytest.mark.parametrize("options", PRUNES, ids=repr)
def test_after_a_prune(subject, options):
    before = subject.read_all()
    if "pinned" in options:
        options = {"pinned": [i for _, i in sorted(subject.keys())[::3]]}
    done = []
    subject.view.prune([subject.id], on_plan=done.append, **options)
    rootless = {key for plan in done for key in plan.replay_only}
    assert_healthy(subject, subject.id, before, rootless)


def test_after_deleting_each_run(subject):
    before = subject.read_all()
    runs = defaultdict(set)
    for ns, i in subject.keys():
        config = subject.view.config(subject.id, ns, i)
        runs[subject.view.get_tuple(config).metadata.get("run_id")].add((ns, i))
    for n, run in enumerate(filter(None, runs)):
        target = f"copy {n}"
        subject.view.copy_thread(subject.id, target)
        assert_healthy(subject, target, before)
        done = []
        subject.view.delete_for_runs([run], thread_ids=[target], on_plan=done.append)
        rootless = {key for plan in done for key in plan.replay_only}
        assert_healthy(subject, target, before, rootless)


def test_after_copying_at_each_checkpoint(subject):
    before = subject.read_all()
    for n, (_, i) in enumerate(k for k in subject.keys() if k[0] == ""):
        target = f"copy {n}"
        subject.view.copy_thread(subject.id, target, checkpoint_id=i)
        assert subject.verify(target).findings == ()
        assert subject.read(target, "", i) == before["", i]


class PlainStrict(StrictDeltaHistoryMixin, InMemorySaver):
    """A saver with a reader of its own, and none of the hooks."""


def test_a_saver_without_hooks(open_subject, corpus_thread):
    with open_subject("memory", *corpus_thread) as subject:
        plain = PlainStrict()
        for store in ("storage", "writes", "blobs"):
            getattr(plain, store).update(getattr(subject.view.saver, store))
        report = verify_thread(plain, subject.id)
        assert report.findings == ()
        assert report.checkpoints == len(subject.keys())
        assert not report.orphans_checked
        before = subject.read_all()
        with open_saver(lambda: plain) as view:
            subject.view = view
            assert subject.read_all() == before


@pytest.mark.parametrize("maker", [DeltaInMemorySaver])
@given(history=thread_histories(max_steps=24), pruning=prunings(), runs=run_selections())
def test_random_threads(maker, history, pruning, runs):
    with open_saver(maker) as view:
        write_history(view, history, "t")
        keys = {
            (s.config["configurable"]["checkpoint_ns"], s.checkpoint["id"])
            for s in view.list(view.config("t", None))
        }
        assert [*map(str, verify_thread(view.saver, "t").findings)] == []
        if keys:
            view.copy_thread("t", "copy")
            view.delete_for_runs(runs, thread_ids=["copy"])
            assert [*map(str, verify_thread(view.saver, "copy").findings)] == []
        pruning.clean(view, "t", keys)
        assert [*map(str, verify_thread(view.saver, "t").findings)] == []
