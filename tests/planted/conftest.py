from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def pytest_generate_tests(metafunc):
    planted = sys.modules.get("matrix") or _load("matrix")
    if "matrix" in metafunc.fixturenames:
        metafunc.parametrize("matrix", [planted], ids=[""], scope="session")
    if "fault" in metafunc.fixturenames:
        metafunc.parametrize("fault", planted.ALL, ids=[f.saver.__name__ for f in planted.ALL])
    if "sound" in metafunc.fixturenames:
        savers = dict.fromkeys(planted.sound(fault.saver) for fault in planted.ALL)
        metafunc.parametrize("sound", savers, ids=lambda saver: saver.__name__)
