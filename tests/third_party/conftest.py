"""Servers for savers that others wrote, and two rules of this folder.

Its tests run only where the folder is asked for by name, as `nox -s third_party` does. Then a
saver that cannot be tested here is skipped with the reason, but a run in which none was tested
fails.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # what the script beside uses as well

import servers  # noqa: E402

passed = 0


def asked_for(config):
    asked = [Path(config.invocation_params.dir, a.partition("::")[0]) for a in config.args]
    return any(HERE in (path.resolve(), *path.resolve().parents) for path in asked)


def pytest_ignore_collect(collection_path, config):
    return None if asked_for(config) else True


def pytest_runtest_logreport(report):
    global passed
    on_a_saver = "test_hook_lines.py" not in report.nodeid
    passed += on_a_saver and report.when == "call" and report.passed


def pytest_sessionfinish(session, exitstatus):
    nothing = session.testscollected and not passed and exitstatus == pytest.ExitCode.OK
    if nothing and asked_for(session.config):
        print("\nnothing of tests/third_party could be tested; the reasons are given below")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def third_party_server():
    """Where a server listens; each is started when it is first asked for."""
    where = {}
    with ExitStack() as running:

        def start(name):
            if name not in where:
                try:
                    where[name] = running.enter_context(servers.SERVERS[name]())
                except servers.MissingProgramError as missing:
                    where[name] = missing
            if isinstance(where[name], servers.MissingProgramError):
                pytest.skip(str(where[name]))
            return where[name]

        yield start


@pytest.fixture(scope="session")
def third_party(third_party_server):
    """The module of a saver and where its server listens."""

    def find(name, server):
        module = pytest.importorskip(f"savers.{name}", exc_type=ImportError)
        return module, third_party_server(server)

    return find
