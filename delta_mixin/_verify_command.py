"""The command `verify`: look for damage in the threads of a SQLite file or a Postgres database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

__all__ = ["verify"]

_err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def verify(
    database: Annotated[
        str,
        typer.Argument(
            envvar="DATABASE_URL",
            help="A SQLite file or a postgresql:// connection string, better given in the "
            "environment.",
        ),
    ],
    thread: Annotated[
        list[str] | None, typer.Option(help="Only this thread; can be repeated.")
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(help="A channel known to be delta, in case no row says so; can be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line per finding.")] = False,
) -> None:
    """Look for damage in threads: exit code 1 if one of them is not healthy."""
    from delta_mixin.verification import verify_thread

    with _told(), _saver(database) as saver:
        healthy = True
        for thread_id in dict.fromkeys(thread or _threads(saver)):
            report = verify_thread(saver, thread_id, channels=channel or ())
            healthy &= report.healthy
            if as_json:
                for finding in report.findings:
                    typer.echo(json.dumps(asdict(finding)))
            elif report.findings or thread:
                typer.echo(str(report))
    raise typer.Exit(0 if healthy else 1)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of a database as a message and exit code 2."""
    try:
        yield
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        _err.print(f"{type(error).__name__}: {error}", style="red")
        raise typer.Exit(2) from error


@contextmanager
def _saver(database: str) -> Iterator[Any]:
    if database.startswith(("postgres://", "postgresql://")):
        from delta_mixin.adapters.postgres import DeltaPostgresSaver

        with DeltaPostgresSaver.from_conn_string(database) as saver:
            yield saver
        return
    from delta_mixin.adapters.sqlite import DeltaSqliteSaver

    if not Path(database).is_file():
        raise typer.BadParameter(f"no such file: {database}", param_hint="DATABASE")
    with DeltaSqliteSaver.from_conn_string(database) as sqlite_saver:
        sqlite_saver.setup()
        yield sqlite_saver


def _threads(saver: Any) -> list[str]:
    found = saver.conn.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")
    # The connections of the host's Postgres savers return mappings.
    return [row["thread_id"] if isinstance(row, dict) else row[0] for row in found.fetchall()]
