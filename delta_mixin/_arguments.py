"""Checks of what callers pass in: each error names the value and the way out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from delta_mixin.planner import PruneRules

STRATEGIES = ("keep_latest", "delete")
DELTA_CHOICES = ("keep_history", "refuse", "skip", "squash")
SQUASH_CHOICES = ("keep_history", "squash")
SEVERED_CHOICES = ("refuse", "ignore")


def one_id(value: Any, what: str) -> str:
    """An id as its `str`.

    Raises:
        TypeError: If it is neither a string, an int nor a UUID.
        ValueError: If it is an empty string or holds a NUL character.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, uuid.UUID)):
        raise TypeError(f"{what} must be a str, int or UUID, got {value!r}")
    if value == "":
        raise ValueError(f"{what} must not be empty")
    if isinstance(value, str) and "\0" in value:
        # Databases cut or refuse it, each deep inside and in words of its own.
        raise ValueError(f"{what} must not hold a NUL character, got {value!r}")
    return str(value)


def id_list(values: Any, what: str) -> list[str]:
    """Ids as `str`, without repeats, in order.

    Raises:
        TypeError: If a single id or something that cannot be iterated is passed.
    """
    if isinstance(values, (str, bytes, uuid.UUID)) or not isinstance(values, Iterable):
        raise TypeError(f"{what}s must be a list of ids, got {values!r}; pass [{values!r}]")
    return list(dict.fromkeys(one_id(value, what) for value in values))


def prune_rules(
    *,
    strategy: str,
    keep_last: int,
    older_than: timedelta | datetime | None,
    pinned: Any,
    delta: str,
    severed: str,
) -> PruneRules:
    """Check the arguments of a prune and make rules of them."""
    _one_of("strategy", strategy, STRATEGIES)
    _one_of("delta", delta, DELTA_CHOICES)
    _one_of("severed", severed, SEVERED_CHOICES)
    if isinstance(keep_last, bool) or not isinstance(keep_last, int):
        raise TypeError(f"keep_last must be an int, got {keep_last!r}")
    if keep_last < 1:
        raise ValueError(
            f"keep_last must be 1 or more, got {keep_last}; strategy='delete' removes all rows"
        )
    rules = PruneRules(
        keep_last=keep_last,
        cutoff=_cutoff(older_than),
        pinned=frozenset(id_list(pinned, "pinned id")),
        delta=delta,
        severed=severed,
    )
    if strategy == "delete" and rules != PruneRules(delta=delta, severed=severed):
        raise ValueError(
            "strategy='delete' removes every checkpoint, so keep_last, older_than and pinned "
            "cannot be given with it; use strategy='keep_latest'"
        )
    return rules


def is_squashing(delta: Any) -> bool:
    """Whether `delta` of a run deletion or a copy asks for a squash.

    Raises:
        ValueError: If it is anything but `"keep_history"` or `"squash"`.
    """
    _one_of("delta", delta, SQUASH_CHOICES)
    return bool(delta == "squash")


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _cutoff(older_than: timedelta | datetime | None) -> datetime | None:
    if older_than is None:
        return None
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            raise ValueError(f"older_than must not be negative, got {older_than!r}")
        return datetime.now(timezone.utc) - older_than
    if isinstance(older_than, datetime):
        if older_than.tzinfo is None:
            raise ValueError(
                f"older_than must be an aware datetime, got the naive {older_than!r}; "
                "add a tzinfo such as timezone.utc"
            )
        return older_than
    raise TypeError(f"older_than must be a timedelta or a datetime, got {older_than!r}")
