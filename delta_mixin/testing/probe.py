"""Ask a saver, before its hooks are written, what they will have to know.

    print(probe_saver(MySaver(...)))

1. Questions are put through the saver's public methods alone, on scratch threads with unusual
   ids, which are deleted again. It need not have the mixins yet.
2. Each question is a body of `Call`s, answered by the driver of either side.
3. A default hook is judged by running it on scratch rows, not by what is known of the saver.
4. `list(None)` is asked as well: on a store in use it reads whatever that shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from delta_mixin import _defaults
from delta_mixin._drive import Call, Steps, adrive, drive
from delta_mixin._hooks import HOOKS
from delta_mixin.testing._findings import HookAdvice, ProbeReport
from delta_mixin.testing._questions import ASKED, needed_keys
from delta_mixin.testing._subject import Subject

__all__ = ["HookAdvice", "ProbeReport", "aprobe_saver", "probe_saver"]


def probe_saver(
    saver: Any, *, config_keys: Mapping[str, Any] | None = None, patience: float = 3.0
) -> ProbeReport:
    """Probe a saver through its sync methods.

    Args:
        saver: Any checkpoint saver, with or without the mixins.
        config_keys: Further keys for every config, such as `{"actor_id": "me"}`. A key that the
            saver asks for by a `KeyError` is found out.
        patience: Seconds after which a writer counts as blocked.

    Raises:
        TypeError: If the saver has async methods only.
        Exception: What the saver's `put` raises, as then nothing can be found out.
    """
    subject = Subject(saver, "sync", config_keys or {}, patience)
    return drive(subject, _probed(subject))


async def aprobe_saver(
    saver: Any, *, config_keys: Mapping[str, Any] | None = None, patience: float = 3.0
) -> ProbeReport:
    """Async twin of `probe_saver`."""
    subject = Subject(saver, "async", config_keys or {}, patience)
    return await adrive(subject, _probed(subject))


def _probed(subject: Subject) -> Steps[ProbeReport]:
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    try:
        found["config_keys"] = yield from needed_keys(subject)
        for names, ask in ASKED.items():
            try:
                found.update((yield from ask(subject)))
            except Exception as error:  # whatever a saver raises is an answer
                failures.update(dict.fromkeys(names, f"{type(error).__name__}: {error}"))
    finally:
        left = yield from _cleaned_up(subject)
    known = {name: answer for name, answer in found.items() if not name.startswith("_")}
    told = ProbeReport(type(subject.saver).__name__, subject.side, **known)
    hooks = tuple(_advice(subject, told, found, failures))
    return replace(told, hooks=hooks, failures=failures, left_behind=left)


_FILTERS: Mapping[str | None, str] = {
    "exact": "shows just the rows of a run",
    "more": "shows more than the rows of a run",
    "less": "shows only some rows of a run",
}


def _advice(
    subject: Subject, told: ProbeReport, found: Mapping[str, Any], failures: Mapping[str, str]
) -> list[HookAdvice]:
    copies = failures.get("_copy", found.get("_copy", ""))
    rewrites = told.reput == "replaces" and told.reput_keeps_writes and told.reput_moves_parent
    extra = [key for key in told.config_keys if key != "checkpoint_ns"]
    judged: dict[str, tuple[bool, str]] = {
        "_delete_checkpoint_rows": (
            False,
            "it has no default; a row can be detached by "
            + ("putting it again without a parent" if rewrites else "an update in the backend"),
        ),
        "_list_namespaces": (
            bool(found.get("_names_namespaces")),
            "list() without a namespace shows "
            + ("them all" if told.lists_all_namespaces else "too few"),
        ),
        "_list_checkpoint_rows": (
            bool(found.get("_lists_rows")),
            "it finds every row of the namespaces it is told"
            if found.get("_lists_rows")
            else failures.get("_lists_rows", "it does not find exactly the rows of the thread"),
        ),
        "_copy_checkpoint_rows": (not copies, copies or "a copy reads like its source"),
        "_list_run_threads": (
            told.filters in ("exact", "more"),
            f"list(None, filter=...) {_FILTERS.get(told.filters, 'fails')}",
        ),
        "_read_checkpoint_rows": (
            bool(found.get("_reads_rows")),
            "get_tuple() finds each row by its id"
            if found.get("_reads_rows")
            else "get_tuple() does not find exactly the rows asked for",
        ),
        "_checkpoint_config": (
            not extra,
            f"configs need {', '.join(extra)}" if extra else "no further keys are needed",
        ),
    }
    optional = [hook for hook in HOOKS if hook not in judged]
    judged.update(dict.fromkeys(optional, (True, "write it where the backend has more to offer")))
    return [
        HookAdvice(
            hook,
            "written" if subject.writes(hook) else "default works" if works else "write it",
            why,
        )
        for hook, (works, why) in judged.items()
    ]


def _cleaned_up(subject: Subject) -> Steps[tuple[str, ...]]:
    left = []
    for thread_id in subject.threads:
        for remove in (
            Call("delete_thread", (thread_id,)),
            Call("prune", ([thread_id],), {"strategy": "delete"}),
        ):
            try:
                yield remove
                if not (yield from _defaults.list_checkpoint_rows(subject, [thread_id])):
                    break
            except Exception:  # the next way may do it; what is left is named
                continue
        else:
            left.append(thread_id)
    return tuple(left)
