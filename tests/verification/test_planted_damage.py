"""Damage of every kind, planted in threads of the corpus on five savers, is found.

A test damages a thread behind the saver's back and looks which values of the newest checkpoints
have changed. Each change must be told as an error, and a read of it must raise where rows are
missing. What changes nothing must not be told as an error.
"""

from __future__ import annotations

import itertools

import pytest

from delta_mixin import SeveredHistoryError

RELEASES = ("1.2.0", "1.2.5", "1.2.8", "1.2.10", "1.2.15", "1.2.24")

UNTOLD = {
    ("1.2.0", "update_after_run"),
    ("1.2.0", "update_ephemeral"),
    ("1.2.0", "update_twice"),
    ("1.2.5", "update_after_run"),
    ("1.2.5", "update_ephemeral"),
    ("1.2.5", "update_once"),
    ("1.2.5", "update_twice"),
    ("1.2.8", "update_after_run"),
    ("1.2.8", "update_ephemeral"),
    ("1.2.8", "update_twice"),
} | {(r, thread) for r in RELEASES for thread in ("delta_left_out", "plain_delta_plain")}
"""Where the newest row counts nothing, and stands alone with no parent, it could be a thread
without a delta channel: only naming the channel tells."""


def naive_prune(subject, *, clear=False):
    """Keep the newest row of each namespace, as savers do that know nothing of delta channels."""
    heads = subject.heads()
    for ns, head in heads.items():
        doomed = [i for n, i in subject.stored() if n == ns and i != head]
        parent = subject.row(ns, head).parent_id
        subject.store.drop_rows(subject.id, ns, doomed)
        if clear and parent is not None:
            subject.store.set_parent(subject.id, ns, head, None)


def cut_middle(subject, *, clear=False):
    """Delete one row in the middle of each namespace's chain."""
    for ns, head in subject.heads().items():
        chain = subject.chain(ns, head)
        if len(chain) > 2:
            middle = len(chain) // 2
            subject.store.drop_rows(subject.id, ns, [chain[middle].checkpoint_id])
            if clear:
                subject.store.set_parent(subject.id, ns, chain[middle - 1].checkpoint_id, None)


DAMAGES = {
    "keep_latest": naive_prune,
    "keep_latest, parents cleared": lambda s: naive_prune(s, clear=True),
    "a row cut out": cut_middle,
    "a row cut out, parent cleared": lambda s: cut_middle(s, clear=True),
}


def read_heads(subject):
    return {(ns, i): subject.unchecked(ns, i) for ns, i in subject.heads().items()}


def changed(before, after):
    return {
        (*key, channel)
        for key, histories in before.items()
        for channel, history in histories.items()
        if after[key][channel] != history
    }


def errors(report):
    return {(f.checkpoint_ns, f.channel) for f in report.findings if f.severity == "error"}


def test_missing_rows_are_found_and_not_read_over(subject, corpus_thread):
    for damage in DAMAGES:
        assert_found(subject.copied(damage), corpus_thread, damage)


def assert_found(subject, corpus_thread, damage):
    before = read_heads(subject)
    DAMAGES[damage](subject)
    affected = changed(before, read_heads(subject))
    lost = {(ns, channel) for ns, _, channel in affected}
    if corpus_thread == ("1.2.5", "update_once") and "cleared" in damage:
        # What is left equals what langgraph 1.2.0 stored, which lost this write by itself.
        assert subject.verify(channels=sorted(subject.delta)).findings == ()
        return
    assert lost == errors(subject.verify(channels=sorted(subject.delta)))
    report = subject.verify()
    assert errors(report) <= lost
    if lost and not ("cleared" in damage and corpus_thread in UNTOLD):
        assert not report.healthy
        assert lost == errors(report) or corpus_thread in UNTOLD
    for ns, i, channel in affected:
        config = subject.view.config(subject.id, ns, i)
        with pytest.raises(SeveredHistoryError) as caught:
            subject.view.get_delta_channel_history(config=config, channels=[channel])
        told_of = str(caught.value)
        for part in (subject.id, ns, i, channel, "backup"):
            assert part in told_of
        parents = [subject.row(ns, i).parent_id for n, i in subject.stored() if n == ns]
        missing = {p for p in parents if p and (ns, p) not in subject.stored()}
        assert not missing or any(p in told_of for p in missing)


