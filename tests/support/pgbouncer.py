"""PgBouncer in front of a PostgreSQL cluster, reachable through a Unix socket only."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.support.postgresql import Cluster, owner

#: Debian does not put it into the path of users.
_PLACES = f"{os.environ['PATH']}:/usr/sbin"


@contextmanager
def running_pooler(cluster: Cluster, mode: str, **settings: str) -> Iterator[str]:
    """Run PgBouncer within the block, and yield the `host` of its addresses; skip without it.

    Args:
        mode: What a connection to PostgreSQL is lent to: session, transaction or statement.
        settings: Further settings.
    """
    program = shutil.which("pgbouncer", path=_PLACES)
    if program is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    directory = Path(mkdtemp(prefix="mistify-pgb-"))  # a short path, which sockets need
    try:
        (directory / "users").write_text(f'"{owner()}" ""\n')
        own = {
            "listen_addr": "",
            "unix_socket_dir": str(directory),
            "listen_port": "5432",  # only in the name of the socket
            "auth_type": "trust",
            "auth_file": str(directory / "users"),
            "pool_mode": mode,
            "logfile": str(directory / "log"),
            **settings,
        }
        lines = "".join(f"{name} = {value}\n" for name, value in own.items())
        (directory / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={cluster.directory}\n[pgbouncer]\n{lines}"
        )
        as_root = os.geteuid() == 0
        if as_root:
            shutil.chown(directory, owner())
        process = subprocess.Popen(
            [program, "--quiet", str(directory / "pgbouncer.ini")], user=owner() if as_root else None
        )
        try:
            yield str(directory)
        finally:
            process.terminate()
            process.wait()
    finally:
        shutil.rmtree(directory)
