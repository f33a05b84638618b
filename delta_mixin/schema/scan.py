"""Find `.setup()` of Postgres checkpointers in source code, outside the places meant for it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from delta_mixin.schema._kinds import Kind, known_export
from delta_mixin.schema._module_scan import ModuleScan, Resolve

__all__ = ["SetupCall", "assert_no_setup_calls", "find_setup_calls"]

_SKIPPED = frozenset(
    ("__pycache__", "build", "dist", "node_modules", "site-packages", "venv", "virtualenv")
)
_ROUNDS = 10
# A file that holds none of these, and no name of one that does, has nothing to be found.
_WORDS = ("langgraph", "delta_mixin")

Exports: TypeAlias = "dict[str, Kind]"


@dataclass(frozen=True)
class SetupCall:
    """One place that runs, or hands on, a checkpointer's `setup`.

    Attributes:
        path: The file, as it was given or found.
        line: Line, from 1.
        column: Column, from 1.
        text: The expression, or why the file could not be read.
    """

    path: Path
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.text}"


def find_setup_calls(
    paths: Iterable[str | Path], *, allowed: Sequence[str] = (), classes: Sequence[str] = ()
) -> tuple[SetupCall, ...]:
    """Scan Python files for `.setup()` on Postgres checkpointers.

    Names are followed through aliases, annotations, `with` blocks, attributes, subclasses and
    functions that return a saver, also from one scanned file to another. A `setup` of
    something else, or of something that cannot be told, is no finding. Handing the method on
    (`asyncio.to_thread(saver.setup)`) is.

    Args:
        paths: Files and folders. In folders, hidden ones and environments are passed over.
        allowed: Files, folders or glob patterns whose calls are meant, such as `"tests/schema"`
            or `"*/conftest.py"`; relative ones to the working directory.
        classes: Further checkpointer classes that run migrations, as `"package.module.Name"`.

    Returns:
        The findings in order of path and line; a file that cannot be parsed is one, if it speaks
        of langgraph at all.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    files = sorted({file for path in paths for file in _files(Path(path))})
    modules = [_Module(file) for file in files]
    known = _Known(modules, classes)
    wanted = {*_WORDS, *(part for name in classes for part in name.split("."))}
    due = [module for module in modules if wanted & module.words]
    for _ in range(_ROUNDS):  # a name may have come through several modules
        changed = [module for module in due if module.scan(known.kind_of)]
        due = [m for m in modules if any(m.may_import(other) for other in changed)]
        if not due:
            break
    findings = [
        SetupCall(module.path, line, column + 1, text)
        for module in modules
        for (line, column), text in module.found.items()
    ]
    meant = [str(pattern) for pattern in allowed]
    kept = (f for f in findings if not any(_matches(f.path, pattern) for pattern in meant))
    return tuple(sorted(kept, key=lambda f: (f.path, f.line, f.column)))


def assert_no_setup_calls(
    paths: Iterable[str | Path], *, allowed: Sequence[str] = (), classes: Sequence[str] = ()
) -> None:
    """The scan as a test; see `find_setup_calls`.

    Raises:
        AssertionError: Names each place, and says what to do instead.
    """
    calls = find_setup_calls(paths, allowed=allowed, classes=classes)
    if calls:
        lines = "\n".join(f"  {call}" for call in calls)
        raise AssertionError(
            f"setup() of a checkpointer outside {list(allowed)}:\n{lines}\n"
            "Ship the schema as a migration and use delta_mixin.schema.open_checkpointer."
        )


class _Module:
    """A file and what is known of it so far; parsed only if it can matter."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A folder's name may hold a dot, a module's cannot.
        parts = tuple(p.replace(".", "_") for p in path.resolve().with_suffix("").parts[1:])
        self._is_package = parts[-1] == "__init__"
        self.name = parts[:-1] if self._is_package else parts
        self.package = parts[:-1]
        self.source = path.read_bytes()
        self.words = set(re.findall(r"\w+", self.source.decode(errors="replace")))
        self.tree: ast.Module | None = None
        self.exports: Exports = {}
        self.found: dict[tuple[int, int], str] = {}

    def scan(self, resolve: Resolve) -> bool:
        """Read the module; whether its exports are other than before."""
        if self.tree is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of escapes in other people's strings
                    self.tree = ast.parse(self.source)
            except (SyntaxError, ValueError) as error:
                line = getattr(error, "lineno", None) or 1
                self.found[line, 0] = f"cannot be parsed: {error}"
                return False
        scan = ModuleScan(self.tree, self.package, resolve, self.exports).run()
        self.found = scan.found
        before, self.exports = self.exports, scan.exports
        return before != self.exports

    def may_import(self, other: _Module) -> bool:
        """Whether what the other module exports can matter here."""
        if self is other:  # a function may be called above what tells its result
            return True
        below = other._is_package and self.package[: len(other.package)] == other.package
        named = below or other.name[-1] in self.words
        return named and not other.exports.keys().isdisjoint(self.words)


class _Known:
    """Exports of published modules, of named classes, and of all scanned files."""

    def __init__(self, modules: Iterable[_Module], classes: Iterable[str]) -> None:
        self._named = set(classes)
        self._by_last: dict[str, list[_Module]] = {}
        for module in modules:
            self._by_last.setdefault(module.name[-1], []).append(module)

    def kind_of(self, module: str, name: str) -> Kind | None:
        if f"{module}.{name}" in self._named:
            return Kind.CLASS
        if kind := known_export(module, name):
            return kind
        parts = tuple(module.split("."))
        for candidate in self._by_last.get(parts[-1], ()):
            if candidate.name[-len(parts) :] == parts and name in candidate.exports:
                return candidate.exports[name]
        return None


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise FileNotFoundError(f"nothing to scan at {path}")
    for entry in path.iterdir():
        if entry.is_dir():
            if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                yield from _files(entry)
        elif entry.suffix == ".py":
            yield entry


def _matches(path: Path, pattern: str) -> bool:
    here, place = path.absolute(), Path(pattern).absolute()
    return (
        here == place
        or place in here.parents
        or fnmatch(str(here), str(place))
        or (pattern.startswith("*") and fnmatch(str(here), pattern))
    )
