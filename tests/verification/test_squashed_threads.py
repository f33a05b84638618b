"""Base rows are no damage: threads of six releases, squashed in every way, on five savers."""

from __future__ import annotations


def test_no_alarm_after_a_squash(subject, kind):
    before = subject.read_all()
    done = []
    for n, options in enumerate(({}, {"keep_last": 3}, {"pinned": [i for _, i in before][::3]})):
        target = f"squashed {n}"
        subject.view.copy_thread(subject.id, target)
        subject.view.prune([target], delta="squash", on_plan=done.append, **options)
        assert_roots_read_as_before(subject, target, before, done[-1])

    if "postgres" in kind:
        return  # it takes longer, and the rest is planned alike
    configs = [subject.view.config(subject.id, *key) for key in before]
    runs = {subject.view.get_tuple(config).metadata.get("run_id") for config in configs}
    for run in sorted(runs - {None}):
        subject.view.copy_thread(subject.id, f"without {run}")
        subject.view.delete_for_runs(
            [run], thread_ids=[f"without {run}"], delta="squash", on_plan=done.append
        )
        assert_roots_read_as_before(subject, f"without {run}", before, done[-1])

    ids = sorted(i for ns, i in before if ns == "")
    for n, i in enumerate(ids[::2]):
        subject.view.copy_thread(subject.id, f"at {n}", checkpoint_id=i, delta="squash")
        assert subject.verify(f"at {n}").findings == ()
        assert subject.read(f"at {n}", "", i).keys() == before["", i].keys()


def assert_roots_read_as_before(subject, thread, before, plan):
    assert subject.verify(thread).findings == ()
    assert subject.verify(thread, channels=sorted(subject.delta)).findings == ()
    roots = plan.kept.keys() - {*plan.replay_only}
    for (ns, i), histories in subject.read_all(thread).items():
        if (ns, i) in roots:
            for channel, history in histories.items():
                assert values(history) == values(before[ns, i][channel]), (ns, i, channel)


def values(history):
    """A history without the ids of tasks, which are others in a base row."""
    assert history != "severed"
    return history.get("seed"), [value for _, _, value in history["writes"]]
