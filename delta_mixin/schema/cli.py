"""Commands around the schema of the Postgres checkpointer, made for terminals and for CI.

Exit codes: 0 for fine, 1 for found something, 2 for could not look. Results go to standard
output, everything else to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from delta_mixin.errors import DeltaMixinError

if TYPE_CHECKING:
    from psycopg import Connection

    from delta_mixin.schema.shape import Shape

__all__ = ["schema"]

schema = typer.Typer(
    help="Own the schema of the Postgres checkpointer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

Dsn = Annotated[
    str,
    typer.Option(
        envvar="DATABASE_URL",
        help="Connection string; better given in the environment, where no process list shows it.",
    ),
]
Schema = Annotated[
    str | None, typer.Option(help="The schema; default: where the search_path leads.")
]


class Form(str, Enum):
    """How to write a migration."""

    sql = "sql"
    alembic = "alembic"


@schema.command()
def render(
    from_version: Annotated[
        int | None, typer.Option(help="Version the database is at; default: a fresh schema.")
    ] = None,
    form: Annotated[Form, typer.Option(help="Plain SQL or an Alembic revision body.")] = Form.sql,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write to; default: print.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite files that differ.")] = False,
) -> None:
    """Write the installed library's statements as a migration to commit and review."""
    from delta_mixin.schema.errors import UnsupportedStatementError
    from delta_mixin.schema.render import render_migration

    with _told():
        try:
            migration = render_migration(from_version=from_version)
        except UnsupportedStatementError:
            raise
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--from-version") from error
        texts = {file.name: file.text for file in migration.files}
        if texts and form is Form.alembic:
            stem = next(iter(texts)).removesuffix(".sql").removesuffix("_outside_transaction")
            texts = {f"{stem}.py": migration.alembic}
    if not texts:
        _err.print(f"Nothing to do: version {migration.last} is the newest.")
    for name, text in texts.items():
        if output is not None:
            _write(output / name, text, force)
        else:
            if len(texts) > 1:
                typer.echo(f"-- file: {name}")
            typer.echo(text, nl=False)


@schema.command()
def check(dsn: Dsn, schema: Schema = None) -> None:
    """Compare a database with what the installed library expects; nothing is changed."""
    from delta_mixin.schema.check import check_schema

    with _told(), _connected(dsn) as conn:
        found = check_schema(conn, schema=schema)
    out = Console(highlight=False, markup=False, soft_wrap=True)
    out.print(str(found), style="green" if found.ok else "red")
    raise typer.Exit(0 if found.ok else 1)


@schema.command()
def shape(
    dsn: Dsn,
    schema: Schema = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show the checkpoint tables of a database."""
    from delta_mixin.schema.shape import schema_shape

    with _told(), _connected(dsn) as conn:
        found = schema_shape(conn, schema=schema)
    if as_json:
        typer.echo(json.dumps(asdict(found)["tables"], indent=2, sort_keys=True))
    else:
        _show(found)
    if not found.tables:
        _err.print("There are no checkpoint tables.")
        raise typer.Exit(1)


@schema.command()
def grants(
    role: Annotated[str, typer.Argument(help="The role that the application runs as.")],
    schema: Annotated[str, typer.Option(help="The schema of the checkpoint tables.")] = "public",
) -> None:
    """Write the statements that leave a role nothing but rows."""
    from delta_mixin.schema.grants import runtime_grants

    with _told():
        try:
            statements = runtime_grants(role, schema=schema)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    for statement in statements:
        typer.echo(f"{statement.as_string(None)};")


@schema.command()
def scan(
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.")],
    allow: Annotated[
        list[str] | None, typer.Option(help="File, folder or pattern where calls are meant.")
    ] = None,
    saver_class: Annotated[
        list[str] | None, typer.Option(help="A further checkpointer class, package.module.Name.")
    ] = None,
) -> None:
    """Find setup() of Postgres checkpointers in source code."""
    from delta_mixin.schema.scan import find_setup_calls

    with _told():
        try:
            calls = find_setup_calls(paths, allowed=allow or (), classes=saver_class or ())
        except FileNotFoundError as error:
            raise typer.BadParameter(str(error), param_hint="PATHS") from error
    for call in calls:
        typer.echo(str(call))
    if calls:
        _err.print("Ship the schema as a migration; open_checkpointer checks it at boot.")
        raise typer.Exit(1)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of this package as a message and exit code 2."""
    try:
        yield
    except DeltaMixinError as error:
        _err.print(str(error), style="red")
        raise typer.Exit(2) from error


@contextmanager
def _connected(dsn: str) -> Iterator[Connection[Any]]:
    try:
        import psycopg
    except ImportError as missing:
        from delta_mixin.schema.errors import MissingExtraError

        raise MissingExtraError("postgres", "psycopg") from missing
    try:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
            yield conn
    except psycopg.Error as error:
        _err.print(str(error).strip(), style="red")
        raise typer.Exit(2) from error


def _write(path: Path, text: str, force: bool) -> None:
    if path.exists() and path.read_text() != text and not force:
        _err.print(f"{path} holds something else; --force overwrites it.", style="red")
        raise typer.Exit(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    typer.echo(str(path))


def _show(found: Shape) -> None:
    console = Console(highlight=False)
    for name, table in found.tables.items():
        columns = Table(title=name, title_justify="left", title_style="bold")
        for heading in ("column", "type", "null", "default", "key"):
            columns.add_column(heading, overflow="fold")
        for column, is_ in table.columns.items():
            key = str(table.primary_key.index(column) + 1) if column in table.primary_key else ""
            null = "yes" if is_.nullable else "no"
            columns.add_row(column, is_.type, null, is_.default or "", key)
        console.print(columns, markup=False)
        for index in table.indexes.values():
            state = "" if index.valid else "INVALID: "
            console.print(f"{state}{index.definition}", markup=False, soft_wrap=True)
