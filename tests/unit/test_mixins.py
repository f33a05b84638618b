from __future__ import annotations

import asyncio
import threading
from uuid import UUID

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin import (
    CheckpointNotFoundError,
    CopyAndDeleteForRunsMixin,
    DeltaChannelAwarePruneMixin,
    DeltaThreadRefusedError,
    MissingHookError,
    SeveredHistoryError,
    TargetThreadExistsError,
    ThreadNotFoundError,
    UnknownDeltaChannelsError,
)
from delta_mixin.adapters.memory import DeltaInMemorySaver


def put(saver, thread_id, parent=None, ns="", values=(), versions=None, **metadata):
    conf = {"thread_id": thread_id, "checkpoint_ns": ns}
    if parent:
        conf["checkpoint_id"] = parent
    values = dict(values)
    versions = versions if versions is not None else dict.fromkeys(values, "1")
    checkpoint = {
        "v": 4,
        "id": str(uuid6()),
        "ts": "",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {},
        "updated_channels": None,
    }
    saver.put({"configurable": conf}, checkpoint, {"source": "loop", **metadata}, versions)
    return checkpoint["id"]


def put_delta_thread(saver, thread_id):
    first = put(saver, thread_id, versions={"m": "1"}, counters_since_delta_snapshot={"m": [1, 1]})
    return put(
        saver, thread_id, first, versions={"m": "1"}, counters_since_delta_snapshot={"m": [2, 2]}
    )


def put_severed_thread(saver, thread_id):
    put(saver, thread_id)
    return put(
        saver, thread_id, "gone", versions={"m": "1"}, counters_since_delta_snapshot={"m": [2, 2]}
    )


def put_plain_thread(saver, thread_id):
    return put(saver, thread_id, put(saver, thread_id))


def count(saver, thread_id):
    return len(list(saver.list({"configurable": {"thread_id": thread_id}})))


class TestOrderOfBases:
    @pytest.mark.parametrize("mixin", [DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin])
    def test_a_mixin_behind_the_saver_is_refused(self, mixin):
        with pytest.raises(TypeError, match="Put the mixin before the saver"):
            type("Wrong", (InMemorySaver, mixin), {})

    def test_a_saver_in_between_whose_method_would_win_is_refused(self):
        class Theirs(InMemorySaver):
            def prune(self, thread_ids, *, strategy="keep_latest"):
                """Loses state."""

        with pytest.raises(TypeError, match=r"Theirs\.prune would be called instead"):
            type("Wrong", (Theirs, DeltaChannelAwarePruneMixin), {})
        type("Right", (DeltaChannelAwarePruneMixin, Theirs), {})

    def test_an_override_in_the_class_itself_is_the_authors_business(self):
        class Fine(DeltaInMemorySaver):
            def prune(self, thread_ids, **options):
                super().prune(thread_ids, **options)

        Fine().prune([])


class TestSides:
    def test_without_the_delete_hook_nothing_is_read(self):
        class Bare(DeltaChannelAwarePruneMixin, CopyAndDeleteForRunsMixin, InMemorySaver):
            def list(self, *args, **kwargs):
                raise AssertionError("read")

        for call in (Bare().prune, Bare().delete_for_runs):
            with pytest.raises(MissingHookError, match="Bare does not write the hook"):
                call(["t"])

    def test_sync_hooks_serve_the_async_methods_in_a_worker_thread(self):
        class SyncOnly(DeltaChannelAwarePruneMixin, InMemorySaver):
            def _delete_checkpoint_rows(self, plans):
                self.ran_in = threading.current_thread()

        saver = SyncOnly()
        put_plain_thread(saver, "t")
        asyncio.run(saver.aprune(["t"]))
        assert saver.ran_in is not threading.main_thread()

    def test_async_hooks_alone_make_sync_methods_name_the_async_one(self):
        class AsyncOnly(DeltaChannelAwarePruneMixin, InMemorySaver):
            async def _adelete_checkpoint_rows(self, plans):
                self.plans = plans

        saver = AsyncOnly()
        put_plain_thread(saver, "t")
        with pytest.raises(MissingHookError, match=r"use `await aprune\(...\)`"):
            saver.prune(["t"])
        asyncio.run(saver.aprune(["t"]))
        assert len(saver.plans) == 1

    def test_a_sync_hook_without_twin_beside_async_ones_is_still_used(self):
        class Mixed(DeltaChannelAwarePruneMixin, InMemorySaver):
            def _list_namespaces(self, thread_id):
                return ["", "hidden"]

            async def _adelete_checkpoint_rows(self, plans):
                self.plans = plans

        saver = Mixed()
        put_plain_thread(saver, "t")
        put(saver, "t", ns="hidden")
        asyncio.run(saver.aprune(["t"]))
        assert set(saver.plans[0].heads) == {"", "hidden"}

    def test_an_async_hook_is_never_passed_over_by_a_sync_default(self):
        class Mixed(DeltaChannelAwarePruneMixin, InMemorySaver):
            async def _alist_namespaces(self, thread_id):
                return ["", "hidden"]

            def _delete_checkpoint_rows(self, plans):
                raise AssertionError("planned without the hidden namespace")

        class Scoped(Mixed):
            _alist_namespaces = DeltaChannelAwarePruneMixin._alist_namespaces

            def _acleanup_scope(self, thread_ids):
                raise AssertionError

        saver = Mixed()
        put_plain_thread(saver, "t")
        with pytest.raises(MissingHookError, match="writes the hook _acleanup_scope but not"):
            Scoped().prune(["t"])
        with pytest.raises(MissingHookError, match="_list_namespaces"):
            saver._list_namespaces("t")


