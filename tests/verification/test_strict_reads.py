"""Strict reads: which savers, at what cost, and what they say."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from delta_mixin import DeltaMixinError, SeveredHistoryError, StrictDeltaHistoryMixin
from delta_mixin.adapters.memory import DeltaInMemorySaver


class Counted:
    """Counts what is looked up; put first in the bases."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.lookups = Counter()

    def get_tuple(self, config):
        self.lookups["get_tuple"] += 1
        return super().get_tuple(config)

    async def aget_tuple(self, config):
        self.lookups["get_tuple"] += 1
        return await super().aget_tuple(config)

    def list(self, config, **options):
        self.lookups["list"] += 1
        return super().list(config, **options)

    async def alist(self, config, **options):
        self.lookups["list"] += 1
        async for saved in super().alist(config, **options):
            yield saved


class InMemoryByBaseWalk(InMemorySaver):
    """A third party's saver that knows nothing of delta channels: the base class walks."""

    get_delta_channel_history = BaseCheckpointSaver.get_delta_channel_history
    aget_delta_channel_history = BaseCheckpointSaver.aget_delta_channel_history


HOSTS = {
    "base walk": InMemoryByBaseWalk,
    "own reader": InMemorySaver,
    "own reader and hook": DeltaInMemorySaver,
}


@pytest.fixture(params=HOSTS)
def savers(request, open_subject, corpus_thread):
    """A thread of the corpus in the host's saver and a strict one."""
    host = HOSTS[request.param]

    class Plain(Counted, host):
        pass

    class Strict(Counted, StrictDeltaHistoryMixin, host):
        pass

    with open_subject("memory", *corpus_thread) as subject:
        made = []
        for cls in (Plain, Strict):
            saver = cls()
            for store in ("storage", "writes", "blobs"):
                getattr(saver, store).update(copy.deepcopy(getattr(subject.view.saver, store)))
            made.append(saver)
        yield subject, *made


def test_a_healthy_read_costs_at_most_one_lookup_more(savers):
    subject, plain, strict = savers
    costly = 0
    for ns, i in subject.stored():
        config = subject.view.config(subject.id, ns, i)
        for channel in sorted(subject.delta):
            for saver in (plain, strict):
                saver.lookups.clear()
            arguments = {"config": config, "channels": [channel]}
            history = plain.get_delta_channel_history(**arguments)
            assert strict.get_delta_channel_history(**arguments) == history
            more = sum(strict.lookups.values()) - sum(plain.lookups.values())
            assert more <= ("seed" not in history[channel])
            costly += more
            strict.lookups.clear()
            found = asyncio.run(strict.aget_delta_channel_history(**arguments))
            assert found == history
    # The base class's walk is watched: it costs nothing to know where it ended.
    assert not (costly and isinstance(strict, InMemoryByBaseWalk))


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "fork")], indirect=True)
def test_a_severed_read_raises_on_both_sides(savers):
    subject, plain, strict = savers
    head = subject.heads()[""]
    parent = subject.row("", head).parent_id
    config = subject.view.config(subject.id, "", head)
    arguments = {"config": config, "channels": ["log"]}
    assert strict.get_delta_channel_history(**arguments)["log"]["writes"]
    for saver in (plain, strict):
        del saver.storage[subject.id][""][parent]
    assert not plain.get_delta_channel_history(**arguments)["log"]["writes"]
    for read in (
        lambda: strict.get_delta_channel_history(**arguments),
        lambda: asyncio.run(strict.aget_delta_channel_history(**arguments)),
    ):
        with pytest.raises(SeveredHistoryError, match=parent) as caught:
            read()
        assert isinstance(caught.value, DeltaMixinError)
        assert caught.value.threads == (subject.id,)
        assert "recover" in str(caught.value)


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "fork")], indirect=True)
def test_the_newest_checkpoint_is_read_without_its_id(savers):
    subject, plain, strict = savers
    config = subject.view.config(subject.id, "", None)
    if not plain.get_delta_channel_history(config=config, channels=["log"])["log"]["writes"]:
        pytest.skip("the in-memory saver of this release reads nothing without an id")
    assert strict.get_delta_channel_history(config=config, channels=["log"])["log"]["writes"]
    parent = subject.row("", subject.heads()[""]).parent_id
    del strict.storage[subject.id][""][parent]
    with pytest.raises(SeveredHistoryError, match=parent):
        strict.get_delta_channel_history(config=config, channels=["log"])


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "two_delta")], indirect=True)
def test_a_channel_that_was_never_written_has_no_history_to_miss(savers):
    subject, _, strict = savers
    for ns, i in subject.stored():
        config = subject.view.config(subject.id, ns, i)
        arguments = {"config": config, "channels": ["never", "no such channel"]}
        assert strict.get_delta_channel_history(**arguments) == {
            "never": {"writes": []},
            "no such channel": {"writes": []},
        }


@pytest.mark.parametrize("corpus_thread", [("1.2.24", "linear")], indirect=True)
def test_unknown_checkpoints_read_as_empty_as_before(savers):
    _, plain, strict = savers
    config = {"configurable": {"thread_id": "none", "checkpoint_ns": "", "checkpoint_id": "x"}}
    arguments = {"config": config, "channels": ["log"]}
    expected = {"log": {"writes": []}}
    assert plain.get_delta_channel_history(**arguments) == expected
    assert strict.get_delta_channel_history(**arguments) == expected


def test_a_listing_that_leaves_rows_out_is_no_damage(open_subject):
    class Forgetful(StrictDeltaHistoryMixin, InMemorySaver):
        def list(self, config, **options):
            yield from [*super().list(config, **options)][:2]

    with open_subject("memory", "1.2.24", "fork") as subject:
        saver = Forgetful()
        for store in ("storage", "writes", "blobs"):
            getattr(saver, store).update(copy.deepcopy(getattr(subject.view.saver, store)))
        config = subject.view.config(subject.id, "", subject.heads()[""])
        expected = subject.read(subject.id, "", subject.heads()[""])
        assert saver.get_delta_channel_history(config=config, channels=["log"]) == expected


def test_the_mixin_comes_before_the_saver():
    with pytest.raises(TypeError, match="before the saver"):

        class Wrong(InMemorySaver, StrictDeltaHistoryMixin):
            pass


def test_the_five_savers_ask_their_store_once(open_subject, kind):
    with open_subject(kind, "1.2.24", "fork") as subject:
        saver = subject.view.saver
        calls = []
        for name in ("_read_history_end", "_aread_history_end", "list", "alist"):
            hook = getattr(saver, name)
            setattr(saver, name, lambda *a, hook=hook, name=name: (calls.append(name), hook(*a))[1])
        seedless = 0
        for ns, i in subject.stored():
            del calls[:]
            found = subject.read(subject.id, ns, i)
            without = sum("seed" not in history for history in found.values())
            assert len(calls) == without
            seedless += without
        assert seedless
