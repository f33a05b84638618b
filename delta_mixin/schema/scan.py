"""Find `.setup()` of Postgres checkpointers in source code, outside the places meant for it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from delta_mixin.schema._kinds import Kind, known_export
from delta_mixin.schema._module_scan import ModuleScan

__all__ = ["SetupCall", "assert_no_setup_calls", "find_setup_calls"]

_SKIPPED = frozenset(
    ("__pycache__", "build", "dist", "node_modules", "site-packages", "venv", "virtualenv")
)
_ROUNDS = 10

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
        The findings in order of path and line; a file that cannot be parsed is one.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    files = sorted({file for path in paths for file in _files(Path(path))})
    modules: list[_Module] = []
    findings: list[SetupCall] = []
    for file in files:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in other people's strings
                modules.append(_Module(file, ast.parse(file.read_bytes())))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            findings.append(SetupCall(file, line, 1, f"cannot be parsed: {error}"))
    known = _Known(modules, classes)
    for _ in range(_ROUNDS):  # a name may have come through several modules
        changed = False
        for module in modules:
            scan = ModuleScan(module.tree, module.package, known.kind_of, module.exports).run()
            module.found = scan.found
            changed |= scan.exports != module.exports
            module.exports = scan.exports
        if not changed:
            break
    for module in modules:
        for (line, column), text in module.found.items():
            findings.append(SetupCall(module.path, line, column + 1, text))
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
    """A parsed file and what is known of it so far."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        # A folder's name may hold a dot, a module's cannot.
        parts = tuple(p.replace(".", "_") for p in path.resolve().with_suffix("").parts[1:])
        self.name = parts[:-1] if parts[-1] == "__init__" else parts
        self.package = parts[:-1]
        self.exports: Exports = {}
        self.found: dict[tuple[int, int], str] = {}


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