class TestBatches:
    @pytest.fixture
    def saver(self):
        saver = DeltaInMemorySaver()
        put_plain_thread(saver, "plain 1")
        put_severed_thread(saver, "severed")
        put_delta_thread(saver, "delta")
        put(saver, "js", put(saver, "js", delta_writes_versioned=True), versions={"m": "1"})
        put_plain_thread(saver, "plain 2")
        return saver

    threads = ("plain 1", "severed", "delta", "js", "plain 2", "unknown")

    @pytest.mark.parametrize("size", [1, 2, 100])
    def test_what_cannot_be_cleaned_is_named_after_the_others_are_done(
        self, saver, size, monkeypatch
    ):
        monkeypatch.setattr(type(saver), "CLEANUP_BATCH_SIZE", size)
        done = []
        with pytest.raises(SeveredHistoryError, match=r"'severed': checkpoint .* parent gone") as e:
            saver.prune(self.threads, on_plan=done.append)
        assert e.value.threads == ("severed",)
        assert isinstance(e.value.__cause__, UnknownDeltaChannelsError)
        assert e.value.__cause__.threads == ("js",)
        assert [plan.thread_id for plan in done] == ["plain 1", "delta", "plain 2"]
        assert {t: count(saver, t) for t in self.threads} == {
            "plain 1": 1,
            "severed": 2,
            "delta": 2,
            "js": 2,
            "plain 2": 1,
            "unknown": 0,
        }

    def test_refuse_names_every_delta_thread_and_deletes_nothing(self, saver):
        with pytest.raises(DeltaThreadRefusedError) as error:
            saver.prune(self.threads, delta="refuse")
        assert error.value.threads == ("severed", "delta", "js")
        assert isinstance(error.value, NotImplementedError)
        assert count(saver, "plain 1") == 2

    def test_skip_passes_delta_threads_over(self, saver):
        done = []
        with pytest.raises(UnknownDeltaChannelsError):
            saver.prune(self.threads, delta="skip", on_plan=done.append)
        assert [plan.thread_id for plan in done] == ["plain 1", "plain 2"]

    def test_a_thread_given_twice_is_cleaned_once(self, saver):
        done = []
        saver.prune(["plain 1", "plain 1"], on_plan=done.append)
        assert len(done) == 1

    def test_a_plan_that_changes_nothing_is_reported_but_not_carried_out(self, saver, monkeypatch):
        saver.prune(["plain 1"])
        monkeypatch.setattr(saver, "_delete_checkpoint_rows", None)
        done = []
        saver.prune(["plain 1"], on_plan=done.append)
        assert [plan.changes for plan in done] == [False]

    def test_an_error_in_on_plan_comes_after_the_deletion(self, saver):
        def stop(plan):
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            saver.prune(["plain 1", "plain 2"], on_plan=stop)
        assert [count(saver, t) for t in ("plain 1", "plain 2")] == [1, 2]

    def test_an_async_on_plan_is_awaited(self, saver):
        done = []

        async def report(plan):
            done.append(plan.thread_id)

        asyncio.run(saver.aprune(["plain 1"], on_plan=report))
        assert done == ["plain 1"]


@pytest.mark.parametrize("key", [7, UUID(int=7)])
def test_the_in_memory_saver_finds_a_thread_under_the_key_the_host_stored(key):
    saver = DeltaInMemorySaver()
    put_plain_thread(saver, key)
    saver.copy_thread(str(key), "copy")
    assert count(saver, "copy") == 2
    saver.prune([str(key)])
    assert count(saver, key) == 1
    saver.prune([key], strategy="delete")
    assert count(saver, key) == 0


def test_a_missing_source_and_a_taken_target_are_refused():
    saver = DeltaInMemorySaver()
    put_plain_thread(saver, "t")
    with pytest.raises(ThreadNotFoundError, match="'nobody' holds no checkpoint"):
        saver.copy_thread("nobody", "new")
    with pytest.raises(TargetThreadExistsError, match="'t' already holds rows"):
        saver.copy_thread("nobody", "t")
    with pytest.raises(CheckpointNotFoundError, match="has no checkpoint 'x'"):
        saver.copy_thread("t", "new", checkpoint_id="x")
    assert count(saver, "new") == 0


def test_rows_of_other_threads_that_a_backend_lists_are_ignored():
    class Sloppy(DeltaInMemorySaver):
        def _list_checkpoint_rows(self, thread_ids):
            return super()._list_checkpoint_rows(list(self.storage))

    saver = Sloppy()
    put_plain_thread(saver, "u")
    put_plain_thread(saver, "u_2")
    saver.prune(["u"])
    assert (count(saver, "u"), count(saver, "u_2")) == (1, 2)


def test_a_hook_that_reads_too_little_is_named():
    class Forgetful(DeltaInMemorySaver):
        def _list_checkpoint_rows(self, thread_ids):
            rows = super()._list_checkpoint_rows(thread_ids)
            return [
                type(r)(r.thread_id, r.checkpoint_ns, r.checkpoint_id, r.parent_id) for r in rows
            ]

        def _read_checkpoint_rows(self, thread_id, keys):
            return []

    saver = Forgetful()
    put_plain_thread(saver, "t")
    with pytest.raises(RuntimeError, match="_read_checkpoint_rows did not fill"):
        saver.prune(["t"])
    assert count(saver, "t") == 2


def test_the_base_class_has_all_methods_the_mixins_offer():
    for mixin, names in (
        (DeltaChannelAwarePruneMixin, ("prune", "aprune")),
        (CopyAndDeleteForRunsMixin, ("copy_thread", "delete_for_runs")),
    ):
        for name in names:
            assert hasattr(BaseCheckpointSaver, name)
            assert hasattr(mixin, name)
