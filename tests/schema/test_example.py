"""`examples/postgres_migrations` from the first deployment to a rolled back one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from delta_mixin.schema import check_schema, render_migration, runtime_grants

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres_migrations"
FOLDER = os.environ.get("SCHEMA_RELEASES")


class Repository:
    """A copy of the example, deployed to a database."""

    def __init__(self, root, database):
        self.root = shutil.copytree(EXAMPLE, root / "application")
        self.database = database
        self.shelf = root / "not merged yet"
        self.shelf.mkdir()

    def withhold(self, pattern):
        """Take migrations away that a later pull request adds."""
        for file in (self.root / "migrations").glob(pattern):
            file.rename(self.shelf / file.name)

    def merge(self):
        for file in self.shelf.iterdir():
            file.rename(self.root / "migrations" / file.name)

    def run(self, script, release=None):
        environment = os.environ | {
            "OWNER_DATABASE_URL": self.database.dsn(),
            "DATABASE_URL": self.database.dsn("app_runtime"),
            "PATH": f"{self.database.server._bin}{os.pathsep}{os.environ['PATH']}",
        }
        if release is not None:
            environment["PYTHONPATH"] = str(Path(FOLDER) / release)
        return subprocess.run(
            [sys.executable, "-W", "ignore", self.root / script],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=self.root,
        )

    def deploy(self):
        done = self.run("deploy.py")
        assert done.returncode == 0, done.stderr
        return re.findall("applying (....)", done.stdout)

    def turns(self, release=None):
        done = self.run("app.py", release)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.removeprefix("turns so far:")), done.stderr


@pytest.fixture
def repository(tmp_path, database):
    return Repository(tmp_path, database)


def test_deployed_at_once(repository):
    assert repository.deploy() == ["0001", "0002", "0003", "0004"]
    assert repository.deploy() == []
    assert repository.turns() == (1, "")
    assert repository.turns() == (2, "")
    with repository.database.connect("app_runtime") as conn:
        assert check_schema(conn).ok


def test_a_pin_bump_and_a_rollback(repository):
    repository.withhold("000[34]*")
    assert repository.deploy() == ["0001", "0002"]
    refused = repository.run("app.py")
    assert refused.returncode == 1
    assert "not starting: checkpoint schema 'public' is at version 4" in refused.stderr
    assert "--from-version 4`" in refused.stderr

    repository.merge()
    assert repository.deploy() == ["0003", "0004"]
    assert repository.turns() == (1, "")

    # The next release brought a statement; its build was rolled back, its migration stays.
    newer = [*PostgresSaver.MIGRATIONS, "ALTER TABLE checkpoints ADD COLUMN later text"]
    (file,) = render_migration(newer, from_version=9).files
    (repository.root / "migrations" / "0005_later.sql").write_text(file.text)
    assert repository.deploy() == ["0005"]
    turns, log = repository.turns()
    assert turns == 2
    assert "is at version 10, ahead of the installed library's 9: serving" in log


@pytest.mark.skipif(FOLDER is None, reason="releases from PyPI: nox -s schema_releases")
@pytest.mark.parametrize("older", ["3.1.0", "3.1.3"])
def test_a_pin_bump_between_releases_and_back(repository, older):
    # No release since 3.0.0 brought a statement, so there is nothing to deploy in between.
    repository.deploy()
    assert repository.turns(release=older) == (1, "")
    assert repository.turns() == (2, "")
    assert repository.turns(release=older) == (3, "")


@pytest.mark.skipif(FOLDER is None, reason="releases from PyPI: nox -s schema_releases")
def test_a_pin_bump_from_the_release_of_the_first_migration(repository):
    serve = [sys.executable, "-W", "ignore", Path(__file__).with_name("release.py")]
    dsn = repository.database.dsn("app_runtime")

    def old_application():
        done = subprocess.run(
            [*serve, dsn, "serve"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(Path(FOLDER) / "2.0.4")},
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    repository.withhold("000[34]*")
    repository.deploy()
    assert old_application() == 1
    repository.merge()
    repository.deploy()
    assert repository.turns() == (1, "")
    assert old_application() == 2  # rolled back


def test_a_failed_deployment_is_resumed(repository):
    repository.withhold("000[34]*")
    repository.deploy()
    repository.merge()
    with repository.database.connect() as conn:
        # Something in the way of the second index build.
        conn.execute("CREATE TABLE checkpoint_blobs_thread_id_idx (x int)")
    failed = repository.run("deploy.py")
    assert failed.returncode != 0
    assert "index checkpoint_blobs_thread_id_idx on checkpoint_blobs is missing" in failed.stderr
    assert repository.database.versions() == list(range(7))
    assert "is at version 6" in repository.run("app.py").stderr
    with repository.database.connect() as conn:
        conn.execute("DROP TABLE checkpoint_blobs_thread_id_idx")
    assert repository.deploy() == ["0004"]
    assert repository.turns() == (1, "")


def test_its_own_tests_pass_and_fail_when_they_should(repository, tmp_path):
    with psycopg.connect(repository.database.dsn("postgres")) as conn:
        url = conn.info.dsn

    def own_tests():
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", repository.root],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TEST_DATABASE_URL": url},
            cwd=tmp_path,
        )

    done = own_tests()
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout

    repository.withhold("000[34]*")
    app = repository.root / "app.py"
    app.write_text(app.read_text().replace("chat = ", "checkpointer.setup()\n        chat = "))
    done = own_tests()
    assert "2 failed" in done.stdout
    assert "index checkpoints_thread_id_idx on checkpoints is missing" in done.stdout
    assert "column checkpoint_writes.task_path is missing" in done.stdout
    assert re.search(r"app\.py:\d+:9: checkpointer\.setup", done.stdout)


def test_the_committed_files_are_what_is_rendered_today():
    files = {p.name.partition("_")[2]: p.read_text() for p in EXAMPLE.glob("migrations/*.sql")}
    for file in render_migration(from_version=4).files:
        # The release stands in the first lines.
        committed = re.sub("postgres [0-9.]+:", "postgres X:", files[file.name])
        assert committed == re.sub("postgres [0-9.]+:", "postgres X:", file.text)
    (old,) = render_migration(
        PostgresSaver.MIGRATIONS[:5], source="langgraph-checkpoint-postgres 2.0.4"
    ).files
    assert files["checkpointer_v4.sql"] == old.text
    grants = "".join(f"{s.as_string(None)};\n" for s in runtime_grants("app_runtime"))
    assert files["grants.sql"].split("\n", 1)[1] == grants


def test_the_hook_runs_a_command_that_exists(repository):
    hook = (EXAMPLE / ".pre-commit-config.yaml").read_text()
    (entry,) = re.findall("entry: delta-mixin (.*)", hook)

    def run():
        return subprocess.run(
            [sys.executable, "-m", "delta_mixin", *entry.split()],
            capture_output=True,
            text=True,
            check=False,
            cwd=repository.root,
        )

    assert run().returncode == 0
    (repository.root / "boot.py").write_text(
        "from langgraph.checkpoint.postgres import PostgresSaver\n"
        "with PostgresSaver.from_conn_string('') as saver:\n    saver.setup()\n"
    )
    done = run()
    assert (done.returncode, done.stdout) == (1, "boot.py:3:5: saver.setup\n")
