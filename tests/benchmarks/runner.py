"""Prints times and ratios of variants that take turns, and remembers the bounds they broke."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Seconds = dict[str, list[float]]


@dataclass
class Report:
    """Prints results as they come, and remembers the bounds they broke."""

    broken: list[str] = field(default_factory=list)

    def title(self, text: str) -> None:
        print(f"\n{text}")

    def times(self, seconds: Seconds, rows: int | None = None) -> None:
        for name, values in seconds.items():
            speed = f"{rows / statistics.median(values):12,.0f} rows/s" if rows else ""
            print(f"  {name:44}{_spread([1000 * v for v in values], 1)} ms{speed}")

    def ratio(
        self,
        name: str,
        over: list[float],
        under: list[float],
        bound: float | None = None,
        *,
        least: float | None = None,
    ) -> None:
        """The ratio of two medians; `bound` is the most that it may be, or `least` the least."""
        value = statistics.median(over) / statistics.median(under)
        rounds = [a / b for a, b in zip(over, under, strict=False)]
        verdict = ""
        if bound is not None:
            verdict = f"  {'holds' if value <= bound else 'BROKEN'}: at most {bound}"
            if value > bound:
                self.broken.append(f"{name} is {value:.2f}, must be at most {bound}")
        if least is not None:
            verdict = f"  {'holds' if value >= least else 'BROKEN'}: at least {least}"
            if value < least:
                self.broken.append(f"{name} is {value:.2f}, must be at least {least}")
        print(f"  {'= ' + name:44}{value:9.2f}  ({min(rounds):.2f} - {max(rounds):.2f}){verdict}")

    def verdict(self) -> int:
        """Tell the bounds that are broken; returns the exit code."""
        for bound in self.broken:
            print(f"\nbroken: {bound}", file=sys.stderr)
        return 1 if self.broken else 0


def _spread(values: list[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):9,.{digits}f}  ({low:,.{digits}f} - {high:,.{digits}f})"


def take_turns(rounds: int, timed: Mapping[str, Callable[[], float]]) -> Seconds:
    seconds: Seconds = {name: [] for name in timed}
    for _ in range(rounds):
        for name, measure in timed.items():
            seconds[name].append(measure())
    return seconds
