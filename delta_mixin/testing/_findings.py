"""What probing a saver found, as data and as a table."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from delta_mixin.testing._bridge import Side

Verdict = Literal["default works", "write it", "written"]


@dataclass(frozen=True)
class HookAdvice:
    """Whether a hook's default can be used on the saver.

    Attributes:
        hook: Name of the sync hook; its async twin has the same answer.
        verdict: `"default works"`, `"write it"`, or `"written"` where the saver has its own.
        why: What was seen.
    """

    hook: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class ProbeReport:
    """What the hooks of a saver need to know; `str(report)` is a table.

    A finding is `None` where the saver raised and nothing can be told; `failures` then says what
    it raised.

    Attributes:
        saver: Name of the saver's class.
        side: The side that was probed.
        config_keys: Keys that a config needs besides `thread_id`.
        lists_all_namespaces: Whether `list()` without a namespace shows every namespace.
        lists_all_threads: Whether `list(None)` shows the rows of all threads.
        filters: What `list(None, filter={"run_id": ...})` shows: `"exact"` (these rows),
            `"more"` (others besides), `"less"` (not all of them) or `"fails"`.
        keeps_run_id: Whether `config["metadata"]["run_id"]` is stored as metadata.
        write_order: What orders the writes of different tasks at one checkpoint:
            `"task_path"`, `"task_id"`, `"put order"` or `"unknown"`.
        keeps_task_order: Whether one task's writes keep their order, also beyond ten.
        keeps_early_writes: Whether writes that are put before their checkpoint are read with it.
        reput: What putting a head again does: `"replaces"`, `"ignored"`, `"lists twice"` or
            `"fails"`.
        reput_keeps_writes: Whether the head's pending writes are still there then.
        reput_moves_parent: Whether its parent is then the new one.
        head: What `get_tuple` without an id returns: `"greatest id"`, `"last put"`, `"unknown"`.
        versioned_blobs: Whether a row finds values by the versions that it names.
        keeps_branches_apart: Whether two children of a row keep values of their own.
        open_list_blocks: Whether a listing that is not exhausted yet makes writers wait.
        deletes_threads: Whether `delete_thread` takes all namespaces and writes.
        hooks: Advice for each hook.
        failures: What was raised, by finding.
        left_behind: Scratch threads that could not be deleted again.
    """

    saver: str
    side: Side
    config_keys: tuple[str, ...] = ()
    lists_all_namespaces: bool | None = None
    lists_all_threads: bool | None = None
    filters: Literal["exact", "more", "less", "fails"] | None = None
    keeps_run_id: bool | None = None
    write_order: Literal["task_path", "task_id", "put order", "unknown"] | None = None
    keeps_task_order: bool | None = None
    keeps_early_writes: bool | None = None
    reput: Literal["replaces", "ignored", "lists twice", "fails"] | None = None
    reput_keeps_writes: bool | None = None
    reput_moves_parent: bool | None = None
    head: Literal["greatest id", "last put", "unknown"] | None = None
    versioned_blobs: bool | None = None
    keeps_branches_apart: bool | None = None
    open_list_blocks: bool | None = None
    deletes_threads: bool | None = None
    hooks: tuple[HookAdvice, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    left_behind: tuple[str, ...] = ()

    @property
    def attributes(self) -> dict[str, bool]:
        """The class attributes to set on the saver."""
        return {
            "LISTS_ALL_THREADS": self.filters in ("exact", "more"),
            "NEWEST_ID_IS_HEAD": self.head == "greatest id",
            "VERSIONED_BLOBS": bool(self.versioned_blobs),
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Each question with its answer and what follows from it, if anything."""
        told = []
        for name, (question, follows) in _QUESTIONS.items():
            answer = getattr(self, name)
            remark = self.failures.get(name, follows.get(answer, ""))
            told.append((question, _spelt(answer), remark))
        return told

    def table(self) -> str:
        """All of it as text: in tables where `rich` is installed, else in lines."""
        title = f"{self.saver}, {self.side} side"
        advice = [(each.hook, each.verdict, each.why) for each in self.hooks]
        attributes = [f"{name} = {value}" for name, value in self.attributes.items()]
        parts = [
            _table(title, ("question", "answer", "what follows"), self.rows()),
            _table("hooks", ("hook", "verdict", "why"), advice),
            "set on the class: " + ", ".join(attributes),
        ]
        if self.left_behind:
            left = ", ".join(self.left_behind)
            parts.append(f"left behind, for delete_thread does not remove them: {left}")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self.table()


_QUESTIONS: dict[str, tuple[str, dict[Any, str]]] = {
    "config_keys": ("a config needs, besides thread_id", {}),
    "lists_all_namespaces": (
        "list() without a namespace shows all",
        {False: "rows of other namespaces are neither cleaned nor copied"},
    ),
    "lists_all_threads": (
        "list(None) shows all threads",
        {False: "delete_for_runs needs thread_ids or a hook"},
    ),
    "filters": (
        "list(None, filter=...) shows",
        {
            "more": "enough: the run of each row is checked again",
            "less": "threads of a run would be missed",
        },
    ),
    "keeps_run_id": (
        "run_id of config['metadata'] is stored",
        {False: "delete_for_runs finds nothing: store get_checkpoint_metadata(config, metadata)"},
    ),
    "write_order": (
        "tasks' writes are ordered by",
        dict.fromkeys(
            ("task_id", "put order", "unknown"),
            "parallel writes are rebuilt in another order than they were applied in",
        ),
    ),
    "keeps_task_order": (
        "a task's writes keep their order",
        {False: "writes are rebuilt in another order: sort the index as a number"},
    ),
    "keeps_early_writes": (
        "writes put before their checkpoint are kept",
        {False: "runs put writes first: they are lost"},
    ),
    "reput": (
        "putting a head again",
        {"lists twice": "do not rewrite rows", "ignored": "rows cannot be rewritten by put()"},
    ),
    "reput_keeps_writes": (
        "... keeps its pending writes",
        {False: "never rewrite a row by put()"},
    ),
    "reput_moves_parent": (
        "... and takes the new parent",
        {False: "detach rows in the backend, not by put()"},
    ),
    "head": (
        "get_tuple() without an id returns",
        {"last put": "the delete hook has to set the head from plan.heads"},
    ),
    "versioned_blobs": (
        "values are found by channel version",
        {True: "the delete hook has to take plan.dead_blobs as well"},
    ),
    "keeps_branches_apart": (
        "branches of a fork keep their own values",
        {False: "a fork overwrites the values of the branch it left"},
    ),
    "open_list_blocks": (
        "an open list() makes writers wait",
        {True: "exhaust listings before deleting"},
    ),
    "deletes_threads": (
        "delete_thread() takes everything",
        {False: "a copy that fails half-way cannot be taken back: write delete_thread"},
    ),
}


def _spelt(answer: Any) -> str:
    if isinstance(answer, tuple):
        return ", ".join(answer) or "nothing"
    words = {True: "yes", False: "no", None: "cannot be told"}
    return words[answer] if answer is None or isinstance(answer, bool) else str(answer)


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, str, str]]) -> str:
    try:
        console, table = import_module("rich.console"), import_module("rich.table")
    except ImportError:
        width = max((len(row[0]) for row in rows), default=0)
        lines = [f"  {a:<{width}}  {b}" + (f" ({c})" if c else "") for a, b, c in rows]
        return "\n".join([title, *lines])
    drawn = table.Table(*head, title=title, title_justify="left")
    for row in rows:
        drawn.add_row(*row)
    page = io.StringIO()
    console.Console(file=page, width=120, markup=False).print(drawn)
    return page.getvalue().rstrip()
