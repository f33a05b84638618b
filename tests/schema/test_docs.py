"""The page on schema ownership: its Python runs, its commands exist, its output is real."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from delta_mixin.cli import app
from delta_mixin.schema import render_migration

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own_the_schema.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
OPENED, IN_CI = (code for language, code in BLOCKS if language == "python")


def test_the_application_opens_its_checkpointer(migrated, monkeypatch, capsys):
    monkeypatch.setenv("DATABASE_URL", migrated.dsn("app_runtime"))
    exec(compile(OPENED, PAGE, "exec"), {})
    assert capsys.readouterr().out == "DeltaPostgresSaver\n"


def test_the_ci_tests_pass_and_fail(database, tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_DATABASE_URL", database.dsn())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "migrations").mkdir()
    (tmp_path / "app").mkdir()
    names = {}
    exec(compile(IN_CI, PAGE, "exec"), names)
    scan = names["test_nothing_calls_setup"]
    shape = names["test_the_migrations_end_in_the_schema_of_the_pinned_library"]
    with pytest.raises(AssertionError, match="table checkpoints is missing"):
        shape()
    (file,) = render_migration().files
    (tmp_path / "migrations" / file.name).write_text(file.text)
    shape()

    call = "from langgraph.checkpoint.postgres import PostgresSaver as P\nP(c).setup()\n"
    (tmp_path / "app" / "local_development.py").write_text(call)
    scan()
    (tmp_path / "app" / "main.py").write_text(call)
    with pytest.raises(AssertionError, match=r"main\.py:2:1"):
        scan()


def test_the_commands_do_what_the_page_shows(migrated, tmp_path, monkeypatch):
    with migrated.connect() as conn:
        conn.execute("DROP INDEX checkpoints_thread_id_idx")
    monkeypatch.chdir(tmp_path)
    run = 0
    for language, code in BLOCKS:
        command, _, output = code.partition("\n")
        if language != "console" or "delta_mixin" not in command:
            continue
        words = shlex.split(command.partition(" > ")[0].replace("$DATABASE_URL", migrated.dsn()))
        assert words[:4] == ["$", "python", "-m", "delta_mixin"]
        done = CliRunner().invoke(app, words[4:], env={"COLUMNS": "200"})
        assert done.exit_code == (1 if "problem" in output else 0)
        if output:
            assert done.stdout == output
        run += 1
    assert run == 4


def test_the_header_on_the_page_is_the_one_that_is_written():
    shown = next(code for language, code in BLOCKS if language == "sql")
    written = render_migration().files[0].text
    release = re.compile(r"postgres [0-9.]+:")
    assert release.sub("", written).startswith(release.sub("", shown))


def test_the_error_on_the_page_is_the_one_that_is_raised():
    shown = next(code for language, code in BLOCKS if code.startswith("ERROR:"))
    text = render_migration(from_version=5).files[0].text
    for line in shown.splitlines():
        assert f"'{line.partition(':  ')[2]}'" in text
