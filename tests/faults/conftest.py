from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def threads() -> ModuleType:
    """The module that writes threads into files."""
    path = Path(__file__).parents[1] / "sqlite" / "threads.py"
    spec = importlib.util.spec_from_file_location("faults_threads", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
