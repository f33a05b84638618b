"""`find_setup_calls` finds what runs a Postgres checkpointer's migrations, and little else."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

import delta_mixin
from delta_mixin.schema import assert_no_setup_calls, find_setup_calls

IMPORTS = """\
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
"""

FOUND = {
    "direct": "PostgresSaver(conn).setup()",
    "a name": "saver = PostgresSaver(conn)\nsaver.setup()",
    "a second name": "a = PostgresSaver(conn)\nb = a\nb.setup()",
    "two at once": "a, b = 1, PostgresSaver(conn)\nb.setup()",
    "an alias of the class": (
        "from langgraph.checkpoint.postgres import PostgresSaver as P\nP(c).setup()"
    ),
    "the class assigned": "Saver = PostgresSaver\nSaver(c).setup()",
    "a module": "import langgraph.checkpoint.postgres as pg\npg.PostgresSaver(c).setup()",
    "a dotted module": (
        "import langgraph.checkpoint.postgres\n"
        "langgraph.checkpoint.postgres.PostgresSaver(c).setup()"
    ),
    "a module from its package": (
        "from langgraph.checkpoint import postgres\npostgres.PostgresSaver(c).setup()"
    ),
    "a star": "from langgraph.checkpoint.postgres import *\nPostgresSaver(c).setup()",
    "the shallow saver": (
        "from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver as S\nS(c).setup()"
    ),
    "this package's saver": (
        "from delta_mixin.adapters.postgres import DeltaPostgresSaver\n"
        "DeltaPostgresSaver(c).setup()"
    ),
    "the opened checkpointer": (
        "from delta_mixin.schema import open_checkpointer\nopen_checkpointer(conn).setup()"
    ),
    "awaited": "async def f():\n    saver = AsyncPostgresSaver(c)\n    await saver.setup()",
    "an awaited opener": (
        "from delta_mixin.schema import aopen_checkpointer\n"
        "async def f(c):\n    saver = await aopen_checkpointer(c)\n    await saver.setup()"
    ),
    "with": "with PostgresSaver.from_conn_string(u) as saver:\n    saver.setup()",
    "with, in two steps": (
        "manager = PostgresSaver.from_conn_string(u)\nwith manager as saver:\n    saver.setup()"
    ),
    "async with": (
        "async def f():\n"
        "    async with pool() as p, AsyncPostgresSaver.from_conn_string(u) as saver:\n"
        "        await saver.setup()"
    ),
    "an exit stack": (
        "saver = stack.enter_context(PostgresSaver.from_conn_string(u))\nsaver.setup()"
    ),
    "an async exit stack": (
        "async def f(stack):\n"
        "    s = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(u))\n"
        "    await s.setup()"
    ),
    "entered by hand": "saver = PostgresSaver.from_conn_string(u).__enter__()\nsaver.setup()",
    "a subclass": "class Mine(PostgresSaver):\n    pass\nMine(c).setup()",
    "a subclass of a subclass": (
        "class A(PostgresSaver): ...\nclass B(Mixin, A): ...\nwith B.from_conn_string(u) as b:\n"
        "    b.setup()"
    ),
    "inside a subclass": (
        "class Mine(PostgresSaver):\n    def __init__(this, c):\n        this.setup()"
    ),
    "super": "class Mine(PostgresSaver):\n    def setup(self):\n        super().setup()",
    "unbound": "PostgresSaver.setup(saver)",
    "an annotated parameter": "def f(saver: PostgresSaver):\n    saver.setup()",
    "an optional parameter": "def f(*, saver: PostgresSaver | None = None):\n    saver.setup()",
    "a quoted annotation": "def f(saver: 'Optional[AsyncPostgresSaver]'):\n    saver.setup()",
    "annotated with the base class": (
        "from langgraph.checkpoint.base import BaseCheckpointSaver\n"
        "def f(saver: BaseCheckpointSaver[str]):\n    saver.setup()"
    ),
    "an attribute": (
        "class App:\n"
        "    def start(self):\n        self.saver.setup()\n"
        "    def __init__(self):\n        self.saver = PostgresSaver(c)"
    ),
    "an annotated attribute": (
        "class App:\n    saver: PostgresSaver\n    def start(self):\n        self.saver.setup()"
    ),
    "a property": (
        "class App:\n    @property\n    def saver(self):\n        return PostgresSaver(c)\n"
        "    def start(self):\n        self.saver.setup()"
    ),
    "someone's attribute": (
        "app.state.checkpointer = PostgresSaver(c)\napp.state.checkpointer.setup()"
    ),
    "a function's result": "def make():\n    return PostgresSaver(c)\nmake().setup()",
    "a function defined below": (
        "def boot():\n    make().setup()\ndef make() -> PostgresSaver: ..."
    ),
    "a context manager of one's own": (
        "@contextmanager\ndef opened():\n"
        "    with PostgresSaver.from_conn_string(u) as s:\n        yield s\n"
        "with opened() as saver:\n    saver.setup()"
    ),
    "an annotated async context manager": (
        "@asynccontextmanager\nasync def opened() -> AsyncIterator[AsyncPostgresSaver]: ...\n"
        "async def f():\n    async with opened() as saver:\n        await saver.setup()"
    ),
    "a pytest fixture": (
        "@pytest.fixture\ndef saver():\n    yield PostgresSaver(c)\n"
        "def test_it(saver):\n    saver.setup()"
    ),
    "one branch": (
        "if production:\n    saver = PostgresSaver(c)\nelse:\n    saver = InMemorySaver()\n"
        "saver.setup()"
    ),
    "a conditional": "saver = PostgresSaver(c) if url else None\nsaver.setup()",
    "a guarded import": (
        "try:\n    from langgraph.checkpoint.postgres import PostgresSaver as P\n"
        "except ImportError:\n    P = None\nP(c).setup()"
    ),
    "isinstance": (
        "def f(saver):\n    if isinstance(saver, (PostgresSaver, str)):\n        saver.setup()"
    ),
    "match": ("def f(s):\n    match s:\n        case AsyncPostgresSaver():\n            s.setup()"),
    "a walrus": "if (saver := PostgresSaver(c)):\n    saver.setup()",
    "getattr": "saver = PostgresSaver(c)\ngetattr(saver, 'setup')()",
    "handed on": "asyncio.to_thread(PostgresSaver(c).setup)",
    "the method in a name": "run = PostgresSaver(c).setup\nrun()",
    "a closure": (
        "def f():\n    saver = PostgresSaver(c)\n    def g():\n        saver.setup()\n    return g"
    ),
    "a nested function in a method": (
        "class A:\n    def f(self, saver: PostgresSaver):\n"
        "        def g():\n            saver.setup()\n        g()"
    ),
    "inside a loop": "for url in urls:\n    saver = PostgresSaver(url)\n    saver.setup()",
    "in a finally": "try:\n    s = PostgresSaver(c)\nfinally:\n    s.setup()",
    "cast": "saver = cast(PostgresSaver, thing)\nsaver.setup()",
}

PASSED_OVER = {
    "another object": "app.setup()",
    "another name of the module": (
        "from langgraph.checkpoint.postgres import Conn\nConn(c).setup()"
    ),
    "a name alone": "saver.setup()\ncheckpointer.setup()",
    "the store": "from langgraph.store.postgres import PostgresStore\nPostgresStore(c).setup()",
    "another checkpointer": (
        "from langgraph.checkpoint.sqlite import SqliteSaver\nSqliteSaver(c).setup()"
    ),
    "a class of the same name": "from mine import PostgresSaver\nPostgresSaver(c).setup()",
    "a class of one's own": (
        "class PostgresSaver:\n    def setup(self): ...\nPostgresSaver().setup()"
    ),
    "a name taken over": "saver = PostgresSaver(c)\nsaver = Application()\nsaver.setup()",
    "an attribute of a name taken over": (
        "app.saver = PostgresSaver(c)\napp = Application()\napp.saver.setup()"
    ),
    "a parameter that hides the name": (
        "saver = PostgresSaver(c)\ndef f(saver):\n    saver.setup()"
    ),
    "a loop variable that hides the name": (
        "saver = PostgresSaver(c)\nfor saver in others:\n    saver.setup()"
    ),
    "other methods": "PostgresSaver(c).put(config)\nPostgresSaver(c).setup_done",
    "a method that is set": "saver = PostgresSaver(c)\nsaver.setup = nothing",
    "unittest": "class T(Case):\n    def t(self):\n        self.setup()\n        super().setup()",
    "an attribute of the saver": "PostgresSaver(c).conn.setup()",
    "a string": "text = 'PostgresSaver(c).setup()'  # PostgresSaver(c).setup()",
    "a fixture elsewhere": "def test_it(saver):\n    saver.setup()",
    "isinstance, the other branch": (
        "def f(saver):\n    if isinstance(saver, PostgresSaver):\n        pass\n"
        "    else:\n        saver.setup()"
    ),
    "a context manager's own setup": "PostgresSaver.from_conn_string(u).setup()",
    "a nested function's first parameter": (
        "class Mine(PostgresSaver):\n    def f(self):\n"
        "        def g(app):\n            app.setup()\n        g(1)"
    ),
    "a static method's first parameter": (
        "class Mine(PostgresSaver):\n    @staticmethod\n    def f(app):\n        app.setup()"
    ),
}


def scan(tmp_path: Path, source: str) -> list[int]:
    file = tmp_path / "module.py"
    file.write_text(IMPORTS + source)
    return [call.line - 2 for call in find_setup_calls([file])]


@pytest.mark.parametrize("source", FOUND.values(), ids=FOUND)
def test_found_once_where_it_stands(tmp_path, source):
    lines = [i for i, line in enumerate(source.splitlines(), 1) if "setup" in line]
    expected = [i for i in lines if "def setup" not in source.splitlines()[i - 1]]
    assert scan(tmp_path, source) == expected


@pytest.mark.parametrize("source", PASSED_OVER.values(), ids=PASSED_OVER)
def test_passed_over(tmp_path, source):
    assert scan(tmp_path, source) == []


def write(root: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source))


def found_in(root: Path, **options) -> list[str]:
    return [call.path.relative_to(root).as_posix() for call in find_setup_calls([root], **options)]


def test_names_are_followed_from_file_to_file(tmp_path):
    write(
        tmp_path,
        {
            "v1.2/app/__init__.py": "from .db import saver as checkpointer",
            "v1.2/app/savers.py": f"{IMPORTS}\nclass Tenant(PostgresSaver): ...",
            "v1.2/app/db.py": """
                from .savers import Tenant
                def get_saver(): return Tenant(1)
                saver = get_saver()
            """,
            "v1.2/app/jobs/boot.py": "from ..db import get_saver\nget_saver().setup()",
            "v1.2/app/jobs/more.py": "from app import db, savers\ndb.saver.setup()",
            "v1.2/app/jobs/last.py": "import app\napp.checkpointer.setup()",
            "v1.2/app/top.py": "from . import checkpointer\ncheckpointer.setup()",
            "v1.2/app/jobs/other.py": "from other.db import saver\nsaver.setup()",
        },
    )
    jobs = [f"v1.2/app/jobs/{n}.py" for n in ("boot", "last", "more")]
    assert found_in(tmp_path) == [*jobs, "v1.2/app/top.py"]


def test_allowed_places_are_passed_over(tmp_path, monkeypatch):
    call = f"{IMPORTS}PostgresSaver(c).setup()"
    files = ("app/boot.py", "tests/conftest.py", "tests/schema/test_shape.py", "tests/schema2.py")
    write(tmp_path, dict.fromkeys(files, call))
    monkeypatch.chdir(tmp_path)
    assert found_in(tmp_path) == list(files)
    assert found_in(tmp_path, allowed=["tests/schema"]) == [files[0], files[1], files[3]]
    assert found_in(tmp_path, allowed=["*/conftest.py", "tests/schema*"]) == [files[0]]
    assert found_in(tmp_path, allowed=["tests", "app/boot.py"]) == []
    assert [str(c.path) for c in find_setup_calls(["app"])] == ["app/boot.py"]


def test_environments_are_passed_over(tmp_path):
    call = f"{IMPORTS}PostgresSaver(c).setup()"
    places = (".venv/x.py", "venv/x.py", "lib/site-packages/x.py", "node_modules/x.py")
    write(tmp_path, dict.fromkeys(places, call))
    assert found_in(tmp_path) == []


def test_further_classes_can_be_named(tmp_path):
    write(tmp_path, {"a.py": "from co.savers import Tenant\nTenant(1).setup()"})
    assert found_in(tmp_path) == []
    assert found_in(tmp_path, classes=["co.savers.Tenant"]) == ["a.py"]


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path):
    broken = "from langgraph import x\ndef f(:\n"
    escape = "import langgraph\nprint('\\d')"
    write(tmp_path, {"a.py": broken, "b.py": escape, "template.py": "class {{ name }}:"})
    (call,) = find_setup_calls([tmp_path])
    assert call.path.name == "a.py"
    assert "cannot be parsed" in str(call)


def test_a_path_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing to scan at"):
        find_setup_calls([tmp_path / "app"])


def test_the_assertion_names_place_and_way_out(tmp_path):
    write(tmp_path, {"a.py": f"{IMPORTS}PostgresSaver(c).setup()"})
    with pytest.raises(AssertionError, match=r"a\.py:3:1: PostgresSaver\(c\)\.setup") as failure:
        assert_no_setup_calls([tmp_path])
    assert "open_checkpointer" in str(failure.value)
    assert_no_setup_calls([tmp_path], allowed=[str(tmp_path / "a.py")])


def test_no_false_alarm_in_this_package():
    # The one helper that compares with setup() is meant to call it.
    package = Path(delta_mixin.__file__).parent
    calls = find_setup_calls([package], allowed=[str(package / "schema" / "testing.py")])
    assert calls == ()
