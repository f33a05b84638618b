"""No false alarm: threads of six releases, before and after every operation, on five savers."""

from __future__ import annotations

import itertools

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