def test_the_damage_is_no_empty_threat(open_subject, kind):
    with open_subject(kind, "1.2.24", "fork") as subject:
        before = read_heads(subject)
        naive_prune(subject)
        assert changed(before, read_heads(subject))
        assert [f.kind for f in subject.verify().findings] == ["severed"]


def test_dropped_writes_of_any_row_are_found(open_subject, kind, release):
    for thread in ("linear", "fork", "exit_durability", "parallel", "update_after_run", "subgraph"):
        with open_subject(kind, release, thread) as subject:
            rows = [subject.row(*key) for key in subject.stored()]
            stored = {
                (ns, row.checkpoint_id, channel)
                for row in rows
                for ns in [row.checkpoint_ns]
                for channel in row.write_channels & subject.delta
                # Writes that no child has consumed are pending; a child's value replaces others.
                if any(
                    r.parent_id == row.checkpoint_id and channel not in r.populated for r in rows
                )
            }
            assert stored
            for n, (ns, i, channel) in enumerate(sorted(stored)[::3]):
                target = f"{thread} {n}"
                subject.view.copy_thread(thread, target)
                subject.store.drop_writes(target, ns, i, channel)
                found = [f for f in subject.verify(target).findings if f.kind == "dropped writes"]
                assert [(f.checkpoint_ns, f.checkpoint_id, f.channel) for f in found] == [
                    (ns, i, channel)
                ]


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "exit_durability")], indirect=True)
def test_some_dropped_writes_of_a_run_that_stored_at_its_exit_are_found(subject):
    anchor = next(
        row
        for row in (subject.row(*key) for key in subject.stored())
        if row.parent_id is not None and "log" in row.write_channels
    )
    subject.store.drop_writes(subject.id, "", anchor.checkpoint_id, "log", keep=2)
    (found,) = subject.verify().findings
    assert (found.kind, found.checkpoint_id) == ("dropped writes", anchor.checkpoint_id)
    assert "2 are stored" in found.what


