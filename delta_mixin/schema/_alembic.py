"""The Alembic form of a migration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["revision_body"]

# What `sqlalchemy.text`, behind `op.execute`, reads as a bound parameter or an escaped colon.
_SPECIAL = re.compile(r"(?<![:\w\\]):\w|\\:")


def revision_body(
    header: Iterable[str], steps: Iterable[tuple[Sequence[tuple[str, str]], bool]]
) -> str:
    """Write imports, `upgrade()` and `downgrade()` of one revision.

    Args:
        header: SQL comment lines.
        steps: Labelled statements, and whether they run in Alembic's transaction.
    """
    lines = [line.replace("--", "#", 1) for line in header]
    lines += ["", "from alembic import op", "", "", "def upgrade() -> None:"]
    start = len(lines)
    for statements, in_transaction in steps:
        indent = "    "
        if not in_transaction:
            lines.append("    with op.get_context().autocommit_block():")
            indent = "        "
        for label, statement in statements:
            lines += [f"{indent}# {label}", f"{indent}op.execute({_literal(statement)})"]
    if len(lines) == start:
        lines.append("    pass")
    lines += [
        "",
        "",
        "def downgrade() -> None:",
        "    # Nothing to undo: an older build of the application serves on this schema.",
        "    pass",
    ]
    return "\n".join(lines) + "\n"


def _literal(sql: str) -> str:
    # All colons or none: an escape is not undone where an unescaped colon follows its word.
    escaped = sql.replace(":", "\\:") if _SPECIAL.search(sql) else sql
    plain = escaped.replace("\n", "").isprintable()
    if plain and "\\" not in escaped and '"""' not in escaped and not escaped.endswith('"'):
        return f'"""{escaped}"""' if "\n" in escaped or '"' in escaped else f'"{escaped}"'
    return repr(escaped)
