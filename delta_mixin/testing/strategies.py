"""Hypothesis strategies for threads and for what is done to them.

Everything drawn is plain data with a short repr: a failing example can be pasted into a test.
Smaller indices, fewer steps and earlier releases' quirks switched off count as simpler, so
examples shrink towards one linear run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from delta_mixin.testing._bridge import SyncView
from delta_mixin.testing.histories import (
    NAMESPACES,
    START,
    Channel,
    ShortRepr,
    Source,
    Step,
    ThreadHistory,
)

SOURCES: tuple[Source, ...] = ("loop", "update", "input", "fork")

RELEASES = ((False,), (True,), (False, True))
"""What `Step.old` may be in a thread: of new releases, of old ones, and of both."""

RUNS = ("run 0", "run 1", "run 2")

ODD_THREAD_IDS = (
    "u", "u_2", "u%", "U", "u ", " u", "u:", "u|", "ü", "u'--", 'u"', "u\\", "u*", "u/../v", "u_",
    "_u", "%", "7", "007", "8f1c0f6e-0000-4000-8000-0000000000aa", "線", "u\n", "None", "u" * 200,
)  # fmt: skip
"""Ids that a prefix match, a LIKE, a glob, a folded case or an unquoted statement confuses."""


def thread_ids() -> st.SearchStrategy[str]:
    """One thread id, often a neighbour of another: see `ODD_THREAD_IDS`."""
    return st.sampled_from(ODD_THREAD_IDS)


@st.composite
def channels(
    draw: st.DrawFn, *, exact: bool = False, old_releases: bool = True
) -> tuple[Channel, ...]:
    """The channels of a graph: three delta channels, one of them never written, and others.

    Args:
        draw: Given by Hypothesis.
        exact: Leave out channels of which nothing stored says that they are not delta.
        old_releases: Leave out delta channels that became plain again, of which nothing that
            old releases stored says that they have been delta.
    """
    cadence = st.integers(1, 5)
    plain_rows = draw(st.sampled_from([0, 0, 0, 1, 2, 4]))
    delta_rows = draw(st.sampled_from([None, None, 2, 4]))
    used = (
        Channel(
            "items",
            snapshot_every=draw(cadence),
            plain_rows=plain_rows,
            delta_rows=None if old_releases else delta_rows,
        ),
        Channel("log", snapshot_every=draw(cadence)),
        Channel("never", snapshot_every=1),
        Channel("note", kind="plain"),
    )
    if exact or not draw(st.booleans()):
        return used
    return (*used, Channel("scratch", kind="ephemeral"))


def steps(
    names: Sequence[str],
    namespaces: Sequence[str] = NAMESPACES,
    *,
    sources: Sequence[Source] = SOURCES,
    old_releases: Sequence[bool] = (False, True),
    skewed_clocks: bool = True,
) -> st.SearchStrategy[Step]:
    """One step of a run.

    Args:
        names: Channels that tasks may write.
        namespaces: Namespaces it may happen in; the first one most.
        sources: What may have written it.
        old_releases: Whether to store it as langgraph before 1.2.9 did: `Step.old`.
        skewed_clocks: Draw checkpoints whose id sorts below their parent's, too. Some savers
            cannot read these.
    """
    task = st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple)
    seldom = st.sampled_from([False, False, False, True])
    back = st.sampled_from([0, 0, 0, 0, 1, 2, 4])
    return st.builds(
        Step,
        tasks=st.lists(task, max_size=3).map(tuple),
        ns=st.sampled_from([namespaces[0], *namespaces]),
        back=back,
        source=st.sampled_from(sources),
        run=st.sampled_from([None, *RUNS]),
        commit=st.sampled_from([True, True, True, True, False]),
        interrupt=seldom,
        old=st.sampled_from(old_releases),
        skewed=seldom if skewed_clocks else st.just(False),
        root_back=back,
    )


@st.composite
def thread_histories(
    draw: st.DrawFn,
    *,
    max_steps: int = 16,
    namespaces: Sequence[str] = NAMESPACES,
    old_releases: bool = True,
    skewed_clocks: bool = True,
    exact: bool = False,
) -> ThreadHistory:
    """A whole thread: forks, several runs, delta channels of different cadence, namespaces.

    Args:
        draw: Given by Hypothesis.
        max_steps: Most steps.
        namespaces: Namespaces that may be used; the first one always, some of the others.
        old_releases: Draw steps as langgraph before 1.2.9 stored them, too.
        skewed_clocks: As for `steps`.
        exact: As for `channels`.
    """
    releases = draw(st.sampled_from(RELEASES[: 3 if old_releases else 1]))
    used = draw(channels(exact=exact, old_releases=True in releases))
    # Each thread has its own mix of few things: a thread of `update_state` calls only, or of one
    # namespace, would hardly ever come up if each step could be anything.
    others = draw(st.lists(st.sampled_from(namespaces[1:]), max_size=3, unique=True))
    step = steps(
        [c.name for c in used if c.name != "never"],
        [namespaces[0], *others],
        sources=draw(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True)),
        old_releases=releases,
        skewed_clocks=skewed_clocks and draw(st.booleans()),
    )
    fewest = draw(st.sampled_from([1, max_steps // 4, max_steps // 2]))
    drawn = draw(st.lists(step, min_size=max(1, fewest), max_size=max_steps))
    return ThreadHistory(used, tuple(drawn))


@dataclass(frozen=True, repr=False)
class Pruning(ShortRepr):
    """Arguments of a prune, for a thread that is known only when they are used.

    Attributes:
        keep_last: As `prune` takes it.
        minutes: Keep what is younger than this many minutes of history, or `None`.
        pinned: Which checkpoints to pin, as indices.
        squash: Whether to prune with `delta="squash"`.
    """

    keep_last: int = 1
    minutes: int | None = None
    pinned: tuple[int, ...] = ()
    squash: bool = False

    @property
    def cutoff(self) -> datetime | None:
        """`older_than`: histories store a checkpoint a minute."""
        return None if self.minutes is None else START + timedelta(minutes=self.minutes)

    def pins(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        """The pinned ids among the keys of stored checkpoints."""
        ids = sorted(checkpoint_id for _, checkpoint_id in keys)
        return sorted({ids[index % len(ids)] for index in self.pinned}) if ids else []

    def options(self, keys: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Keyword arguments for `prune` and `plan_prune`."""
        options: dict[str, Any] = {"keep_last": self.keep_last, "pinned": self.pins(keys)}
        if self.squash:
            options["delta"] = "squash"
        return options if self.cutoff is None else {**options, "older_than": self.cutoff}

    def clean(self, view: SyncView, thread_id: str, keys: Iterable[tuple[str, str]]) -> None:
        """Prune a thread that holds the checkpoints with these keys."""
        view.prune([thread_id], **self.options(keys))


def prunings(*, squash: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[Pruning]:
    """Arguments of a prune: `keep_last`, `older_than` and `pinned`.

    Args:
        squash: Whether to squash; by default never.
    """
    return st.builds(
        Pruning,
        keep_last=st.just(1) | st.integers(1, 4),
        minutes=st.none() | st.integers(0, 100),
        pinned=st.just(()) | st.lists(st.integers(0, 20), max_size=2).map(tuple),
        squash=st.just(False) if squash is None else squash,
    )


def run_selections(runs: Collection[str] = RUNS) -> st.SearchStrategy[list[str]]:
    """Runs to delete, an unknown one now and then."""
    return st.lists(st.sampled_from([*runs, "no such run"]), min_size=1, max_size=2, unique=True)