@pytest.mark.parametrize("thread", ["linear", "two_delta", "mixed_durability"])
def test_dropped_snapshots_are_found(open_subject, kind, release, thread):
    with open_subject(kind, release, thread) as subject:
        subject.view.prune([subject.id])
        dropped = subject.store.drop_snapshots(subject.id)
        assert dropped
        # Of the first, one row without a counter is left: only naming the channel tells.
        report = subject.verify(channels=["log"] if thread == "linear" else ())
        kinds = {(f.checkpoint_ns, f.channel): f.kind for f in report.findings}
        assert kinds.keys() == dropped
        expected = "missing blob" if subject.store.has_blobs else "cut off"
        assert {f.kind for f in report.findings} >= {expected}


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "fork")], indirect=True)
def test_a_row_stored_again_under_its_descendant_is_found(subject, kind):
    chain = subject.chain("", subject.heads()[""])
    again = chain[4]
    assert not any("log" in row.populated for row in chain[:5])
    subject.store.set_parent(subject.id, "", again.checkpoint_id, chain[1].checkpoint_id)
    (loop,) = [f for f in subject.verify().findings if f.kind == "loop"]
    assert loop.checkpoint_id == again.checkpoint_id
    assert loop.severity == "error"
    if "postgres" in kind:
        return  # the host's reader would walk the loop for ever
    config = subject.view.config(subject.id, "", chain[0].checkpoint_id)
    with pytest.raises(SeveredHistoryError, match="its own descendant"):
        subject.view.get_delta_channel_history(config=config, channels=["log"])


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "linear")], indirect=True)
def test_orphans_are_noted(subject):
    head = subject.row("", subject.heads()[""])
    lost = "1ffffff0-0000-6000-8000-000000000000"
    config = subject.view.config(subject.id, "", lost)
    subject.view.put_writes(config, [("log", ["never"])], "00000000-0000-0000-0000-000000000001")
    expected = {("orphaned writes", lost)}
    if subject.store.has_blobs:
        subject.store.add_blob(subject.id, "")
        expected.add(("orphaned blob", None))
    report = subject.verify()
    assert {(f.kind, f.checkpoint_id) for f in report.findings} == expected
    assert {f.severity for f in report.findings} == {"note"}
    assert report.healthy
    assert report.orphans_checked
    assert head.checkpoint_id in [i for _, i in subject.stored()]


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "linear")], indirect=True)
def test_a_parent_that_no_reader_needs_is_noted(subject):
    # The newest snapshot of the thread: what lies above it is of no reader's concern.
    chain = subject.chain("", subject.heads()[""])
    seed = next(n for n, row in enumerate(chain) if "log" in row.snapshots)
    older = [row.checkpoint_id for row in chain[seed + 1 :]]
    subject.store.drop_rows(subject.id, "", older)
    (found,) = subject.verify().findings
    assert (found.kind, found.severity) == ("dangling parent", "note")
    assert found.checkpoint_id == chain[seed].checkpoint_id


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "linear")], indirect=True)
def test_damage_that_only_older_checkpoints_show_is_a_warning(subject):
    chain = subject.chain("", subject.heads()[""])
    seed = next(n for n, row in enumerate(chain) if "log" in row.snapshots)
    subject.store.drop_rows(subject.id, "", [chain[seed + 3].checkpoint_id])
    (found,) = subject.verify().findings
    assert (found.kind, found.severity) == ("severed", "warning")
    assert found.checkpoint_id == chain[seed + 2].checkpoint_id
    assert str(chain[seed + 3].checkpoint_id) in found.what


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "linear")], indirect=True)
def test_a_stored_true_is_no_lost_snapshot(subject):
    head = subject.row("", subject.heads()[""])
    saved = subject.view.get_tuple(subject.view.config(subject.id, "", head.checkpoint_id))
    checkpoint = {
        **saved.checkpoint,
        "id": "1f9fffff-0000-6000-8000-000000000000",
        "channel_values": {**saved.checkpoint["channel_values"], "flag": True},
        "channel_versions": {**saved.checkpoint["channel_versions"], "flag": "1"},
    }
    subject.view.put(saved.config, checkpoint, {"source": "loop", "step": 36}, {"flag": "1"})
    assert subject.row("", checkpoint["id"]).populated >= {"flag"}
    assert subject.verify().findings == ()


@pytest.mark.parametrize("kind", ["memory"], indirect=True)
@pytest.mark.parametrize("corpus_thread", [("1.2.24", "linear")], indirect=True)
def test_a_value_that_was_deleted_with_another_row_is_found(subject):
    # As a saver does that deletes a row's blobs without a look at who else refers to them.
    rows = [subject.row(*key) for key in sorted(subject.stored())]
    pairs = itertools.pairwise(rows)
    older, newer = next(
        (a, b)
        for a, b in pairs
        if a.channel_versions.get("n") == b.channel_versions.get("n") is not None
    )
    version = newer.channel_versions["n"]
    subject.store.drop_rows(subject.id, "", [older.checkpoint_id])
    assert [f.kind for f in subject.verify().findings if f.channel == "n"] == []
    del subject.store.saver.blobs[subject.id, "", "n", version]
    (found,) = [f for f in subject.verify().findings if f.channel == "n"]
    assert (found.kind, found.severity) == ("missing blob", "error")
    assert found.checkpoint_id == newer.checkpoint_id
    assert version in found.what
