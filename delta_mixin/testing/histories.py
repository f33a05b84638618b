"""Thread histories as data; `writing` turns them into the calls that store them.

1. A history is a tuple of `Step`s. A step says what a run did; ids, versions, counters and
   snapshots follow from it as the host library would store them, so every history is one that
   a graph could have written, and any shorter one is still valid.
2. Writes are stored at the checkpoint they were made from, and the checkpoint that commits them
   is its child. A channel's version moves when it is written; checkpoints share versions of
   channels they did not write. A channel without a version was never written.
3. A delta channel counts updates and supersteps since its last snapshot; counters of zero are
   left out. It stores a snapshot when its updates reach the frequency, at the first checkpoint
   of a thread, and where a branch starts at a checkpoint that has been continued already.
4. `Step.old` stores what langgraph before 1.2.9 did: `update_state` wrote neither counters nor
   snapshots, branches replayed what an abandoned one had left at their base, and the first
   writes of a thread lay at a stub without channels.
5. Every value is unique, so a reader that gets the wrong one is found out.

Source: langgraph `pregel/_loop.py` (`_put_checkpoint`, `_first`), `pregel/_checkpoint.py` and
`pregel/_algo.py` (`apply_writes`), releases 1.2.0 and 1.2.24.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timezone
from typing import Any, Literal
from uuid import UUID

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""When the first checkpoint of a history is stored; the others follow a minute apart."""

ROOT = ""
MEMORY = "memory"
"""Namespace of a `checkpointer=True` subgraph: it outlives calls."""
CALL = "tool:8f1c0f6e-0000-4000-8000-00000000000a"
OTHER_CALL = "tool:8f1c0f6e-0000-4000-8000-00000000000b"
INNER_CALL = f"{CALL}|inner:8f1c0f6e-0000-4000-8000-00000000000c"
CALL_OF_MEMORY = f"{MEMORY}|inner:8f1c0f6e-0000-4000-8000-00000000000d"
NAMESPACES = (ROOT, MEMORY, CALL, OTHER_CALL, INNER_CALL, CALL_OF_MEMORY)

Source = Literal["loop", "input", "update", "fork"]


class ShortRepr:
    """A repr that leaves out defaults, for readable failing examples."""

    def __repr__(self) -> str:
        shown = []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.default is MISSING:
                shown.append(repr(value))
            elif value != f.default:
                shown.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # What Hypothesis asks for before it spells out a dataclass itself.
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class Channel(ShortRepr):
    """A channel of the graph.

    Attributes:
        name: Its name.
        kind: A delta channel, one stored whole, or one that holds a value for one step only.
        snapshot_every: Updates of a delta channel between two snapshots.
        plain_rows: For how many checkpoints of each namespace a delta channel was still a plain
            reducer, stored whole: the value it is migrated from.
        delta_rows: For how many checkpoints it stayed a delta channel before it became a plain
            reducer again; `None` for good.
    """

    name: str
    kind: Literal["delta", "plain", "ephemeral"] = "delta"
    snapshot_every: int = 3
    plain_rows: int = 0
    delta_rows: int | None = None

    def is_delta_at(self, position: int) -> bool:
        """Whether it is a delta channel at that checkpoint of a namespace, counted from 0."""
        phase = position - self.plain_rows
        return self.kind == "delta" and phase >= 0 and phase < (self.delta_rows or phase + 1)


@dataclass(frozen=True, repr=False)
class Step(ShortRepr):
    """What a run did: writes of parallel tasks, and the checkpoint that commits them.

    Attributes:
        tasks: For each task, in the order of their paths, the channels it writes.
        ns: Namespace.
        back: Which checkpoint it goes on from: 0 is the one last written in the namespace, 1
            the one before it, and so on.
        source: `source` of the metadata.
        run: `run_id` of the metadata.
        commit: `False` leaves the writes pending at the checkpoint, and stores no other.
        interrupt: Also leave an interrupt and a resume value at the checkpoint.
        old: Store it as langgraph before 1.2.9 did.
        skewed: Give the checkpoint an id below its parent's, as a second process can whose
            clock is slow.
        root_back: In a subgraph's namespace, which root checkpoint it belongs to, counted as
            `back` is.
    """

    tasks: tuple[tuple[str, ...], ...] = ()
    ns: str = ROOT
    back: int = 0
    source: Source = "loop"
    run: str | None = None
    commit: bool = True
    interrupt: bool = False
    old: bool = False
    skewed: bool = False
    root_back: int = 0


@dataclass(frozen=True, repr=False)
class ThreadHistory(ShortRepr):
    """A whole thread: its channels, and what its runs did, oldest first."""

    channels: tuple[Channel, ...]
    steps: tuple[Step, ...]

    @property
    def delta_channels(self) -> tuple[str, ...]:
        """Names of the channels that a reader rebuilds."""
        return tuple(c.name for c in self.channels if c.kind == "delta")


def checkpoint_id_at(moment: datetime, number: int) -> str:
    """A version 6 UUID of that time; `number` keeps ids of one time apart.

    Source of the layout: RFC 9562, section 5.6.
    """
    since = moment - datetime(1582, 10, 15, tzinfo=timezone.utc)
    ticks = (since.days * 86_400 + since.seconds) * 10_000_000 + since.microseconds * 10
    time = (ticks >> 12) << 80 | 6 << 76 | (ticks & 0xFFF) << 64
    return str(UUID(int=time | 0b10 << 62 | number))
