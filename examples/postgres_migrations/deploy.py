"""The deploy step: applies the committed migrations that are new, as the owner of the schema.

Takes the owner's connection string from OWNER_DATABASE_URL. Runs before the new build of the
application starts, and needs nothing of it.
"""

import os
import subprocess
import sys
from pathlib import Path

import psycopg

MIGRATIONS = Path(__file__).with_name("migrations")


def apply(url: str, file: Path) -> None:
    # The mark on the first line says that the file cannot run in a transaction.
    outside = file.read_text().startswith("-- no-transaction")
    one_transaction = () if outside else ("--single-transaction",)
    stop = ("-v", "ON_ERROR_STOP=1")
    subprocess.run(["psql", url, "-q", *stop, *one_transaction, "-f", file], check=True)


def main() -> None:
    url = os.environ["OWNER_DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as conn:
        # Two deployments at once take turns.
        conn.execute("SELECT pg_advisory_lock(hashtext('deploy'))")
        conn.execute("CREATE TABLE IF NOT EXISTS deployed (name text PRIMARY KEY)")
        done = {name for (name,) in conn.execute("SELECT name FROM deployed")}
        for file in sorted(MIGRATIONS.glob("*.sql")):
            if file.name in done:
                continue
            print("applying", file.name, flush=True)
            try:
                apply(url, file)
            except subprocess.CalledProcessError as failure:
                sys.exit(failure.returncode)
            conn.execute("INSERT INTO deployed VALUES (%s)", [file.name])


if __name__ == "__main__":
    main()
