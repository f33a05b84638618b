import importlib.util
import sys
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
