"""A nightly job: shrink every thread that has been quiet for some days to its newest checkpoints.

    DATABASE_URL=postgresql://... python retention.py --days 30 --keep-last 3

Threads stay usable: what is kept reads back as before, delta channels and pending writes
included. The job may run beside the application and beside itself, and may be killed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import psycopg
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from delta_mixin import CleanupFailedError, CleanupPlan, SeveredHistoryError
from delta_mixin.adapters.postgres import DeltaPostgresSaver

AT_ONCE = 2_000
"""How many threads one call takes, after which the job tells what it could not do."""


@dataclass
class Summary:
    """What the job has done so far."""

    threads: int = 0
    checkpoints_before: int = 0
    checkpoints_deleted: int = 0
    delta_threads: int = 0
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, plan: CleanupPlan) -> None:
        self.threads += 1
        self.checkpoints_before += len(plan.kept) + len(plan.doomed)
        self.checkpoints_deleted += len(plan.doomed)
        self.delta_threads += bool(plan.delta_channels)

    def table(self) -> Table:
        table = Table(title="Retention", show_header=False)
        rows = {
            "threads cleaned": self.threads,
            "of which rebuild a delta channel": self.delta_threads,
            "checkpoints before": self.checkpoints_before,
            "checkpoints deleted": self.checkpoints_deleted,
            "threads left alone": len(self.problems),
        }
        for name, number in rows.items():
            table.add_row(name, f"{number:,}")
        return table


def oldest_id_of(moment: datetime) -> str:
    """The smallest checkpoint id of a moment: ids are version 6 UUIDs, which sort by time.

    Layout: RFC 9562, section 5.6 (100 ns units since 1582-10-15).
    """
    since = moment - datetime(1582, 10, 15, tzinfo=timezone.utc)
    ticks = f"{(since.days * 86_400 + since.seconds) * 10_000_000 + since.microseconds * 10:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}"


def quiet_threads(conn: psycopg.Connection, before: datetime) -> list[str]:
    """Threads whose newest checkpoint is older, in any namespace."""
    query = "SELECT thread_id FROM checkpoints GROUP BY thread_id HAVING max(checkpoint_id) < %s"
    return [row[0] for row in conn.execute(query, (oldest_id_of(before),))]


def clean(dsn: str, days: float, keep_last: int, console: Console) -> Summary:
    """Prune all quiet threads; a thread that cannot be pruned stops no other."""
    summary = Summary()
    before = datetime.now(timezone.utc) - timedelta(days=days)
    with psycopg.connect(dsn, autocommit=True) as conn:
        thread_ids = quiet_threads(conn, before)
    with (
        DeltaPostgresSaver.from_conn_string(dsn) as saver,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("Pruning", total=len(thread_ids))

        def report(plan: CleanupPlan) -> None:
            summary.add(plan)
            progress.advance(task)

        for start in range(0, len(thread_ids), AT_ONCE):
            some = thread_ids[start : start + AT_ONCE]
            try:
                saver.prune(some, keep_last=keep_last, on_plan=report)
            except CleanupFailedError as error:
                summary.problems |= {t: str(e) for t, e in error.causes.items()}
                if isinstance(error.__cause__, SeveredHistoryError):
                    summary.problems |= {t: b[0] for t, b in error.__cause__.breaks.items()}
            except SeveredHistoryError as error:
                summary.problems |= {t: b[0] for t, b in error.breaks.items()}
            progress.update(task, completed=min(start + AT_ONCE, len(thread_ids)))
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dsn", default=os.environ.get("DATABASE_URL", ""))
    parser.add_argument("--days", type=float, default=30, help="how long a thread must be quiet")
    parser.add_argument("--keep-last", type=int, default=1, help="checkpoints to keep of each")
    given = parser.parse_args(arguments)
    console = Console()
    summary = clean(given.dsn, given.days, given.keep_last, console)
    console.print(summary.table())
    for thread_id, problem in summary.problems.items():
        console.print(f"left alone: {thread_id}: {problem}", style="red", markup=False)
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
