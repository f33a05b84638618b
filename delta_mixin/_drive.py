"""Two drivers for one body: an operation is a generator that yields what it wants done.

`drive` answers with the saver's sync methods, `adrive` awaits the `a...` twins. No operation
is written twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]
"""A body: yields `Call`, `InScope` or `Report`, is sent the outcome, returns its result."""


@dataclass(frozen=True)
class Call:
    """Call the method `name` of the saver, or its async twin; iterators come back as lists."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InScope:
    """Run `body` inside the context manager that the hook `name` returns."""

    name: str
    thread_ids: tuple[str, ...]
    body: Steps[Any]


@dataclass(frozen=True)
class Report:
    """Hand a finished plan, or what tells of one, to the caller's `on_plan`."""

    on_plan: Callable[[Any], object]
    plan: Any


def twin(name: str) -> str:
    """Name of the async twin: `prune` and `aprune`, `_list_rows` and `_alist_rows`."""
    return f"_a{name[1:]}" if name.startswith("_") else f"a{name}"


def drive(saver: Any, steps: Steps[T]) -> T:
    """Run a body with the saver's sync methods."""
    outcome: Any = None
    failure: BaseException | None = None
    while True:
        try:
            wish = steps.throw(failure) if failure else steps.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        outcome, failure = None, None
        try:
            if isinstance(wish, Report):
                wish.on_plan(wish.plan)
            elif isinstance(wish, InScope):
                with getattr(saver, wish.name)(wish.thread_ids):
                    outcome = drive(saver, wish.body)
            else:
                outcome = getattr(saver, wish.name)(*wish.args, **wish.kwargs)
                if wish.name == "list":
                    # Exhausted here and now: an open listing blocks deletes on some backends.
                    outcome = list(outcome)
        except BaseException as error:  # the body may have to undo something, also on cancel
            failure = error


async def adrive(saver: Any, steps: Steps[T]) -> T:
    """Run a body with the saver's async methods."""
    outcome: Any = None
    failure: BaseException | None = None
    while True:
        try:
            wish = steps.throw(failure) if failure else steps.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        outcome, failure = None, None
        try:
            if isinstance(wish, Report):
                answer = wish.on_plan(wish.plan)
                if inspect.isawaitable(answer):
                    await answer
            elif isinstance(wish, InScope):
                async with getattr(saver, twin(wish.name))(wish.thread_ids):
                    outcome = await adrive(saver, wish.body)
            elif wish.name == "list":
                outcome = [saved async for saved in saver.alist(*wish.args, **wish.kwargs)]
            else:
                outcome = await getattr(saver, twin(wish.name))(*wish.args, **wish.kwargs)
        except BaseException as error:  # the body may have to undo something, also on cancel
            failure = error
