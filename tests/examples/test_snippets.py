"""The Python in README and documentation runs: per page, from top to bottom.

A block that cannot run says why in the line above it, `<!-- not run: ... -->`, and is reported
as skipped.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
FENCE = re.compile(
    r"(?:<!-- not run:(?P<why>.*?)-->\n)?"
    r"^(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
NOT_PYTHON = {"", "console", "toml", "sql", "{toctree}", "{eval-rst}"}


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield match, text.count("\n", 0, match.start("code"))


def pages_with_python():
    return [page for page in PAGES if any(m["language"] == "python" for m, _ in blocks(page))]


def name_of(page):
    return str(page.relative_to(ROOT))


def test_the_pages_that_show_code_are_found():
    assert {"README.md", "docs/howto/application.md", "docs/howto/write_a_saver.md"} <= {
        name_of(page) for page in pages_with_python()
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_escapes_by_its_fence(page):
    found = list(blocks(page))
    fences = re.findall(r"^[ ]*(?:`{3,}|~{3,})", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(found), "an indented or unclosed fence is not run"
    for match, _ in found:
        assert match["language"] in NOT_PYTHON | {"python"}, match["language"]


@pytest.mark.parametrize("page", pages_with_python(), ids=name_of)
def test_the_code_on_a_page_runs(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    run = [match["code"] for match, _ in blocks(page) if match["why"] is None]
    if any('os.environ["DATABASE_URL"]' in code for code in run):
        monkeypatch.setenv("DATABASE_URL", request.getfixturevalue("dsn"))
    names = {"__name__": "page"}
    left_out = []
    for match, line in blocks(page):
        if match["language"] != "python":
            continue
        if match["why"] is not None:
            assert match["why"].strip(), f"{name_of(page)}, line {line}: say why it is not run"
            left_out.append(match["why"].strip())
            continue
        # Empty lines in front make a traceback point into the page.
        exec(compile("\n" * line + match["code"], str(page), "exec"), names)
    if left_out:
        pytest.skip(f"not run: {'; '.join(left_out)}")
