"""The tutorial, followed to the letter: a project of its own, the wheel, red tests, green tests."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from delta_mixin.testing.oracle import SETTLED_HOST

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "red_to_green.md").read_text(encoding="utf-8")
FILE = re.compile(
    r"<!-- not run: tests/newcomer writes it to (?P<path>\S+), step (?P<step>\d) -->\n"
    r"```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OUTPUT = re.compile(
    r"<!-- output: step (?P<step>\d) -->\n```console\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL
)
SETTINGS = re.search(r"```toml\n(?P<toml>.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not SETTLED_HOST, reason="the page tells of newer hosts")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter with the wheel installed, and nothing of the checkout in sight."""
    pytest.importorskip("hatchling", reason="builds the wheel")
    folder = tmp_path_factory.mktemp("newcomer")
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    _run(sys.executable, *build, cwd=ROOT)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    install = ("install", "-q", "--no-deps", "--no-index", str(wheel))
    _run(sys.executable, "-m", "pip", "--python", str(python), *install, cwd=folder)
    (packages,) = (folder / "venv" / "lib").glob("*/site-packages")
    # What the wheel depends on is taken from the environment that runs the tests.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    where = _run(python, "-c", "import delta_mixin; print(delta_mixin.__file__)", cwd=folder)
    assert Path(where.stdout.strip()).is_relative_to(packages)
    return python


def test_the_tutorial_goes_from_red_to_green(python, tmp_path):
    project = tmp_path / "notes-saver"
    project.mkdir()
    (project / "pyproject.toml").write_text(SETTINGS["toml"])
    assert _follow(project, "1", python) == 1
    assert _follow(project, "2", python) == 0


def _follow(project, step, python):
    """Write the files of a step, run pytest, and hold the page to what it prints."""
    files = [match for match in FILE.finditer(PAGE) if match["step"] == step]
    assert len(files) == 2
    for match in files:
        path = project / match["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(match["code"])
    run = _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project, check=False)
    told = {_plain(line) for line in run.stdout.splitlines()}
    outputs = [match["lines"] for match in OUTPUT.finditer(PAGE) if match["step"] == step]
    assert outputs
    missing = [line for lines in outputs for line in lines.splitlines() if _plain(line) not in told]
    assert not missing, run.stdout[-3000:] + run.stderr
    return run.returncode


def _plain(line):
    """A line of pytest's without its frame; counts grow with the contract, so any number does."""
    return re.sub(r"\d+", "n", re.sub(r"^E |^-+ (\w+) -+$", r"\1", line).strip())


def _run(*command, cwd, check=True):
    run = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert not check or run.returncode == 0, run.stdout + run.stderr
    return run
