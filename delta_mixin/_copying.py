"""What a thread branched off at one checkpoint consists of: roots, and what their readers need.

The roots are that checkpoint; the subgraph calls that started from it; of each
`checkpointer=True` namespace the newest row whose root is that checkpoint or an ancestor of it,
or may have been one before a cleanup.
"""

from __future__ import annotations

from collections.abc import Mapping

from delta_mixin._sweeping import SaverTraits, Sweep, finish, squash
from delta_mixin._view import NamespaceView
from delta_mixin.base_rows import is_base_row
from delta_mixin.model import CheckpointRow, CleanupPlan, Planning, Reason
from delta_mixin.planner import group_rows, keep_what_readers_need, root_of


def copy_roots(
    views: Mapping[str, NamespaceView], checkpoint_id: str
) -> Planning[dict[str, list[str]]]:
    """Ids of the roots by namespace.

    Args:
        views: The source thread's rows, from `group_rows`.
        checkpoint_id: A stored checkpoint of the root namespace.
    """
    lineage = dict.fromkeys(views[""].upwards(checkpoint_id))
    roots = {}
    for ns, view in views.items():
        if ns == "":
            roots[ns] = [checkpoint_id]
            continue
        yield from view.need(view.ids, "metadata")
        rows = [row for row in view if not is_base_row(row.metadata)]
        if ":" not in ns:
            rows = [row for row in rows if _may_precede(row, lineage)][-1:]
        elif root_of(view.newest) != checkpoint_id:
            rows = []
        roots[ns] = [row.checkpoint_id for row in rows]
    return roots


def select_for_copy(
    views: Mapping[str, NamespaceView],
    checkpoint_id: str,
    traits: SaverTraits,
    target: str = "",
    *,
    squashing: bool = False,
) -> Planning[tuple[list[CheckpointRow], CleanupPlan]]:
    """The roots' rows and those that their readers need.

    Args:
        views: The source thread's rows, from `group_rows`.
        checkpoint_id: A stored checkpoint of the root namespace.
        traits: What is known of the saver.
        target: Id of the copy.
        squashing: Replace what is needed for replay alone by base rows.

    Returns:
        The rows, without the parents that are not among them, and a plan of what to do with them
        once they are copied: nothing unless `squashing`. It holds the breaks met on the way.

    Raises:
        UnknownChannelsError: If only the LangGraph.js marker says that there are delta channels.
    """
    selected: list[CheckpointRow] = []
    sweeps = []
    for ns, roots in (yield from copy_roots(views, checkpoint_id)).items():
        view = views[ns]
        sweep = Sweep(view, {i: [Reason("selected")] for i in roots})
        yield from keep_what_readers_need(sweep, list(reversed(roots)), traits)
        # The copy must not point to a parent that stays behind.
        copied = [
            row if row.parent_id in sweep.kept else row._replace(parent_id=None)
            for row in view
            if row.checkpoint_id in sweep.kept
        ]
        selected += copied
        if copied:
            sweep.view = group_rows(copied)[ns]
            sweeps.append(sweep)
        if squashing:
            yield from squash(sweep, traits)
    return selected, (yield from finish(target, "copy", sweeps, traits, {}, ignore_breaks=True))


def _may_precede(row: CheckpointRow, lineage: dict[str, None]) -> bool:
    """Whether the root checkpoint of a subgraph's row is one of the lineage, or may have been."""
    root = root_of(row)
    # A cleanup cuts the lineage off, so what is older than its end can belong to it.
    return root is not None and (root in lineage or root < next(reversed(lineage)))
