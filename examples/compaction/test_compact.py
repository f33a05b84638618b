"""The example runs as its README says, and fails if a log is lost."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def example(monkeypatch):
    path = Path(__file__).with_name("compact.py")
    spec = importlib.util.spec_from_file_location("compaction_example", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where its annotations get resolved
    spec.loader.exec_module(module)
    return module


def test_one_checkpoint_is_left_and_the_log_is_equal(example, capsys):
    assert example.main() == 0
    printed = capsys.readouterr().out
    rows = {line[:25].strip(): line[25:].split() for line in printed.splitlines()}
    assert rows["as it is"][0] == "180"
    assert 1 < int(rows["prune"][0]) < 180
    assert rows["compact and prune"][0] == "1"
    assert int(rows["delete 55 of 60 runs"][0]) > 15
    assert rows["compact and delete them"][0] == "15"
    assert {rows[way][-1] for way, _ in example.WAYS} == {"equal"}
    assert "channel 'log'" in printed


def test_a_lost_log_is_told(example, monkeypatch, capsys):
    def naive(graph):
        ids = [s.checkpoint["id"] for s in graph.checkpointer.list(example.CHAT)][1:]
        for table in ("checkpoints", "writes"):
            graph.checkpointer.conn.execute(
                f"DELETE FROM {table} WHERE checkpoint_id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
        graph.checkpointer.conn.commit()

    monkeypatch.setattr(example, "TURNS", 10)
    monkeypatch.setattr(example, "WAYS", [("naive", naive)])
    assert example.main() == 1
    assert "LOST" in capsys.readouterr().out
