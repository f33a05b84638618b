"""The shape that a list of migration statements leads to, without a server.

Statements are parsed and carried out on a model. Types, defaults and index definitions are
spelled by the parser, so a live shape has to pass through `normalized` before it is compared.
What the model does not know is refused: a shape is right or there is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_mixin.schema.errors import MissingExtraError, UnsupportedStatementError
from delta_mixin.schema.shape import Column, Index, Shape, Table

if TYPE_CHECKING:
    pass

__all__ = ["expected_shape", "normalized"]

_DIALECT = "postgres"
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def expected_shape(statements: Sequence[str]) -> Shape:
    """The normalized shape after all statements ran on an empty schema.

    Raises:
        UnsupportedStatementError: A statement does something the model has no notion of.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    model = _Model()
    for version, sql in enumerate(statements):
        try:
            parsed = [tree for tree in _sqlglot().parse(sql, read=_DIALECT) if tree is not None]
        except SqlglotError as broken:
            raise UnsupportedStatementError(
                version, sql, f"it cannot be parsed: {broken}"
            ) from None
        for tree in parsed:
            try:
                if not isinstance(tree, (exp.Select, exp.Semicolon)):
                    model.run(tree)
            except _UnknownError as unknown:
                reason = f"its effect on the shape is not known ({unknown})"
                raise UnsupportedStatementError(version, sql, reason) from None
    return model.shape()


def normalized(shape: Shape) -> Shape:
    """A live shape in the spelling of `expected_shape`."""
    return Shape(
        {
            name: Table(
                {column: _normal_column(found) for column, found in table.columns.items()},
                table.primary_key,
                {i: _normal_live_index(found) for i, found in table.indexes.items()},
            )
            for name, table in shape.tables.items()
        }
    )


class _UnknownError(Exception):
    """What the model cannot carry out."""


@dataclass
class _Draft:
    columns: dict[str, Column] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    indexes: dict[str, Index] = field(default_factory=dict)


class _Model:
    """Tables as the statements so far leave them."""

    def __init__(self) -> None:
        self.tables: dict[str, _Draft] = {}

    def shape(self) -> Shape:
        return Shape(
            {n: Table(t.columns, t.primary_key, t.indexes) for n, t in self.tables.items()}
        )

    def run(self, tree: Any) -> None:
        from sqlglot import exp

        if isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
            self._create_table(tree)
        elif isinstance(tree, exp.Create) and tree.args.get("kind") == "INDEX":
            self._create_index(tree)
        elif isinstance(tree, exp.Alter) and tree.args.get("kind") == "TABLE":
            for action in tree.args["actions"]:
                self._alter(self._table(tree.this), action)
        elif isinstance(tree, exp.Drop) and tree.args.get("kind") in ("INDEX", "TABLE"):
            self._drop(tree)
        else:
            raise _UnknownError(type(tree).__name__)

    def _table(self, node: Any) -> _Draft:
        name = _name(node.this)
        if name not in self.tables:
            raise _UnknownError(f"table {name} is not of this list")
        return self.tables[name]

    def _create_table(self, tree: Any) -> None:
        from sqlglot import exp

        if not isinstance(tree.this, exp.Schema) or tree.args.get("expression") is not None:
            raise _UnknownError("a table without a list of columns")
        name = _name(tree.this.this.this)
        if name in self.tables and tree.args.get("exists"):
            return
        draft = self.tables[name] = _Draft()
        for item in tree.this.expressions:
            if isinstance(item, exp.ColumnDef):
                self._add_column(draft, item)
            else:
                self._add_constraint(draft, item)

    def _add_column(self, draft: _Draft, item: Any) -> None:
        from sqlglot import exp

        name = _name(item.this)
        if name in draft.columns and item.args.get("exists"):
            return
        draft.columns[name] = Column(_type(item.args["kind"]))
        for constraint in item.args.get("constraints") or ():
            kind = constraint.kind
            if isinstance(kind, exp.NotNullColumnConstraint):
                nullable = bool(kind.args.get("allow_null"))
                draft.columns[name] = replace(draft.columns[name], nullable=nullable)
            elif isinstance(kind, exp.DefaultColumnConstraint):
                default = _expression(kind.this)
                draft.columns[name] = replace(draft.columns[name], default=default)
            elif isinstance(kind, exp.PrimaryKeyColumnConstraint):
                self._set_primary_key(draft, (name,))
            else:
                raise _UnknownError(kind.sql(_DIALECT))

    def _add_constraint(self, draft: _Draft, item: Any) -> None:
        from sqlglot import exp

        if isinstance(item, exp.Constraint):
            (item,) = item.expressions
        if not isinstance(item, exp.PrimaryKey):
            raise _UnknownError(item.sql(_DIALECT))
        self._set_primary_key(draft, tuple(_name(part) for part in item.expressions))

    def _set_primary_key(self, draft: _Draft, names: tuple[str, ...]) -> None:
        draft.primary_key = names
        for name in names:
            draft.columns[name] = replace(draft.columns[name], nullable=False)

    def _alter(self, draft: _Draft, action: Any) -> None:
        from sqlglot import exp

        if isinstance(action, exp.ColumnDef):
            self._add_column(draft, action)
        elif isinstance(action, exp.AddConstraint):
            for item in action.expressions:
                self._add_constraint(draft, item)
        elif isinstance(action, exp.AlterColumn):
            self._alter_column(draft, action)
        elif isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
            for node in action.args.get("tables") or [action.this]:
                name = _name(node.this)
                if any(name in _words(index.definition) for index in draft.indexes.values()):
                    raise _UnknownError(f"indexes that go with column {name}")
                draft.columns.pop(name, None)
        else:
            raise _UnknownError(action.sql(_DIALECT))

    def _alter_column(self, draft: _Draft, action: Any) -> None:
        name = _name(action.this)
        if name not in draft.columns:
            raise _UnknownError(f"column {name} is not of this list")
        column, args = draft.columns[name], action.args
        if args.get("allow_null") is not None:
            column = replace(column, nullable=bool(args["allow_null"]))
        elif args.get("dtype") is not None:
            column = replace(column, type=_type(args["dtype"]))
        elif args.get("default") is not None:
            column = replace(column, default=_expression(args["default"]))
        elif args.get("drop"):
            column = replace(column, default=None)
        else:
            raise _UnknownError(action.sql(_DIALECT))
        draft.columns[name] = column

    def _create_index(self, tree: Any) -> None:
        index = tree.this
        if index.this is None:
            raise _UnknownError("the server chooses the index's name")
        name = _name(index.this)
        draft = self._table(index.args["table"])
        if name in draft.indexes and tree.args.get("exists"):
            return
        draft.indexes[name] = Index(_normal_index(tree))

    def _drop(self, tree: Any) -> None:
        for node in tree.args.get("tables") or [tree.this]:
            name = _name(node.this)
            if tree.args["kind"] == "TABLE":
                self.tables.pop(name, None)
            for draft in self.tables.values():
                draft.indexes.pop(name, None)


