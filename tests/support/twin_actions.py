"""What can be done to twin threads, and strategies that draw it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Invoke:
    """A run on new input; `ask` makes it stop at an interrupt."""

    ask: bool = False


@dataclass(frozen=True)
class Resume:
    """Answer the interrupts that are pending, or run on."""


@dataclass(frozen=True)
class Update:
    """`update_state` at the newest checkpoint, or at an older one that is readable."""

    back: int = 0
    as_node: str = "last"


@dataclass(frozen=True)
class Replay:
    """Run again from an older checkpoint that is readable."""

    back: int = 0


@dataclass(frozen=True)
class Prune:
    keep_last: int = 1
    delta: str = "keep_history"


@dataclass(frozen=True)
class DeleteOldRuns:
    """All but the newest `spared` runs."""

    spared: int = 1
    delta: str = "keep_history"


@dataclass(frozen=True)
class GoOnInCopy:
    """Copy the thread, whole or as of its newest checkpoint, and drop the original."""

    of_head: bool = False
    delta: str = "keep_history"


@dataclass(frozen=True)
class Compact:
    """Store the values of the newest checkpoints, and perhaps prune to these."""

    keep_last: int = 1
    prune: bool = True


@dataclass(frozen=True)
class CompactOldRuns:
    """As `DeleteOldRuns`, with nothing of the runs left."""

    spared: int = 1


@dataclass(frozen=True)
class GoOnInCompactCopy:
    """As `GoOnInCopy` of the head, without its history."""


compactions = st.one_of(
    st.builds(Compact, st.sampled_from([1, 1, 2, 3]), st.sampled_from([True, True, False])),
    st.builds(CompactOldRuns, st.integers(1, 2)),
    st.builds(GoOnInCompactCopy),
)
deltas = st.sampled_from(["keep_history", "squash"])
cleanups = st.one_of(
    st.builds(Prune, st.sampled_from([1, 1, 2, 3]), deltas),
    st.builds(DeleteOldRuns, st.integers(1, 2), deltas),
    st.builds(GoOnInCopy, st.booleans(), deltas),
)
asks = st.sampled_from([False, False, True])


def rounds(*inputs, most, cleanups=cleanups):
    """What is done in turns: an input, and often a cleanup behind it."""
    first = st.tuples(st.builds(Invoke, asks), st.none() | cleanups)
    later = st.tuples(st.one_of(*inputs), st.none() | cleanups)
    return st.builds(
        lambda one, more: [one, *more], first, st.lists(later, min_size=2, max_size=most)
    )


nodes = st.sampled_from(["last", "a"])
onward = (st.builds(Invoke, asks), st.builds(Invoke, asks), st.just(Resume()))
flat = (
    *onward,
    st.builds(Update, st.just(0), nodes),
    st.builds(Update, st.integers(1, 6), nodes),
    st.builds(Replay, st.integers(0, 6)),
)
