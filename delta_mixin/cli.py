"""All commands; each topic adds its own group."""

from __future__ import annotations

import typer

from delta_mixin.schema.cli import schema

__all__ = ["app"]

app = typer.Typer(
    name="delta-mixin",
    help="Safe cleanup for LangGraph checkpoint savers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(schema, name="schema")


@app.callback()
def _main() -> None:
    # With one group only, typer would take its commands for the program's.
    pass
