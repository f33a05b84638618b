"""What the savers of others need and do, as a page of the documentation.

    python tests/third_party/report.py [--results JUNIT.xml] [--write]

Counts the lines of every hook in `savers/`, probes each saver as its author ships it, and adds
what the contract's run said, if told where pytest wrote it. Prints the page, or writes it.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "third_party.md"
DELETE = "_delete_checkpoint_rows"


@dataclass(frozen=True)
class Subject:
    name: str
    module: str
    server: str
    package: str
    suite: str
    is_async: bool = False


SUBJECTS = (
    Subject("LMDB", "lmdb", "folder", "langgraph-checkpoint-lmdb", "TestLMDB"),
    Subject(
        "Object storage",
        "objectstorage",
        "folder",
        "langgraph-checkpoint-objectstorage",
        "TestObjectStorage",
    ),
    Subject(
        "Plain Redis", "plainredis", "redis", "langgraph-checkpoint-plainredis", "TestPlainRedis"
    ),
    Subject("Valkey", "valkey", "redis", "langgraph-checkpoint-aws", "TestValkey"),
    Subject("DynamoDB", "dynamodb", "dynamodb", "langgraph-checkpoint-aws", "TestDynamoDB"),
    Subject("PyMySQL", "mysql", "mariadb", "langgraph-checkpoint-mysql", "TestPyMySQL"),
    Subject("aiomysql", "mysql", "mariadb", "langgraph-checkpoint-mysql", "TestAIOMySQL", True),
)


def hook_lines(subject: Subject) -> dict[str, int]:
    """Lines of each hook, by name, with those of the helpers that it uses.

    Blank lines, comments and docstrings do not count. A sync saver's async twins, and the other
    way round, are not its hooks.
    """
    text = HERE.joinpath("savers", f"{subject.module}.py").read_text()
    tree, source = ast.parse(text), text.splitlines()
    helpers = dict(_helpers(tree))
    kind = ast.AsyncFunctionDef if subject.is_async else ast.FunctionDef
    counted = {}
    for saver in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        for hook in [node for node in saver.body if isinstance(node, kind)]:
            nodes = [hook, *_used(hook, helpers, set())]
            counted[hook.name] = sum(len(_lines(node, source)) for node in nodes)
    return counted


def _helpers(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node


def _used(node: ast.AST, helpers: dict[str, ast.stmt], seen: set[str]) -> Iterator[ast.stmt]:
    for name in [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]:
        if name in helpers and name not in seen:
            seen.add(name)
            yield helpers[name]
            yield from _used(helpers[name], helpers, seen)


def _lines(node: ast.stmt, source: list[str]) -> list[str]:
    lines = source[node.lineno - 1 : node.end_lineno]
    return [line for line in lines if line.strip() and not line.strip().startswith("#")]


def probed(subjects: tuple[Subject, ...]) -> dict[str, Any]:
    """The report on each saver that can be reached here; why not, for the others."""
    import servers

    from delta_mixin.testing import aprobe_saver, probe_saver

    where: dict[str, str] = {}
    found: dict[str, Any] = {}

    async def aprobe(module: Any, address: str) -> Any:
        async with module.open_async_saver(address, module.ASYNC_UPSTREAM) as saver:
            return await aprobe_saver(saver)

    with ExitStack() as running:
        for subject in subjects:
            try:
                module = import_module(f"savers.{subject.module}")
                if subject.server not in where:
                    start = servers.SERVERS[subject.server]
                    where[subject.server] = running.enter_context(start())
                address = where[subject.server]
                if subject.is_async:
                    found[subject.name] = asyncio.run(aprobe(module, address))
                else:
                    with module.open_saver(address, module.UPSTREAM) as saver:
                        found[subject.name] = probe_saver(saver)
            except (ImportError, servers.MissingProgramError) as missing:
                found[subject.name] = str(missing)
    return found


def results(path: Path) -> tuple[dict[str, Counter[str]], dict[str, dict[str, str]]]:
    """Counts of outcomes, and each test that is expected to fail with its reason, by suite."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    faults: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(path).iter("testcase"):
        suite = case.get("classname", "").rsplit(".", 1)[-1]
        skipped = case.find("skipped")
        outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif skipped is not None and skipped.get("type") == "pytest.xfail":
            outcome = "expected to fail"
            name = case.get("name", "").partition("[")[0]
            faults[suite][name] = skipped.get("message", "")
        elif skipped is not None:
            outcome = "left out"
        counts[suite][outcome] += 1
    return counts, faults


