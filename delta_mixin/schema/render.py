"""The library's statements as migration files to commit, review and apply as the schema owner.

1. A version row is written only after its statement succeeded, and never before those of all
   earlier statements: the highest row is what `PostgresSaver.setup()` goes by.
2. A fresh schema is one transactional file. Its tables are empty, so index builds need not be
   concurrent; the rest of the text is the library's own.
3. An upgrade keeps the library's order. From the first concurrent build on, everything goes to a
   second file that runs outside a transaction, one statement at a time.
4. A concurrent build that fails leaves an invalid index behind, which IF NOT EXISTS then takes
   for the real one. So each build is verified in the catalog before its version row, and each
   version row asks for the one before it, in case a runner goes on after an error.
5. Files can be applied again: statements pass over what exists.
6. The same input gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from delta_mixin.schema._alembic import revision_body
from delta_mixin.schema._library import (
    LIBRARY,
    installed_statements,
    installed_version,
)
from delta_mixin.schema._sql import Statement, split
from delta_mixin.schema._verify import index_is_gone, index_is_valid, record, record_after
from delta_mixin.schema.errors import UnsupportedStatementError

__all__ = ["Migration", "MigrationFile", "MigrationStep", "render_migration"]


@dataclass(frozen=True)
class MigrationStep:
    """Statements that stand or fall together.

    Attributes:
        labelled: In order, what each statement is for, and the statement with its semicolon.
        in_transaction: They form one transaction; otherwise each runs by itself, outside any.
        versions: What they are in the library's list.
    """

    labelled: tuple[tuple[str, str], ...]
    in_transaction: bool
    versions: tuple[int, ...]


@dataclass(frozen=True)
class MigrationFile:
    """One file to commit.

    Attributes:
        name: A file name without directory.
        in_transaction: Whether to run it in one transaction, or outside any.
        statements: The statements one by one, for a runner that takes them so.
        text: The file's content.
    """

    name: str
    in_transaction: bool
    statements: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Migration:
    """A rendered migration.

    Attributes:
        source: The library and its release.
        steps: The steps in order.
        first: Version of the first statement.
        last: Version of the last statement.
    """

    source: str
    steps: tuple[MigrationStep, ...]
    first: int
    last: int

    @property
    def files(self) -> tuple[MigrationFile, ...]:
        """The plain SQL form: no file when there is nothing to do, at most two."""
        inside = [step for step in self.steps[:1] if step.in_transaction]
        outside = self.steps[len(inside) :]
        stem = f"checkpointer_v{self.last}"
        if self.first:
            stem = f"checkpointer_v{self.first - 1}_to_v{self.last}"
        parts = [
            (f"{stem}.sql", inside, _INSIDE),
            (f"{stem}_outside_transaction.sql", outside, _OUTSIDE),
        ]
        parts = [part for part in parts if part[1]]
        marks = [f", file {i} of 2" if len(parts) == 2 else "" for i in (1, 2)]
        return tuple(
            self._file(name, steps, how, mark)
            for (name, steps, how), mark in zip(parts, marks, strict=False)
        )

    @property
    def alembic(self) -> str:
        """The Alembic form: imports, `upgrade()` and `downgrade()` of one revision."""
        steps = [(step.labelled, step.in_transaction) for step in self.steps]
        return revision_body(self._header(self.steps), steps)

    def _header(self, steps: Sequence[MigrationStep], mark: str = "") -> tuple[str, ...]:
        versions = [version for step in steps for version in step.versions]
        span = _span(versions[0], versions[-1]) if versions else "nothing to do"
        upgrade = f"upgrade from version {self.first - 1} to {self.last}"
        state = upgrade if self.first else "fresh schema"
        return (
            f"-- Checkpointer schema of {self.source}: {span} ({state}{mark}).",
            "-- Written by delta_mixin.schema. Do not edit: render again when the pin changes.",
        )

    def _file(
        self, name: str, steps: Sequence[MigrationStep], how: _How, mark: str
    ) -> MigrationFile:
        statements: list[str] = []
        blocks = ["\n".join([*how.marker, *self._header(steps, mark), *how.advice])]
        for step in steps:
            body = step.labelled
            if step.in_transaction and not how.in_transaction and len(body) > 1:
                body = (("together", "BEGIN;"), *body, ("", "COMMIT;"))
            statements += [statement for _, statement in body]
            blocks += [f"-- {label}\n{sql}" if label else sql for label, sql in body]
        return MigrationFile(
            name, how.in_transaction, tuple(statements), "\n\n".join(blocks) + "\n"
        )


@dataclass(frozen=True)
class _How:
    in_transaction: bool
    marker: tuple[str, ...]
    advice: tuple[str, ...]


_INSIDE = _How(
    True,
    (),
    (
        "-- Run as the schema owner, in one transaction:",
        "--   psql --single-transaction -v ON_ERROR_STOP=1 -f FILE",
    ),
)
_OUTSIDE = _How(
    False,
    # The first line is sqlx's own mark; other tools have a setting for it.
    ("-- no-transaction",),
    (
        "-- Run as the schema owner, OUTSIDE a transaction, one statement at a time:",
        "--   psql -v ON_ERROR_STOP=1 -f FILE",
        "-- After a failure drop the invalid index that is named, then run the file again.",
    ),
)


def render_migration(
    statements: Sequence[str] | None = None,
    *,
    from_version: int | None = None,
    source: str | None = None,
) -> Migration:
    """Render a list of migration statements for review; nothing is connected to.

    Args:
        statements: The list, a statement's version being its position. Default: the installed
            `PostgresSaver.MIGRATIONS`.
        from_version: Version the database is at, for an upgrade of live tables. Default: the
            schema is fresh.
        source: Library and release for the header. Default: the installed release, or "a given
            list of statements".

    Returns:
        The migration; its `files` are the SQL to commit, `alembic` is the same as a revision.

    Raises:
        UnsupportedStatementError: A statement cannot be carried over faithfully.
        ValueError: `from_version` is not a version of the list.
    """
    if source is None:
        named = statements is None
        source = f"{LIBRARY} {installed_version()}" if named else "a given list of statements"
    listed = installed_statements() if statements is None else tuple(statements)
    last = len(listed) - 1
    if from_version is not None and not 0 <= from_version <= last:
        raise ValueError(
            f"from_version={from_version}: the list has versions 0 to {last}; "
            "leave from_version out for a fresh schema"
        )
    first = 0 if from_version is None else from_version + 1
    entries = [_entry(version, listed[version]) for version in range(first, last + 1)]
    steps = _fresh(entries) if from_version is None else _upgrade(entries)
    return Migration(" ".join(source.split()), tuple(steps), first, last)


_Entry = tuple[int, tuple[Statement, ...]]


def _entry(version: int, sql: str) -> _Entry:
    statements = split(sql, version=version)
    for statement in statements:
        if reason := statement.refusal:
            raise UnsupportedStatementError(version, statement.text, reason)
    return version, tuple(statement.repeatable() for statement in statements)


def _span(first: int, last: int) -> str:
    return f"statement {first}" if first == last else f"statements {first} to {last}"


def _fresh(entries: Sequence[_Entry]) -> Iterator[MigrationStep]:
    plain = [(v, tuple(s.without_concurrently() for s in parts)) for v, parts in entries]
    if plain:
        yield _together(plain, record([version for version, _ in plain]))


def _upgrade(entries: Sequence[_Entry]) -> Iterator[MigrationStep]:
    plain: list[_Entry] = []
    for version, parts in entries:
        if not any(s.builds_concurrently or s.drops_concurrently for s in parts):
            plain.append((version, parts))
            continue
        if plain:
            yield _together(plain, record_after([v for v, _ in plain]))
            plain = []
        yield MigrationStep(_apart(version, parts), False, (version,))
    if plain:
        yield _together(plain, record_after([v for v, _ in plain]))


def _together(entries: Sequence[_Entry], recorded: str) -> MigrationStep:
    labelled = [(f"statement {v}", s.terminated) for v, parts in entries for s in parts]
    versions = tuple(version for version, _ in entries)
    return MigrationStep((*labelled, ("recorded as applied", recorded)), True, versions)


def _apart(version: int, parts: Sequence[Statement]) -> tuple[tuple[str, str], ...]:
    """The statement by itself, then its verification, which ends in the version row."""
    statements = [s for s in parts if not s.is_comment]
    if len(statements) > 1:
        # Sent as one string, as setup() does, the server would refuse it as well.
        reason = "a concurrent index build or drop cannot share its version with other statements"
        raise UnsupportedStatementError(version, "; ".join(s.text for s in statements), reason)
    (statement,) = statements
    if statement.builds_concurrently:
        condition = index_is_valid(*statement.index_and_table())
    else:
        dropped = statement.dropped_indexes()
        if len(dropped) > 1:  # so says the server, too
            raise UnsupportedStatementError(version, statement.text, "it drops several indexes")
        condition = index_is_gone(dropped[0])
    return (
        (f"statement {version}", statement.terminated),
        ("recorded as applied, once verified", record_after([version], condition)),
    )
