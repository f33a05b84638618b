"""The commands as a terminal and a CI job see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from typer.testing import CliRunner

import delta_mixin
from delta_mixin.cli import app
from delta_mixin.schema import render_migration, runtime_grants

PACKAGE = Path(delta_mixin.__file__).parent


def invoke(*args, **environment):
    # Wide enough for any sentence to stand on one line.
    return CliRunner().invoke(
        app, ["schema", *map(str, args)], env={"COLUMNS": "400", **environment}
    )


def python(*args, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_module_runs():
    done = python("-m", "delta_mixin", "schema", "render", "--from-version", "8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render_migration(from_version=8).files[0].text


def test_without_typer_it_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from delta_mixin.__main__ import main; main()"
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr == (
        "The command line needs typer and rich: pip install 'delta-mixin[cli]'\n"
    )


@pytest.mark.parametrize("module", ["delta_mixin", "delta_mixin.schema"])
def test_importing_the_library_needs_no_other(module):
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import {module}; " + (
        "print({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names - "
        "{'__main__', 'delta_mixin'})"
    )
    done = python("-I", "-S", "-c", code)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_scan_needs_neither_driver_nor_parser(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("from langgraph.checkpoint.postgres import PostgresSaver as P\nP(c).setup()")
    code = (
        "import sys; sys.modules |= {'psycopg': None, 'sqlglot': None, 'langgraph': None}; "
        "from delta_mixin.__main__ import main; main()"
    )
    done = python("-c", code, "schema", "scan", str(file))
    assert done.returncode == 1
    assert done.stdout == f"{file}:2:1: P(c).setup\n"


def test_render_prints_one_file_as_it_is():
    done = invoke("render")
    assert done.exit_code == 0
    assert done.stdout == render_migration().files[0].text


def test_render_prints_two_files_with_their_names():
    done = invoke("render", "--from-version", 4)
    first, second = render_migration(from_version=4).files
    assert (
        done.stdout == f"-- file: {first.name}\n{first.text}-- file: {second.name}\n{second.text}"
    )


def test_render_writes_files_once(tmp_path):
    folder = tmp_path / "new" / "migrations"
    done = invoke("render", "--from-version", 4, "-o", folder)
    files = {file.name: file.text for file in render_migration(from_version=4).files}
    assert done.stdout.splitlines() == [str(folder / name) for name in files]
    assert {path.name: path.read_text() for path in folder.iterdir()} == files
    assert invoke("render", "--from-version", 4, "-o", folder).exit_code == 0

    edited = folder / next(iter(files))
    edited.write_text("-- mine\n")
    done = invoke("render", "--from-version", 4, "-o", folder)
    assert done.exit_code == 1
    assert "holds something else" in done.stderr
    assert edited.read_text() == "-- mine\n"
    assert invoke("render", "--from-version", 4, "-o", folder, "--force").exit_code == 0
    assert edited.read_text() == files[edited.name]


@pytest.mark.parametrize(("version", "name"), [(4, "v4_to_v9"), (5, "v5_to_v9"), (None, "v9")])
def test_render_writes_one_revision(tmp_path, version, name):
    options = [] if version is None else ["--from-version", version]
    done = invoke("render", "--form", "alembic", "-o", tmp_path, *options)
    path = tmp_path / f"checkpointer_{name}.py"
    assert done.stdout == f"{path}\n"
    assert path.read_text() == render_migration(from_version=version).alembic


def test_render_has_nothing_to_do_for_the_newest():
    done = invoke("render", "--from-version", 9)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "version 9 is the newest" in done.stderr


def test_render_refuses_a_version_that_is_none():
    done = invoke("render", "--from-version", 10)
    assert done.exit_code == 2
    assert "the list has versions 0 to 9" in done.stderr


def test_render_tells_what_it_cannot_carry(monkeypatch):
    monkeypatch.setattr(PostgresSaver, "MIGRATIONS", ["VACUUM"])
    done = invoke("render")
    assert done.exit_code == 2
    assert "statement 0: it cannot run in a transaction" in done.stderr
    assert "from-version" not in done.stderr


def test_check_passes_and_fails(migrated):
    dsn = migrated.dsn("app_runtime")
    done = invoke("check", "--dsn", dsn)
    assert (done.exit_code, done.stdout) == (0, "checkpoint schema 'public': as expected\n")
    with migrated.connect() as conn:
        conn.execute("DROP INDEX checkpoints_thread_id_idx")
    done = invoke("check", DATABASE_URL=dsn)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "checkpoint schema 'public': 1 problem(s)",
        "  problem: index checkpoints_thread_id_idx on checkpoints is missing",
    ]


def test_a_database_that_does_not_answer_is_exit_code_2(migrated):
    for command in ("check", "shape"):
        done = invoke(command, "--dsn", "host=/nowhere dbname=x")
        assert done.exit_code == 2
        assert "/nowhere" in done.stderr
        assert invoke(command).exit_code == 2


def test_check_refuses_a_library_it_does_not_understand(migrated, monkeypatch):
    monkeypatch.setattr(PostgresSaver, "MIGRATIONS", ["CREATE VIEW v AS SELECT 1"])
    done = invoke("check", "--dsn", migrated.dsn())
    assert done.exit_code == 2
    assert "statement 0: its effect on the shape is not known" in done.stderr


def test_shape_shows_tables(migrated):
    with migrated.connect("postgres") as conn:
        # What a failed concurrent build leaves.
        conn.execute(
            "UPDATE pg_index SET indisvalid = false "
            "WHERE indexrelid = 'checkpoint_writes_thread_id_idx'::regclass"
        )
    done = invoke("shape", "--dsn", migrated.dsn())
    assert done.exit_code == 0
    for word in ("checkpoint_writes", "task_path", "''::text", "bytea"):
        assert word in done.stdout
    lines = done.stdout.splitlines()
    index = "CREATE INDEX {0}_thread_id_idx ON {0} USING btree (thread_id)"
    assert index.format("checkpoints") in lines
    assert "INVALID: " + index.format("checkpoint_writes") in lines


def test_shape_writes_json(migrated):
    done = invoke("shape", "--json", "--dsn", migrated.dsn())
    tables = json.loads(done.stdout)
    assert tables["checkpoint_migrations"] == {
        "columns": {"v": {"default": None, "nullable": False, "type": "integer"}},
        "indexes": {},
        "primary_key": ["v"],
    }
    assert len(tables) == 4


def test_shape_of_nothing_is_exit_code_1(database):
    done = invoke("shape", "--json", "--dsn", database.dsn())
    assert (done.exit_code, done.stdout) == (1, "{}\n")


def test_grants_can_be_piped_to_the_server(migrated, tmp_path):
    done = invoke("grants", "app_runtime")
    assert done.stdout.splitlines() == [
        f"{s.as_string(None)};" for s in runtime_grants("app_runtime")
    ]
    file = tmp_path / "grants.sql"
    file.write_text(done.stdout)
    migrated.psql(file, "-v", "ON_ERROR_STOP=1", "--single-transaction")


def test_grants_refuse_everybody():
    done = invoke("grants", "public")
    assert done.exit_code == 2
    assert "not a role of its own" in done.stderr


def test_scan_finds_and_passes(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("from langgraph.checkpoint.postgres import PostgresSaver as P\nP(c).setup()")
    done = invoke("scan", tmp_path)
    assert (done.exit_code, done.stdout) == (1, f"{file}:2:1: P(c).setup\n")
    assert "open_checkpointer" in done.stderr
    done = invoke("scan", tmp_path, "--allow", file)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    file.write_text("from mine import Saver\nSaver(c).setup()")
    assert invoke("scan", tmp_path).exit_code == 0
    assert invoke("scan", tmp_path, "--saver-class", "mine.Saver").exit_code == 1


def test_scan_of_nothing_is_exit_code_2(tmp_path):
    done = invoke("scan", tmp_path / "app")
    assert done.exit_code == 2
    assert "nothing to scan at" in done.stderr
