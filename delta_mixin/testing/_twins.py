"""Threads with twins: each is written twice with the same calls, and one of the two is cleaned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing.histories import NAMESPACES, Channel
from delta_mixin.testing.oracle import Key, Reading, Stored, read_thread
from delta_mixin.testing.writing import HistoryBuilder, Put, PutWrites

TWIN = "twin of "

Readings = dict[Key, Reading]


@dataclass(eq=False)
class Pair:
    """A thread and its twin.

    Attributes:
        thread_id: The thread.
        builder: Knows the checkpoints that must be readable.
        stored: Keys of the checkpoints that must be stored.
        log: The calls that wrote it.
        squashed: Whether some of it stands in base rows now.
        reserved: By namespace, a checkpoint whose writes are stored before itself.
        readings: The thread as last read; `None` if that is out of date.
        twin_readings: The same of the twin.
    """

    thread_id: str
    builder: HistoryBuilder
    stored: set[Key] = field(default_factory=set)
    log: list[Put | PutWrites] = field(default_factory=list)
    squashed: bool = False
    reserved: dict[str, str] = field(default_factory=dict)
    readings: Readings | None = None
    twin_readings: Readings | None = None

    @property
    def twin_id(self) -> str:
        """The thread that is never cleaned."""
        return TWIN + self.thread_id

    def keep_readable(self, keys: Collection[Key]) -> None:
        """Go on from no other checkpoint than these."""
        self.builder.forget([key for key in self.builder.rows if key not in keys])


class TwinThreads:
    """The threads of a saver that are in play.

    Args:
        view: The saver.
        channels: Channels of the graph that writes the threads.
    """

    def __init__(self, view: SyncView, channels: tuple[Channel, ...]) -> None:
        self.view = view
        self.channels = channels
        self.pairs: list[Pair] = []

    def is_used(self, thread_id: str) -> bool:
        """Whether there is such a thread."""
        return any(pair.thread_id == thread_id for pair in self.pairs)

    def at(self, index: int) -> Pair:
        """The pair at an index, which may be too large."""
        return self.pairs[index % len(self.pairs)]

    def at_all(self, indices: Iterable[int]) -> list[Pair]:
        """The pairs at some indices, each once."""
        return list(dict.fromkeys(map(self.at, indices)))

    def add(self, thread_id: str) -> Pair:
        """A pair without checkpoints."""
        return self._add(
            Pair(thread_id, HistoryBuilder(self.channels, self.view.saver.get_next_version))
        )

    def add_copy(
        self, source: Pair, thread_id: str, stored: set[Key], readable: Collection[Key]
    ) -> Pair:
        """The pair of a thread that is stored already, as a copy; the twin is written anew."""
        copy = Pair(thread_id, source.builder.branch(readable), set(stored), list(source.log))
        copy.squashed = source.squashed
        self._add(copy)
        for call in copy.log:
            _of_twin(call).perform(self.view, copy.twin_id)
        return copy

    def remove(self, pair: Pair) -> None:
        """Forget a thread that has been deleted, and what a run stored ahead of a checkpoint."""
        self.view.delete_thread(pair.thread_id)
        self.pairs.remove(pair)

    def perform(self, pair: Pair, calls: Iterable[Put | PutWrites]) -> None:
        """Write to a thread and its twin."""
        for call in calls:
            call.perform(self.view, pair.thread_id)
            _of_twin(call).perform(self.view, pair.twin_id)
            pair.log.append(call)
            if isinstance(call, Put):
                pair.stored.add((call.ns, call.checkpoint["id"]))
        pair.readings = pair.twin_readings = None

    def read(self) -> Iterator[tuple[Pair, Readings]]:
        """The threads as they are, read where that may have changed."""
        for pair in self.pairs:
            if pair.readings is None:
                pair.readings = self._read(pair.thread_id)
            yield pair, pair.readings

    def read_all(self) -> dict[str, Readings]:
        """The same by thread id."""
        return {pair.thread_id: readings for pair, readings in self.read()}

    def read_again(self) -> dict[str, Readings]:
        """Read all threads after a cleanup, which may have reached any of them."""
        for pair in self.pairs:
            pair.readings = pair.twin_readings = None
        return self.read_all()

    def read_twin(self, pair: Pair) -> Readings:
        """The twin, with the runs named as in the thread."""
        if pair.twin_readings is None:
            readings = self._read(pair.twin_id)
            pair.twin_readings = {key: _as_thread(reading) for key, reading in readings.items()}
        return pair.twin_readings

    def _add(self, pair: Pair) -> Pair:
        self.view.delete_thread(pair.twin_id)  # of a deleted thread with the same id
        self.pairs.append(pair)
        return pair

    def _read(self, thread_id: str) -> Readings:
        return read_all_of(
            self.view, thread_id, [c.name for c in self.channels if c.kind == "delta"]
        )


def read_all_of(view: SyncView, thread_id: str, channels: Collection[str]) -> Readings:
    """Every checkpoint of a thread that `write_history` wrote."""
    # A saver that needs this hook has a `list` that does not show every namespace.
    hidden = NAMESPACES if view.saver._writes_hook("_list_namespaces") else ()
    return read_thread(view, thread_id, channels, hidden)


def expect_equal(
    expected: Reading, found: Reading | None, where: str, *, squashed: bool = False
) -> None:
    """Fail with a line per part in which the two differ.

    Args:
        expected: What must be read.
        found: What is.
        where: Names the checkpoint.
        squashed: Whether writes may have moved to base rows in between.
    """
    assert found is not None, f"{where} is gone"
    if squashed:
        expected, found = expected.by_value(), found.by_value()
    assert expected == found, "\n".join(
        [f"{where} reads differently", *expected.differences(found)]
    )


def _of_twin(call: Put | PutWrites) -> Put | PutWrites:
    # Runs of the twin have names of their own, or deleting runs would reach it.
    if isinstance(call, Put) and "run_id" in call.metadata:
        return call._replace(metadata={**call.metadata, "run_id": TWIN + call.metadata["run_id"]})
    return call


def _as_thread(reading: Reading) -> Reading:
    metadata = dict(reading.metadata.value or {})
    if "run_id" in metadata:
        metadata["run_id"] = metadata["run_id"].removeprefix(TWIN)
    return replace(reading, metadata=Stored(metadata))
