"""Every release of langgraph-checkpoint-postgres, by its own `setup()` and its own saver.

The installed release is always tried. `nox -s schema_releases` adds the others: a folder of
unpacked wheels, named by SCHEMA_RELEASES.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from delta_mixin.schema import (
    check_schema,
    compare_shapes,
    expected_shape,
    normalized,
    open_checkpointer,
    render_migration,
    schema_shape,
)

LIBRARY = "langgraph-checkpoint-postgres"
FOLDER = os.environ.get("SCHEMA_RELEASES")
RELEASES = sorted(path.name for path in Path(FOLDER).iterdir()) if FOLDER else []


@dataclass(frozen=True)
class Release:
    name: str
    path: str | None

    def act(self, dsn, action):
        environment = dict(os.environ)
        if self.path:
            environment["PYTHONPATH"] = self.path
        done = subprocess.run(
            [sys.executable, "-W", "ignore", Path(__file__).with_name("release.py"), dsn, action],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def setup(self, database, role="schema_owner"):
        return self.act(database.dsn(role), "setup")

    def serve(self, database, role="app_runtime"):
        return self.act(database.dsn(role), "serve")

    def statements(self):
        found, statements = self.act("", "describe")
        assert found == self.name
        return statements


@pytest.fixture(params=[None, *RELEASES], ids=lambda name: name or "installed")
def release(request):
    if request.param is None:
        return Release(version(LIBRARY), None)
    return Release(request.param, str(Path(FOLDER) / request.param))


def shape_and_versions(database):
    with database.connect() as conn:
        return schema_shape(conn), database.versions()


def test_the_rendered_file_does_what_its_setup_does(release, new_database, tmp_path):
    by_setup, by_file = new_database(), new_database()
    assert release.setup(by_setup) is None
    migration = render_migration(release.statements(), source=f"{LIBRARY} {release.name}")
    assert f"{LIBRARY} {release.name}: statements 0 to " in migration.files[0].text
    by_file.apply(migration, tmp_path)

    expected, versions = shape_and_versions(by_setup)
    found, recorded = shape_and_versions(by_file)
    assert compare_shapes(expected, found) == ()
    assert recorded == versions == list(range(len(release.statements())))
    assert compare_shapes(expected_shape(release.statements()), normalized(found)) == ()

    by_file.apply(migration, tmp_path)
    assert shape_and_versions(by_file) == (found, recorded)


def test_its_setup_runs_no_further_statement(release, database, tmp_path, server_log):
    database.apply(render_migration(release.statements()), tmp_path)
    with server_log(database) as statements:
        assert release.setup(database) is None
    # The version table, if it asks for it first, and the highest row.
    ran = [s.split("(")[0].strip() for s in statements if "checkpoint" in s]
    assert "SELECT v FROM checkpoint_migrations ORDER BY v DESC LIMIT 1" in ran
    assert len(ran) == len(set(ran)) <= 2
    assert set(ran[:-1]) <= {"CREATE TABLE IF NOT EXISTS checkpoint_migrations"}
    database.grant()
    if int(release.name.split(".")[0]) >= 3:  # 2.0.4 looks before it creates
        assert release.setup(database, "app_runtime") == "InsufficientPrivilege"


def test_an_upgrade_from_it_ends_in_the_newest_schema(release, new_database, tmp_path):
    database, newest = new_database(), new_database()
    newest.setup()
    assert release.setup(database) is None
    assert release.serve(database, "schema_owner") == 1
    last = len(release.statements()) - 1
    database.apply(render_migration(from_version=last), tmp_path)
    assert shape_and_versions(database) == shape_and_versions(newest)
    database.grant()
    with database.connect("app_runtime") as conn:
        assert check_schema(conn).ok
        (stored,) = open_checkpointer(conn).list(None)
        assert stored.checkpoint["channel_values"] == {"a": 1}
        assert [write[1:] for write in stored.pending_writes] == [("a", 2)]


def test_it_serves_on_the_newest_schema_after_a_rollback(release, migrated):
    assert release.serve(migrated) == 1
    with migrated.connect("app_runtime") as conn:
        assert len(list(open_checkpointer(conn).list(None))) == 1


def test_the_newest_release_is_the_installed_one():
    assert not RELEASES or version(LIBRARY) in RELEASES
    assert len(PostgresSaver.MIGRATIONS) == 10  # a new statement asks for a look at these tests
