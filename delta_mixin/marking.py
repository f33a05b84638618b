"""Mark: the rows that readers of the roots pass, found by following parents.

1. A reader of channel C at root R starts at R's parent and goes up to the nearest row where C
   is populated, that row included: its writes count too.
2. Parents are followed, never id ranges: ids are monotonic within one process only. A repeat
   ends the walk, since re-putting an id can close a loop.
3. A row whose counter for the channel is not zero cannot hold its snapshot, so only rows where
   it is zero or absent are opened. What is stored stays the truth where it is known.
4. A parent that is not stored is a break, not a beginning.

One walk per channel serves all roots: it stops where another walk for that channel has been.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from delta_mixin._view import NamespaceView
from delta_mixin.channels import counters, is_counting, supersteps
from delta_mixin.model import Break, CheckpointRow, Planning, Reason

READ_AHEAD = 500
"""Most rows that one request reads ahead of a walk."""


@dataclass
class Marks:
    """What the readers of the roots pass.

    Attributes:
        needed: Per row id, a reason for each channel that is replayed from it.
        severed: Breaks met on the way.
    """

    needed: dict[str, list[Reason]] = field(default_factory=dict)
    severed: list[Break] = field(default_factory=list)


def mark(view: NamespaceView, replayed: Mapping[str, frozenset[str]]) -> Planning[Marks]:
    """Follow every root's chains to what its readers need.

    Args:
        view: The namespace.
        replayed: For each root, the channels to rebuild, as `channels_to_replay` finds them.
    """
    marks = Marks()
    walked: dict[str, set[str]] = {}
    for root, channels in replayed.items():
        for channel in sorted(channels):
            passed = walked.setdefault(channel, set())
            child = view[root]
            while child.parent_id is not None and child.parent_id not in passed:
                row = view.get(child.parent_id)
                if row is None:
                    marks.severed.append(Break(child.key, child.parent_id, channel, root))
                    break
                passed.add(row.checkpoint_id)
                marks.needed.setdefault(row.checkpoint_id, []).append(
                    Reason("replay", channel, root)
                )
                # Rows of exit durability hold many supersteps each: read no more than doubles.
                ahead = min(supersteps(counters(child.metadata).get(channel)), len(passed))
                if (yield from _is_populated(view, row, channel, ahead)):
                    break
                child = view[row.checkpoint_id]
    return marks


def _is_populated(
    view: NamespaceView, row: CheckpointRow, channel: str, ahead: int
) -> Planning[bool]:
    if row.populated is None:
        if row.metadata is None:
            ahead = max(1, min(ahead, READ_AHEAD))
            yield from view.need(islice(view.upwards(row.checkpoint_id), ahead), "metadata")
        if is_counting(counters(view[row.checkpoint_id].metadata).get(channel)):
            return False
        yield from view.need([row.checkpoint_id], "checkpoint")
    return channel in (view[row.checkpoint_id].populated or ())
