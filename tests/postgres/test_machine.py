"""The shipped state machine and the host's conformance suite, on every kind of connection."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest
from hypothesis import Phase
from hypothesis.stateful import run_state_machine_as_test
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from delta_mixin.adapters.postgres import AsyncDeltaPostgresSaver, DeltaPostgresSaver
from delta_mixin.testing import CleanupStateMachine, cleanup_settings

OPTIONS = {"autocommit": True, "prepare_threshold": 0}
KINDS = ("connection", "pipeline", "pool", "async connection", "async pipeline", "async pool")


@contextmanager
def pooled(dsn):
    with ConnectionPool(dsn, min_size=1, max_size=3, kwargs=OPTIONS) as pool:
        yield DeltaPostgresSaver(pool)


@asynccontextmanager
async def async_pooled(dsn):
    async with AsyncConnectionPool(dsn, min_size=1, max_size=3, kwargs=OPTIONS) as pool:
        yield AsyncDeltaPostgresSaver(pool)


def saver_of(kind, dsn):
    if kind.endswith("pool"):
        return async_pooled(dsn) if kind.startswith("async") else pooled(dsn)
    owner = AsyncDeltaPostgresSaver if kind.startswith("async") else DeltaPostgresSaver
    return owner.from_conn_string(dsn, pipeline=kind.endswith("pipeline"))


@pytest.mark.parametrize(
    ("kind", "version"), [*((kind, 18) for kind in KINDS), ("connection", 15), ("async pool", 15)]
)
def test_whatever_is_done_to_threads_all_that_must_be_readable_is(
    kind, version, server_of, fresh_schema, orphans_of
):
    with fresh_schema(server_of(version)) as dsn:

        class Machine(CleanupStateMachine):
            # The host's reader looks for ancestors below the target's id only.
            SKEWED_CLOCKS = False

            def make_saver(self):
                with psycopg.connect(dsn) as conn:
                    conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")
                return saver_of(kind, dsn)

        # Shrinking a failure on a server takes many minutes.
        few = cleanup_settings(max_examples=12, phases=(Phase.generate,))
        run_state_machine_as_test(Machine, settings=few)


@pytest.mark.parametrize("kind", ["async connection", "async pipeline", "async pool"])
def test_the_hosts_conformance_suite_in_full(kind, dsn):
    @checkpointer_test(kind)
    async def tested():
        with psycopg.connect(dsn) as conn:
            conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")
        async with saver_of(kind, dsn) as saver:
            yield saver

    failed, seen = [], {}

    def note(capability, name, passed, error):
        seen.setdefault(capability, []).append(name)
        if not passed:
            failed.append((capability, name, error))

    report = asyncio.run(validate(tested, progress=ProgressCallbacks(on_test_result=note)))
    assert failed == []
    assert {"prune", "copy_thread", "delete_for_runs"} <= set(report.results)
    for capability, result in report.results.items():
        module = importlib.import_module(f"langgraph.checkpoint.conformance.spec.test_{capability}")
        shipped = [test.__name__ for test in getattr(module, f"ALL_{capability.upper()}_TESTS")]
        assert seen[capability] == shipped
        assert (result.detected, result.passed) == (True, True), capability
        assert (result.tests_failed, result.tests_skipped) == (0, 0), capability
