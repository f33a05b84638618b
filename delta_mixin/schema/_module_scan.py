"""What the names of a module stand for, as far as Postgres checkpointers go.

A small abstract interpreter. It follows names through imports, assignments, `with` blocks,
annotations, functions that return a saver and classes derived from one; branches are merged,
so a name is a checkpointer where it may be one. What it cannot tell is nothing: no alarm is
raised by a name's looks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from delta_mixin.schema._kinds import Kind, ModuleName, Value, any_of, dotted_name, last_name

__all__ = ["ModuleScan", "Resolve"]

Resolve: TypeAlias = "Callable[[str, str], Kind | None]"
Env: TypeAlias = "dict[str, Value]"
Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"

_STARRED = ("PostgresSaver", "AsyncPostgresSaver", "ShallowPostgresSaver")
_CALLED = {
    Kind.CLASS: Kind.SAVER,
    Kind.MAKES_SAVER: Kind.SAVER,
    Kind.MAKES_CONTEXT: Kind.CONTEXT,
}
_ENTERS = ("enter_context", "enter_async_context")
_MANAGERS = ("AbstractContextManager", "AbstractAsyncContextManager")
_TRANSPARENT = (
    *("Optional", "Union", "Annotated", "Awaitable", "Coroutine", "Final"),
    *("Iterator", "AsyncIterator", "Generator", "AsyncGenerator"),
)


@dataclass
class _Class:
    """The class whose body is being read."""

    is_saver: bool
    attributes: Env = field(default_factory=dict)


class ModuleScan:
    """One reading of a module.

    Attributes:
        exports: What its module-level names stand for, once `run` is done.
        found: Line, column and source of each reference to `setup` of a checkpointer.
    """

    def __init__(
        self, tree: ast.Module, package: Sequence[str], resolve: Resolve, before: Mapping[str, Kind]
    ) -> None:
        self.exports: dict[str, Kind] = {}
        self.found: dict[tuple[int, int], str] = {}
        self._tree = tree
        self._package = package
        self._resolve = resolve
        self._fixtures: Env = {}
        self._class: _Class | None = None
        self._in_class_body = False
        self._returned: list[Value] = []
        self._yielded: list[Value] = []
        self._deferred: list[Callable[[], None]] = []
        # A function may be called above the line that tells what it returns.
        self._scopes: list[Env] = [dict(before)]

    def run(self) -> ModuleScan:
        """Read the module: its own statements first, then the functions, which see all names."""
        self._block(self._tree.body)
        while self._deferred:
            self._deferred.pop(0)()
        own = self._scopes[0]
        self.exports = {name: kind for name, kind in own.items() if isinstance(kind, Kind)}
        return self

    # Statements

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            handler = getattr(self, f"_do_{type(statement).__name__}", None)
            if handler is not None:
                handler(statement)
            else:
                self._children(statement)

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._block([child])
            elif isinstance(child, ast.expr):
                self._eval(child)
            else:
                self._children(child)

    def _do_Import(self, node: ast.Import) -> None:  # noqa: N802
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._bind(name, ModuleName(alias.name if alias.asname else name))

    def _do_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        module = node.module or ""
        if node.level:
            above = self._package[: len(self._package) - node.level + 1]
            module = ".".join([*above, *filter(None, [module])])
        for alias in node.names:
            if alias.name == "*":
                for name in _STARRED:
                    if kind := self._resolve(module, name):
                        self._bind(name, kind)
                continue
            value = self._resolve(module, alias.name)
            self._bind(alias.asname or alias.name, value or ModuleName(f"{module}.{alias.name}"))

    def _do_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        value = self._eval(node.value)
        for target in node.targets:
            self._assign(target, value, node.value)

    def _do_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802
        value = self._eval(node.value) if node.value else None
        self._assign(node.target, value or self._annotated(node.annotation))

    def _do_With(self, node: ast.With | ast.AsyncWith) -> None:  # noqa: N802
        for item in node.items:
            value = self._eval(item.context_expr)
            if item.optional_vars is not None:
                entered = Kind.SAVER if value is Kind.CONTEXT else None
                self._assign(item.optional_vars, entered)
        self._block(node.body)

    _do_AsyncWith = _do_With  # noqa: N815

    def _do_If(self, node: ast.If) -> None:  # noqa: N802
        self._eval(node.test)
        with self._branches() as branch:
            with branch():
                self._narrow(node.test)
                self._block(node.body)
            with branch():
                self._block(node.orelse)

    def _do_Try(self, node: ast.Try) -> None:  # noqa: N802
        self._block(node.body)
        with self._branches() as branch:
            with branch():
                self._block(node.orelse)
            for handler in node.handlers:
                with branch():
                    self._block(handler.body)
        self._block(node.finalbody)

    _do_TryStar = _do_Try  # noqa: N815

    def _do_For(self, node: ast.For | ast.AsyncFor | ast.While) -> None:  # noqa: N802
        with self._branches() as branch:
            with branch():
                pass
            with branch():
                if isinstance(node, ast.While):
                    self._eval(node.test)
                else:
                    self._eval(node.iter)
                    self._assign(node.target, None)
                self._block(node.body)
        self._block(node.orelse)

    _do_AsyncFor = _do_While = _do_For  # noqa: N815

    def _do_Match(self, node: ast.Match) -> None:  # noqa: N802
        self._eval(node.subject)
        with self._branches() as branch:
            for case in node.cases:
                with branch():
                    pattern = case.pattern
                    subject = dotted_name(node.subject)
                    if isinstance(pattern, ast.MatchAs) and pattern.pattern is not None:
                        subject, pattern = pattern.name, pattern.pattern
                    is_saver = isinstance(pattern, ast.MatchClass) and (
                        self._eval(pattern.cls) is Kind.CLASS
                    )
                    if is_saver and subject:
                        self._bind(subject, Kind.SAVER)
                    self._block(case.body)

    def _do_Assert(self, node: ast.Assert) -> None:  # noqa: N802
        self._eval(node.test)
        self._narrow(node.test)

    def _do_Return(self, node: ast.Return) -> None:  # noqa: N802
        self._returned.append(self._eval(node.value) if node.value else None)

    def _do_FunctionDef(self, node: Function) -> None:  # noqa: N802
        for decorator in node.decorator_list:
            self._eval(decorator)
        scopes, class_, is_method = list(self._scopes), self._class, self._in_class_body
        if not is_method:
            annotated = self._returned_by(node, None, None)
            self._bind(node.name, annotated or self._scopes[-1].get(node.name))
        self._deferred.append(lambda: self._function(node, scopes, class_, is_method))

    _do_AsyncFunctionDef = _do_FunctionDef  # noqa: N815

    def _do_ClassDef(self, node: ast.ClassDef) -> None:  # noqa: N802
        is_saver = any(self._eval(base) is Kind.CLASS for base in node.bases)
        self._bind(node.name, Kind.CLASS if is_saver else None)
        outer = (self._class, self._in_class_body)
        class_ = self._class = _Class(is_saver)
        self._in_class_body = True
        self._scopes.append({})
        self._block(node.body)
        body = self._scopes.pop()
        class_.attributes.update({f"self.{name}": value for name, value in body.items()})
        scopes = list(self._scopes)
        # Attributes may be set below their use: learn them first, silently.
        for item in reversed(node.body):
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._deferred.insert(0, partial(self._learn, item, scopes, class_))
        self._class, self._in_class_body = outer

    def _learn(self, node: Function, scopes: list[Env], class_: _Class) -> None:
        found, deferred = dict(self.found), list(self._deferred)
        self._function(node, scopes, class_, True)
        self.found, self._deferred = found, deferred

    def _function(
        self, node: Function, scopes: list[Env], class_: _Class | None, is_method: bool
    ) -> None:
        outer = (self._scopes, self._class, self._in_class_body, self._returned, self._yielded)
        self._scopes, self._class, self._in_class_body = [*scopes, {}], class_, False
        self._returned, self._yielded = [], []
        try:
            self._parameters(node, class_ if is_method else None)
            self._block(node.body)
            kind = self._returned_by(node, any_of(self._returned), any_of(self._yielded))
        finally:
            self._scopes, self._class, self._in_class_body = outer[:3]
            self._returned, self._yielded = outer[3:]
        if kind is None:
            return
        if any(last_name(d) == "fixture" for d in node.decorator_list):
            self._fixtures[node.name] = Kind.SAVER
        elif is_method and class_ is not None:
            class_.attributes[f"self.{node.name}"] = kind
        else:
            scopes[-1][node.name] = kind

    def _parameters(self, node: Function, class_: _Class | None) -> None:
        given = node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        for parameter in named:
            value = self._annotated(parameter.annotation) if parameter.annotation else None
            self._bind(parameter.arg, value or self._fixtures.get(parameter.arg))
        decorators = {last_name(decorator) for decorator in node.decorator_list}
        if class_ is None or not named or "staticmethod" in decorators:
            return
        if class_.is_saver:
            is_class = "classmethod" in decorators
            self._bind(named[0].arg, Kind.CLASS if is_class else Kind.SAVER)
        for name, value in class_.attributes.items():
            self._scopes[-1][name.replace("self", named[0].arg, 1)] = value

    def _returned_by(self, node: Function, returned: Value, yielded: Value) -> Kind | None:
        annotation = self._annotated(node.returns) if node.returns else None
        decorators = {last_name(decorator) for decorator in node.decorator_list}
        if decorators & {"contextmanager", "asynccontextmanager"}:
            return Kind.MAKES_CONTEXT if Kind.SAVER in (annotation, yielded) else None
        if decorators & {"property", "cached_property"}:
            return Kind.SAVER if Kind.SAVER in (annotation, returned) else None
        if "fixture" in decorators:
            return Kind.SAVER if Kind.SAVER in (annotation, returned, yielded) else None
        if returned is Kind.CONTEXT:
            return Kind.MAKES_CONTEXT
        return Kind.MAKES_SAVER if Kind.SAVER in (annotation, returned) else None

    # Expressions

    def _eval(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name):
            return self._lookup(node.id)
        if isinstance(node, ast.NamedExpr):
            value = self._eval(node.value)
            self._assign(node.target, value)
            return value
        if isinstance(node, (ast.Await, ast.Starred)):
            return self._eval(node.value)
        if isinstance(node, ast.IfExp):
            self._eval(node.test)
            return any_of([self._eval(node.body), self._eval(node.orelse)])
        if isinstance(node, ast.BoolOp):
            return any_of([self._eval(value) for value in node.values])
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            self._yielded.append(self._eval(node.value) if node.value else None)
            return None
        self._children(node)
        return None

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self._eval(node.value)
        if node.attr == "setup" and base in (Kind.SAVER, Kind.CLASS):
            self._report(node)
            return None
        if base is Kind.CLASS:
            return Kind.MAKES_CONTEXT if node.attr == "from_conn_string" else None
        if base is Kind.CONTEXT:
            return Kind.MAKES_SAVER if node.attr in ("__enter__", "__aenter__") else None
        dotted = dotted_name(node)
        if dotted and (value := self._lookup(dotted)):
            return value
        if isinstance(base, ModuleName):
            return self._resolve(base.dotted, node.attr) or ModuleName(f"{base.dotted}.{node.attr}")
        return None

    def _call(self, node: ast.Call) -> Value:
        callee = self._eval(node.func)
        arguments = [self._eval(argument) for argument in node.args]
        for keyword in node.keywords:
            self._eval(keyword.value)
        name = last_name(node.func)
        if name in _ENTERS and arguments[:1] == [Kind.CONTEXT]:
            return Kind.SAVER
        if name == "cast" and arguments[:1] == [Kind.CLASS]:
            return Kind.SAVER
        if name == "getattr" and arguments[:1] == [Kind.SAVER] and len(node.args) > 1:
            attribute = node.args[1]
            if isinstance(attribute, ast.Constant) and attribute.value == "setup":
                self._report(node)
            return None
        if name == "super" and not node.args and self._class and self._class.is_saver:
            return Kind.SAVER
        return _CALLED.get(callee) if isinstance(callee, Kind) else None

    def _annotated(self, node: ast.expr) -> Value:
        """What a value annotated so is."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self._annotated(ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                return None
        if isinstance(node, ast.BinOp):
            return any_of([self._annotated(node.left), self._annotated(node.right)])
        if isinstance(node, ast.Subscript):
            inner = node.slice
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            value = any_of([self._annotated(part) for part in parts])
            name = last_name(node.value)
            if name in ("type", "Type"):
                return Kind.CLASS if value is Kind.SAVER else None
            if name in _MANAGERS:
                return Kind.CONTEXT if value is Kind.SAVER else None
            if name in _TRANSPARENT:
                return value
            return self._annotated(node.value)  # a generic checkpointer class
        if isinstance(node, (ast.Name, ast.Attribute)):
            return Kind.SAVER if self._eval(node) in (Kind.CLASS, Kind.ANNOTATION) else None
        return None

    # Names

    def _lookup(self, name: str) -> Value:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _bind(self, name: str, value: Value) -> None:
        scope = self._scopes[-1]
        for bound in [key for key in scope if key.startswith(f"{name}.")]:
            del scope[bound]  # they belonged to what the name stood for
        scope[name] = value

    def _assign(self, target: ast.expr, value: Value, source: ast.expr | None = None) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            pairs = source.elts if isinstance(source, (ast.Tuple, ast.List)) else []
            same = len(pairs) == len(target.elts)
            for i, element in enumerate(target.elts):
                self._assign(element, self._eval(pairs[i]) if same else None)
        elif dotted := dotted_name(target):
            self._bind(dotted, value)
            first, _, rest = dotted.partition(".")
            if self._class is not None and rest and first in ("self", "cls"):
                merged = any_of([self._class.attributes.get(f"self.{rest}"), value])
                self._class.attributes[f"self.{rest}"] = merged
        else:
            self._children(target)

    def _narrow(self, test: ast.expr) -> None:
        """Take `isinstance` at its word."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for part in test.values:
                self._narrow(part)
        if (
            isinstance(test, ast.Call)
            and last_name(test.func) == "isinstance"
            and len(test.args) == 2
        ):
            classes = test.args[1]
            parts = classes.elts if isinstance(classes, ast.Tuple) else [classes]
            name = dotted_name(test.args[0])
            if name and Kind.CLASS in [self._eval(part) for part in parts]:
                self._bind(name, Kind.SAVER)

    @contextmanager
    def _branches(self) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        start = dict(self._scopes[-1])
        ends: list[Env] = []

        @contextmanager
        def branch() -> Iterator[None]:
            self._scopes[-1].clear()
            self._scopes[-1].update(start)
            yield
            ends.append(dict(self._scopes[-1]))

        yield branch
        merged = self._scopes[-1]
        merged.clear()
        for name in dict.fromkeys(name for end in ends for name in end):
            merged[name] = any_of([end.get(name) for end in ends])

    def _report(self, node: ast.expr) -> None:
        self.found[node.lineno, node.col_offset] = ast.unparse(node)
