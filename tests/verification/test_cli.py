"""`python -m delta_mixin verify` as a terminal and a nightly job see it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from delta_mixin.cli import app


def invoke(*args, **environment):
    return CliRunner().invoke(app, ["verify", *args], env={"COLUMNS": "400", **environment})


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, open_subject):
    """The address of a database with one thread, and the thread."""
    with open_subject(request.param, "1.2.24", "fork") as subject:
        yield str(subject.store.path).replace("\\", "/"), subject


def address(database):
    path, subject = database
    if "postgres" not in type(subject.view.saver).__name__.lower():
        return path
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(path)
    assert psycopg.connect(path).close() is None
    query = "&".join(f"{k}={v.replace(' ', '%20').replace('=', '%3D')}" for k, v in parts.items())
    return f"postgresql:///?{query}"


def test_a_healthy_thread_is_no_news(database):
    thread = database[1].id
    done = invoke(address(database), "--thread", thread)
    assert (done.exit_code, done.stdout.count("nothing wrong")) == (0, 1)
    assert invoke("--thread", thread, DATABASE_URL=address(database)).stdout == done.stdout


def test_damage_is_told_and_tells_by_its_exit_code(database):
    subject = database[1]
    parent = subject.row("", subject.heads()[""]).parent_id
    subject.store.drop_rows(subject.id, "", [parent])
    done = invoke(address(database))
    assert done.exit_code == 1
    assert "error: severed" in done.stdout
    assert parent in done.stdout
    lines = [json.loads(line) for line in invoke(address(database), "--json").stdout.splitlines()]
    assert [(line["kind"], line["channel"]) for line in lines] == [("severed", "log")]


def test_what_cannot_be_looked_at_is_neither_healthy_nor_damaged(tmp_path):
    assert invoke(str(tmp_path / "none.sqlite")).exit_code == 2
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database at all, but long enough to be looked at as if it were one" * 9)
    done = invoke(str(broken))
    assert done.exit_code == 2
    assert "DatabaseError" in done.stderr
    assert invoke("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2").exit_code == 2


def test_other_threads_are_looked_at_as_well(database):
    subject = database[1]
    subject.view.copy_thread(subject.id, "another")
    subject.store.set_parent("another", "", subject.heads()[""], "gone")
    done = invoke(address(database))
    assert done.exit_code == 1
    assert "'another'" in done.stdout
    named = invoke(address(database), "--thread", subject.id, "--channel", "log")
    assert named.exit_code == 0
