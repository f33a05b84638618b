"""The command line: `python -m delta_mixin`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run a command; exit codes are 0 for fine, 1 for found something, 2 for could not look."""
    try:
        from delta_mixin.cli import app
    except ImportError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        sys.exit("The command line needs typer and rich: pip install 'delta-mixin[cli]'")
    app()


if __name__ == "__main__":
    main()
