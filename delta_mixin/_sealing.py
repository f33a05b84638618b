"""Which survivors of a run deletion have to be read: those whose readers may pass a row that goes.

1. The first survivors below a row that goes are roots. Where such a row itself tells which
   channels its reader rebuilds, it *seals*: a reader from further down finds its channel held
   there, or goes on like the row's own, which everything is kept for.
2. So no row below has to be read that knows no channel more. Which ones do, a backend may tell
   without handing them out (`_list_rows_beyond`). The first of those on each way down is a root
   too, and seals in its turn.
3. Where a first row does not tell, every row of the namespace gets read, and nothing can be saved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from delta_mixin._sweeping import SaverTraits
from delta_mixin._view import NamespaceView
from delta_mixin.channels import is_hosts_own, told_by_itself
from delta_mixin.model import KnownChannels, Planning

QUESTIONS = 3
"""How often a plan asks about one namespace; rows still in question then are read."""

ROWS_PER_READ = 16
"""How many rows a backend tells of, one with the other, in the time that it takes to read one."""


def exposed(view: NamespaceView, below: Sequence[str], traits: SaverTraits) -> Planning[list[str]]:
    """The rows of `below` to take as roots; the readers of the others pass none that goes.

    Args:
        view: The namespace.
        below: Ids of the survivors that have an ancestor which goes.
        traits: What is known of the saver.

    Returns:
        Ids in the order of `below`.
    """
    if not traits.tells_beyond or len(below) * ROWS_PER_READ < len(view):
        return list(below)
    inside = frozenset(below)
    first = [i for i in below if view.parents[i] not in inside]
    covered: set[str] = set()
    for question in range(QUESTIONS):
        if inside.isdisjoint(child for i in first for child in view.children.get(i, ())):
            break
        # The newest mostly has every channel of the host's own, but mostly so have the first.
        newest = [view.newest.checkpoint_id] if question else []
        yield from view.need([*first, *newest], "metadata", "checkpoint")
        settled = []
        for row in map(view.__getitem__, first):
            replayed, complete = told_by_itself(row, traits.declared)
            if not complete:
                return list(below)
            settled.append(replayed | (row.populated or frozenset()))
        known = _known(view, frozenset.intersection(*settled), traits.declared)
        beyond: Collection[str] | None = yield known
        if beyond is None:
            break
        stops = inside.intersection(beyond)
        if not (stops or question):
            return first  # every other row is below one of these
        sealed, first = _down(view, inside, first, stops)
        covered |= sealed
    return [row_id for row_id in below if row_id not in covered]


def _known(
    view: NamespaceView, settled: frozenset[str], declared: Collection[str]
) -> KnownChannels:
    """The question for rows with channels more than these, and than the host's own.

    Of the host's own, those that the rows read so far have.
    """
    named = {c for row in view.read for c in row.channel_versions or ()}
    hosts = frozenset(filter(is_hosts_own, named)) - settled - frozenset(declared)
    return KnownChannels(view.checkpoint_ns, settled, hosts)


def _down(
    view: NamespaceView, inside: Collection[str], start: Iterable[str], stops: Collection[str]
) -> tuple[set[str], list[str]]:
    """The rows below these as far as the first of `stops` on each way, and those stops."""
    passed: set[str] = set()
    stopped: list[str] = []
    todo = list(start)
    while todo:
        for row_id in view.children.get(todo.pop(), ()):
            if row_id in stops:
                stopped.append(row_id)
            elif row_id in inside:
                passed.add(row_id)
                todo.append(row_id)
    return passed, stopped
