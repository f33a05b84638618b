"""Finding the threads of a run, whatever other rows hold for metadata."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

METADATA: dict[str, Any] = {
    "null": None,
    "empty": b"",
    "no json": b'{"run_id": "run-2"',
    "no utf-8": b'{"run_id": "\xff"}',
    "no object": b'["run-2"]',
    "null run": b'{"run_id": null}',
    "number": b'{"run_id": 7}',
    "boolean": b'{"run_id": true}',
    "list": b'{"run_id": ["run-2"]}',
    "text column": '{"run_id": "run-2"}',
    "nan": b'{"score": NaN, "run_id": "run-2"}',
    "escaped": json.dumps({"run_id": "l\u00e4uft"}).encode(),
}


@pytest.fixture
def odd_path(path: str, threads: Any) -> str:
    """A thread for each kind of metadata, of three rows, the oldest of them odd."""
    with closing(sqlite3.connect(path)) as conn:
        for name, metadata in METADATA.items():
            oldest = threads.write_thread(conn, name, 3, steps_per_run=1_000)[0]
            conn.execute(
                "UPDATE checkpoints SET metadata = ? WHERE checkpoint_id = ?", (metadata, oldest)
            )
        conn.commit()
    return path


@pytest.mark.parametrize(
    ("run_id", "of_the_run"),
    [
        ("run-2", {"text column", "nan"}),
        ("7", {"number"}),
        (7, {"number"}),
        ("l\u00e4uft", {"escaped"}),
        ("None", set()),
        ("null", set()),
        ("1", set()),
    ],
)
def test_runs_are_found_whatever_the_metadata_of_other_rows(
    run_id: Any, of_the_run: set[str], odd_path: str, call: Any
) -> None:
    plans = call(odd_path, "plan_delete_for_runs", [run_id])
    found = {plan.thread_id for plan in plans if plan.changes or run_is_needed(plan)}
    assert found == of_the_run
    call(odd_path, "delete_for_runs", [run_id])


def run_is_needed(plan: Any) -> bool:
    return any(reason.kind == "replay" for reasons in plan.kept.values() for reason in reasons)


@pytest.mark.parametrize("name", METADATA)
def test_a_row_with_odd_metadata_is_kept_by_prune_where_it_is_needed(
    name: str, odd_path: str, call: Any, history_of: Any, ids_of: Any
) -> None:
    before = history_of(odd_path, name)
    call(odd_path, "prune", [name])
    assert len(ids_of(odd_path, name)) == 3
    assert history_of(odd_path, name) == before