def _sqlglot() -> Any:
    try:
        import sqlglot
    except ImportError as missing:
        raise MissingExtraError("schema", "sqlglot") from missing
    return sqlglot


def _name(identifier: Any) -> str:
    """The name as the server stores it; anything around an identifier is taken off."""
    from sqlglot import exp

    while not isinstance(identifier, exp.Identifier):
        identifier = identifier.this
    return identifier.name if identifier.args.get("quoted") else identifier.name.lower()


def _type(node: Any) -> str:
    spelled = str(node.sql(_DIALECT)).lower()
    if "serial" in spelled:
        raise _UnknownError(f"the sequence behind {spelled}")
    return spelled


def _expression(node: Any) -> str | None:
    """An expression without what the server adds to it: casts, parentheses, quotes of numbers."""
    from sqlglot import exp

    bare = _bare(node)
    return None if isinstance(bare, exp.Null) else str(bare.sql(_DIALECT))


def _bare(node: Any) -> Any:
    from sqlglot import exp

    root = exp.Paren(this=node.copy())
    for wrapping in [*root.find_all(exp.Paren, exp.Cast)][:0:-1]:
        wrapping.replace(wrapping.this)
    for text in root.find_all(exp.Literal):
        if text.is_string:
            with suppress(ValueError):  # jsonb has a spelling of its own
                text.set("this", json.dumps(json.loads(text.name)))
    bare = root.this
    number = isinstance(bare, exp.Literal) and _NUMBER.fullmatch(bare.name)
    return exp.maybe_parse(bare.name, dialect=_DIALECT) if number else bare


def _normal_column(column: Column) -> Column:
    from sqlglot import exp

    type_ = exp.DataType.build(column.type, dialect=_DIALECT, udt=True)
    default = None
    if column.default is not None:
        default = _expression(_sqlglot().parse_one(column.default, read=_DIALECT))
    return Column(_type(type_), column.nullable, default)


def _normal_live_index(index: Index) -> Index:
    return Index(_normal_index(_sqlglot().parse_one(index.definition, read=_DIALECT)), index.valid)


def _normal_index(tree: Any) -> str:
    """`CREATE INDEX` with everything spelled out, less what does not last: how it was built."""
    from sqlglot import exp

    tree = tree.copy()
    tree.set("concurrently", False)
    tree.set("exists", False)
    tree.this.set("table", exp.to_table(_name(tree.this.args["table"].this)))
    params = tree.this.args["params"]
    method = params.args.get("using")
    params.set("using", exp.var(method.name.lower() if method else "btree"))
    for ordered in params.args.get("columns") or ():
        ordered.set("desc", bool(ordered.args.get("desc")))
        ordered.set("this", _bare(ordered.this))
    for setting in params.args.get("with_storage") or ():
        setting.set("value", _bare(setting.args["value"]))
    if where := params.args.get("where"):
        where.set("this", _bare(where.this))
    return str(tree.sql(_DIALECT))


def _words(definition: str) -> set[str]:
    from delta_mixin.schema._sql import split

    (statement,) = split(definition)
    return {word.lower() for word in statement.words}
