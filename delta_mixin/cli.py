"""All commands; each topic adds its own group."""

from __future__ import annotations

import typer

from delta_mixin._verify_command import verify
from delta_mixin.schema.cli import schema

__all__ = ["app"]

app = typer.Typer(
    name="delta-mixin",
    help="Safe cleanup for LangGraph checkpoint savers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(schema, name="schema")
app.command()(verify)


@app.callback()
def _main() -> None:
    # Typer shows the help of the program, not of one of its commands.
    pass
