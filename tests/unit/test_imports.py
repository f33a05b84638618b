"""Who may import what."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import delta_mixin

PACKAGE = Path(delta_mixin.__file__).parent
PURE = (
    "errors",
    "base_rows",
    "model",
    "listing",
    "_ids",
    "_view",
    "channels",
    "marking",
    "contraction",
    "_sweeping",
    "_sealing",
    "planner",
    "drawing",
    "findings",
    "inspection",
    "_copying",
    "_compacting",
)
PURE_IMPORTS = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",
    "delta_mixin",
    "functools",
    "heapq",
    "itertools",
    "operator",
    "typing",
    "uuid",
}


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("module", PURE)
def test_the_core_is_pure(module):
    names = imported(PACKAGE / f"{module}.py")
    assert {name.split(".")[0] for name in names} <= PURE_IMPORTS
    inside = {name.removeprefix("delta_mixin.") for name in names if name.startswith("delta_mixin")}
    assert inside <= set(PURE)


def test_only_the_harness_imports_test_tools():
    for path in PACKAGE.rglob("*.py"):
        tools = {name for name in imported(path) if name.split(".")[0] in ("pytest", "hypothesis")}
        assert not tools or path.is_relative_to(PACKAGE / "testing"), (path, tools)


def test_importing_the_package_needs_the_standard_library_alone():
    code = (
        "import sys, delta_mixin, delta_mixin.compaction\n"
        "tops = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(tops - set(sys.stdlib_module_names) - {'__main__', 'delta_mixin'}))"
    )
    run = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"


def test_files_stay_readable():
    long = {
        p.name: n for p in PACKAGE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 450
    }
    assert not long
