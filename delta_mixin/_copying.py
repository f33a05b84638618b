"""What a thread branched off at one checkpoint consists of: roots, and what their readers need.

The roots are that checkpoint; the subgraph calls that started from it; of each
`checkpointer=True` namespace the newest row whose root is that checkpoint or an ancestor of it,
or may have been one before a cleanup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from delta_mixin._view import NamespaceView
from delta_mixin.model import Break, CheckpointRow, Planning, Reason
from delta_mixin.planner import SaverTraits, _keep_what_readers_need, _root_of, _Sweep


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
        if ":" in ns:
            roots[ns] = view.ids if _root_of(view.newest) == checkpoint_id else []
        else:
            roots[ns] = [r.checkpoint_id for r in view if _may_precede(r, lineage)][-1:]
    return roots


def select_for_copy(
    views: Mapping[str, NamespaceView], checkpoint_id: str, traits: SaverTraits
) -> Planning[tuple[list[CheckpointRow], list[Break]]]:
    """The roots' rows and those that their readers need.

    Args:
        views: The source thread's rows, from `group_rows`.
        checkpoint_id: A stored checkpoint of the root namespace.
        traits: What is known of the saver.

    Returns:
        The rows, without the parents that are not among them, and the breaks met on the way.

    Raises:
        UnknownChannelsError: If only the LangGraph.js marker says that there are delta channels.
    """
    selected: list[CheckpointRow] = []
    severed: list[Break] = []
    for ns, roots in (yield from copy_roots(views, checkpoint_id)).items():
        view = views[ns]
        sweep = _Sweep(view, {i: [Reason("selected")] for i in roots})
        yield from _keep_what_readers_need(sweep, list(reversed(roots)), traits)
        # The copy must not point to a parent that stays behind.
        selected += [
            row if row.parent_id in sweep.kept else replace(row, parent_id=None)
            for row in view
            if row.checkpoint_id in sweep.kept
        ]
        severed += sweep.marks.severed
    return selected, severed


def _may_precede(row: CheckpointRow, lineage: dict[str, None]) -> bool:
    """Whether the root checkpoint of a subgraph's row is one of the lineage, or may have been."""
    root = _root_of(row)
    # A cleanup cuts the lineage off, so what is older than its end can belong to it.
    return root is not None and (root in lineage or root < next(reversed(lineage)))