def page(junit: Path | None) -> str:
    """The whole page."""
    reports = probed(SUBJECTS)
    lines = [
        "# Savers of others",
        "",
        "The hooks in `tests/third_party/savers` give these savers the cleanup methods, and",
        "`nox -s third_party` runs the contract on them. This page is written by",
        "`tests/third_party/report.py`.",
        "",
        "## Lines of code",
        "",
        "Helpers of a hook are counted with it.",
        "",
        *_table(["saver", "release", "`_delete_checkpoint_rows`", "other methods"], _code_rows()),
    ]
    if junit is not None:
        counts, faults = results(junit)
        outcomes = ("passed", "expected to fail", "left out", "failed")
        told = [[s.name, *(str(counts[s.suite][o]) for o in outcomes)] for s in SUBJECTS]
        lines += ["", "## The contract", "", *_table(["saver", *outcomes], told)]
        lines += ["", "Expected to fail, for what the savers themselves do:", ""]
        lines += [
            f"- {s.name}: `{test}`: {reason}."
            for s in SUBJECTS
            for test, reason in faults[s.suite].items()
        ]
        lines += [
            "",
            "Left out are tests of writes ordered by task path, which none of them does; of a walk",
            "along parents that form a loop, which the host's does not end; of both sides together",
            "where one is tested; and of squashes where their hook is not written, as LMDB's is.",
            "Should a release mend what is recorded here, as a test or as an answer of the probe,",
            "the run fails until the record is renewed.",
        ]
    lines += ["", "## What the probe finds", "", "Each saver as its author ships it.", ""]
    known = {name: report for name, report in reports.items() if not isinstance(report, str)}
    lines += [f"{name} could not be probed: {why}." for name, why in _unknown(reports)]
    answers = {name: report.rows() for name, report in known.items()}
    questions = [question for question, _, _ in next(iter(answers.values()))]
    lines += _table(
        ["question", *answers],
        [[q, *(rows[n][1] for rows in answers.values())] for n, q in enumerate(questions)],
    )
    hooks = {name: [(h.hook, h.verdict) for h in report.hooks] for name, report in known.items()}
    names = [hook for hook, _ in next(iter(hooks.values()))]
    lines += ["", "## Which hooks they need", ""]
    lines += _table(
        ["hook", *hooks],
        [[f"`{hook}`", *(rows[n][1] for rows in hooks.values())] for n, hook in enumerate(names)],
    )
    return "\n".join(lines) + "\n"


def _code_rows() -> list[list[str]]:
    rows = []
    for subject in SUBJECTS:
        counted = hook_lines(subject)
        delete = counted.pop("_adelete_checkpoint_rows" if subject.is_async else DELETE)
        others = ", ".join(f"`{name}` {count}" for name, count in counted.items())
        release = f"{subject.package} {version(subject.package)}"
        rows.append([subject.name, release, str(delete), others or "none"])
    return rows


def _unknown(reports: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, why) for name, why in reports.items() if isinstance(why, str)]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=inspect.getdoc(sys.modules[__name__]))
    parser.add_argument("--results", type=Path, help="what pytest wrote for --junitxml")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead")
    given = parser.parse_args()
    written = page(given.results)
    if given.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(written)
        print(f"wrote {PAGE}")
    else:
        print(written)


if __name__ == "__main__":
    main()
