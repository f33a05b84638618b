"""What a verification finds, as plain values. Pure: stdlib only.

Severity says who is affected: an *error* changes what the newest checkpoint of some branch reads;
a *warning* affects only older checkpoints, or may; a *note* affects no reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from delta_mixin.model import BlobKey, CheckpointRow, RowKey

__all__ = ["Finding", "HistoryEnd", "Orphans", "ThreadReport"]

Kind = Literal[
    "severed",
    "cut off",
    "dropped writes",
    "loop",
    "missing blob",
    "unknown channels",
    "dangling parent",
    "orphaned writes",
    "orphaned blob",
]
Severity = Literal["error", "warning", "note"]

ORDER: tuple[Severity, ...] = ("error", "warning", "note")

ADVICE: dict[Kind, str] = {
    "severed": (
        "Restore the missing checkpoints from a backup, or branch off what is left with `recover`."
    ),
    "cut off": (
        "Restore the older checkpoints from a backup, or branch off what is left with `recover`."
    ),
    "dropped writes": (
        "Restore the writes of this checkpoint from a backup; what is left replays to a value "
        "without them."
    ),
    "loop": "Find out what stored a checkpoint under its own descendant, and restore its parent.",
    "missing blob": "Restore the blob from a backup; readers pass over it or fail.",
    "unknown channels": "Name the delta channels, as `channels=` or in DELTA_CHANNELS.",
    "dangling parent": (
        "If the graph has a delta channel, name it as `channels=` and look again; the next `prune` "
        "clears the pointer."
    ),
    "orphaned writes": (
        "Delete them if no run is active on the thread; a run stores writes before their "
        "checkpoint."
    ),
    "orphaned blob": "Delete it if no run is active on the thread; nothing references it.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a thread.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: Namespace; `""` is the root graph.
        checkpoint_id: The checkpoint where it shows; `None` if it is none in particular.
        channel: The channel affected; `None` if it is none in particular.
        kind: `"severed"` (a parent that a reader needs is not stored), `"cut off"` (a history
            ends without a value at a checkpoint that is not its start), `"dropped writes"` (fewer
            than counters or versions promise), `"loop"`, `"missing blob"`, `"unknown channels"`,
            `"dangling parent"` (that no reader needs), `"orphaned writes"`, `"orphaned blob"`.
        severity: `"error"`, `"warning"` or `"note"`.
        what: What was seen, in a clause.
        advice: What to do, in a sentence.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str | None
    channel: str | None
    kind: Kind
    severity: Severity
    what: str
    advice: str

    def __str__(self) -> str:
        where = f" at {self.checkpoint_id}" if self.checkpoint_id else ""
        ns = f" in namespace {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        channel = f", channel {self.channel!r}" if self.channel else ""
        return f"{self.severity}: {self.kind}{where}{ns}{channel}: {self.what}. {self.advice}"


@dataclass(frozen=True, slots=True)
class Orphans:
    """What is stored of a thread but belongs to no checkpoint, and what is not but should be.

    Attributes:
        writes: Checkpoints that have writes but are not stored.
        blobs: Channel values stored apart that no checkpoint references.
        missing_blobs: For checkpoints, the channel values that they reference and that are not
            stored.
    """

    writes: tuple[RowKey, ...] = ()
    blobs: tuple[BlobKey, ...] = ()
    missing_blobs: tuple[tuple[RowKey, BlobKey], ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryEnd:
    """The last checkpoint that a walk up from another one comes to.

    Attributes:
        row: The checkpoint, with its metadata and checkpoint read.
        why: Why the walk ends: it has no parent (`"start"`), its parent is not stored
            (`"missing"`), or has been passed before (`"loop"`).
    """

    row: CheckpointRow
    why: Literal["start", "missing", "loop"]


@dataclass(frozen=True)
class ThreadReport:
    """The outcome of `verify_thread`.

    Attributes:
        thread_id: The thread.
        checkpoints: How many checkpoints were looked at.
        namespaces: In which namespaces.
        findings: What is wrong, the worst first; empty for a healthy thread.
        orphans_checked: Whether the saver could tell of orphaned writes and blobs.
    """

    thread_id: str
    checkpoints: int
    namespaces: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    orphans_checked: bool = False

    @property
    def healthy(self) -> bool:
        """Whether every reader gets what was written: there is no error and no warning."""
        return all(finding.severity == "note" for finding in self.findings)

    def __str__(self) -> str:
        size = f"{self.checkpoints} checkpoint(s) in {len(self.namespaces)} namespace(s)"
        head = f"thread {self.thread_id!r}, {size}: "
        if not self.findings:
            return f"{head}nothing wrong"
        counts = [(s, sum(f.severity == s for f in self.findings)) for s in ORDER]
        told = ", ".join(f"{n} {s}{'s' if n > 1 else ''}" for s, n in counts if n)
        return "\n".join([head + told, *(f"  {line}" for line in map(str, self.findings))])


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, the worst first, then by place."""
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                ORDER.index(f.severity),
                f.checkpoint_ns,
                f.checkpoint_id or "",
                f.channel or "",
                f.kind,
            ),
        )
    )
