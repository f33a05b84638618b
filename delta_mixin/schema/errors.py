"""Errors of schema ownership: each says what was found, and what to ship or grant."""

from __future__ import annotations

from collections.abc import Sequence

from delta_mixin.errors import DeltaMixinError

__all__ = [
    "MissingExtraError",
    "SchemaBehindError",
    "SchemaGapError",
    "SchemaMissingError",
    "SchemaNotReadyError",
    "SchemaPrivilegeError",
    "SchemaSearchPathError",
    "UnsupportedStatementError",
]

_RENDER = "python -m delta_mixin schema render"


class MissingExtraError(DeltaMixinError, ImportError):
    """A library of an optional extra is not installed."""

    def __init__(self, extra: str, library: str) -> None:
        self.extra = extra
        super().__init__(f"{library} is not installed; install 'delta-mixin[{extra}]'")


class UnsupportedStatementError(DeltaMixinError, ValueError):
    """A statement of a migration list that no rendered file can carry faithfully.

    Attributes:
        version: Position of the statement in the list.
        statement: The statement.
    """

    def __init__(self, version: int, statement: str, reason: str) -> None:
        self.version = version
        self.statement = statement
        super().__init__(
            f"statement {version}: {reason}. Write this step by hand: {statement.strip()!r}"
        )


class SchemaNotReadyError(DeltaMixinError):
    """Base class of the refusals of `open_checkpointer`; nothing was changed."""


class SchemaMissingError(SchemaNotReadyError):
    """No schema of the database has a `checkpoint_migrations` table.

    Attributes:
        database: Name of the database.
        search_path: The connection's search_path.
    """

    def __init__(self, database: str, search_path: str, schema: str | None = None) -> None:
        self.database = database
        self.search_path = search_path
        where = f"schema {schema!r} of database" if schema else "database"
        super().__init__(
            f"no checkpoint_migrations table in {where} {database!r} "
            f"(search_path: {search_path}): the checkpointer's migration was never applied here. "
            f"Apply it as the schema owner (`{_RENDER}` writes it), or correct the connection "
            "string."
        )


class SchemaSearchPathError(SchemaNotReadyError):
    """The checkpoint tables are in the database, but not where this connection looks.

    Attributes:
        schemas: The schemas that have a `checkpoint_migrations` table.
        search_path: The connection's search_path.
    """

    def __init__(
        self, schemas: Sequence[str], search_path: str, wanted: str, seen: str | None
    ) -> None:
        self.schemas: tuple[str, ...] = tuple(schemas)
        self.search_path = search_path
        reads = f"reads those of schema {seen!r}" if seen else "sees none of them"
        super().__init__(
            f"checkpoint tables are in schema(s) {', '.join(map(repr, self.schemas))}, but this "
            f"connection (search_path: {search_path}) {reads}. Put {wanted!r} first on the "
            "path: ALTER ROLE … SET search_path = … holds behind poolers too, "
            "options=-csearch_path=… in the connection string for direct connections."
        )


class SchemaPrivilegeError(SchemaNotReadyError):
    """The role may not read the version of the schema.

    Attributes:
        role: The connection's role.
        schema: The schema of the checkpoint tables.
        privilege: What it lacks.
    """

    def __init__(self, role: str, schema: str, privilege: str) -> None:
        self.role = role
        self.schema = schema
        self.privilege = privilege
        super().__init__(
            f"role {role!r} lacks {privilege} in schema {schema!r}. "
            "Have the schema owner run the statements of "
            "`python -m delta_mixin schema grants ROLE --schema SCHEMA`."
        )


class SchemaBehindError(SchemaNotReadyError):
    """The database lacks statements that the installed library relies on.

    Attributes:
        applied: Highest version in `checkpoint_migrations`, `None` if it has no row.
        expected: The version the installed library needs.
        missing: Versions to ship, in ascending order.
        schema: The schema that was looked at.
    """

    def __init__(
        self, applied: int | None, expected: int, missing: Sequence[int], schema: str
    ) -> None:
        self.applied = applied
        self.expected = expected
        self.missing: tuple[int, ...] = tuple(missing)
        self.schema = schema
        since = self.missing[0] - 1
        state = "holds no version row" if applied is None else f"is at version {applied}"
        render = _RENDER if since < 0 else f"{_RENDER} --from-version {since}"
        super().__init__(
            f"checkpoint schema {schema!r} {state}, the installed library expects {expected}: "
            f"statement(s) {_ranges(self.missing)} are not recorded as applied. Ship them as the "
            f"schema owner before this build: `{render}` writes the migration."
        )


class SchemaGapError(SchemaNotReadyError):
    """The newest version is recorded, an older one is not: a step failed or was left out.

    `PostgresSaver.setup()` looks at the highest row alone and would never run that step.

    Attributes:
        missing: The versions without a row, in ascending order.
        applied: Highest version in `checkpoint_migrations`.
        schema: The schema that was looked at.
    """

    def __init__(self, missing: Sequence[int], applied: int, schema: str) -> None:
        self.missing: tuple[int, ...] = tuple(missing)
        self.applied = applied
        self.schema = schema
        since = self.missing[0] - 1
        render = _RENDER if since < 0 else f"{_RENDER} --from-version {since}"
        super().__init__(
            f"checkpoint schema {schema!r} records version {applied}, but has no row for "
            f"statement(s) {_ranges(self.missing)}: a step failed or was left out, and setup() "
            f"would never run it. Apply `{render}` as the schema owner (its statements pass over "
            "what exists); `python -m delta_mixin schema check` names what is missing."
        )


def _ranges(versions: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for version in versions:
        if runs and runs[-1][-1] == version - 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
