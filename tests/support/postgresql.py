"""PostgreSQL clusters in temporary directories, reachable through Unix sockets only."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import pytest

from mistify_server.store.directory import locked_backend, open_store_as_server
from mistify_server.store.lock import locked_store

#: Debian puts most programs of PostgreSQL beside the usual paths.
_PLACES: Final = Path("/usr/lib/postgresql")

_SETTINGS: Final = """
listen_addresses = ''
fsync = off
full_page_writes = off
shared_buffers = 16MB
max_connections = 80
autovacuum = off
"""

#: The role with a password, and the password.
LOCKED: Final = "locked"
PASSWORD: Final = "s3cret"  # noqa: S105

_ACCESS: Final = f"local all {LOCKED} scram-sha-256\nlocal all all trust\n"


def binary(name: str) -> str | None:
    """Return the path of a program of PostgreSQL; None if it is not installed."""
    newest = sorted(_PLACES.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(newest[-1]) if newest else shutil.which(name)


@dataclass
class Cluster:
    """A running PostgreSQL, which a user other than root runs: it refuses root."""

    directory: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str = "postgres", user: str = "", **options: str) -> str:
        """Return the address of a database of the cluster."""
        parameters = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{user or owner()}@/{database}?host={self.directory}{parameters}"

    def new_database(self) -> str:
        """Create an empty database, and return its address.

        It is a schema of the same database, because PostgreSQL takes longer for a whole one.
        """
        name = f"store_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {name}")
        return self.url(options=f"-csearch_path%3D{name}")

    def execute(self, statements: str, database: str = "postgres") -> list[Any]:
        """Execute statements, and return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statements)
            return cursor.fetchall() if cursor.description else []

    def end_connections(self) -> None:
        """End all connections of clients, as an administrator or a broken network does."""
        clients = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {clients}")  # noqa: S608

    def start(self) -> None:
        """Start PostgreSQL, and wait until it accepts connections."""
        log = str(self.directory / "log")
        self._control("start", "--log", log, "--options", f"-k {self.directory}")

    def stop(self, mode: str = "fast") -> None:
        """Stop PostgreSQL; `immediate` is like a crash."""
        self._control("stop", "--mode", mode)

    @contextmanager
    def stopped(self, mode: str = "fast") -> Iterator[None]:
        """Stop PostgreSQL for the block."""
        self.stop(mode)
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend all processes of PostgreSQL for the block: connections stay open, and nothing answers."""
        main = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(main, signal.SIGSTOP)  # first, so that it starts no others
        others = list(map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split()))
        try:
            for process in others:
                os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in (*others, main):
                os.kill(process, signal.SIGCONT)

    def _control(self, *arguments: str) -> None:
        run("pg_ctl", "--silent", "--wait", "--pgdata", str(self.directory / "data"), *arguments)


def owner() -> str:
    """Return the user who runs PostgreSQL."""
    return "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def run(program: str, *arguments: str) -> str:
    """Run a program of PostgreSQL as its user, and return its output."""
    path = binary(program)
    assert path is not None
    done = subprocess.run(
        [path, *arguments],
        user=owner() if os.geteuid() == 0 else None,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,  # the server keeps it open
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{program}: {done.stdout}"
    return done.stdout or ""


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Run a new cluster within the block; skip the test if PostgreSQL or its client is not installed."""
    if binary("initdb") is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    directory = Path(mkdtemp(prefix="mistify-pg-"))  # a short path, which sockets need
    try:
        if os.geteuid() == 0:
            shutil.chown(directory, owner())
        data = directory / "data"
        run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--pgdata", str(data))
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS)
        (data / "pg_hba.conf").write_text(_ACCESS)
        cluster = Cluster(directory)
        cluster.start()
        try:
            cluster.execute(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")
            yield cluster
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def bound_to(address: str, directory: Path) -> Path:
    """Give a new store an empty database, and return the directory of the store."""
    with (
        locked_store(directory),
        locked_backend(directory, address) as backend,
        open_store_as_server(directory, 1.0, backend),
    ):
        return directory
