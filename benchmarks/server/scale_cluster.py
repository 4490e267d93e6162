"""Machines of a Ray cluster as namespaces: with links between them, and without a shared disk."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from typing import IO, Final

from benchmarks.harness.run import MissingDataError

_PROGRAMS: Final = ("ip", "mount", "unshare")
_GCS_PORT: Final = 6379
_CLIENT_PORT: Final = 10001
_READY_SECONDS: Final = 300.0
_OBJECT_STORE_BYTES: Final = 80_000_000  # messages only

#: Gives a process a disk of its own at a path, and hides those of other machines.
_WITH_OWN_DISK: Final = """
set -e
hostname "$1"
mount --bind "$2/disks/$1" "$2/machine"
mount -t tmpfs none "$2/disks"
mount -t tmpfs none /dev/shm
shift 2
exec "$@"
"""

_RAY: Final = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")

#: Serves S3 on an address until its standard input closes.
_BUCKETS: Final = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(sys.argv[1], 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Machine:
    """A process and its descendants with a name, a disk and, if it is a node, a network of their own.

    Args:
        name: The name of the host.
        command: The command that starts it.
        variables: Its environment.
        log: Receives its errors.
        output: `PIPE` if `line` is called, or else `DEVNULL`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        log: IO[str],
        *,
        output: int = DEVNULL,
    ) -> None:
        self.name = name
        self._process = Popen(
            command, env=dict(variables), stdout=output, stderr=log, stdin=DEVNULL, text=True
        )

    @property
    def pid(self) -> int:
        """The process of which all others of the machine are descendants."""
        return self._process.pid

    def line(self) -> str:
        """Return the next line of its output; empty if it has ended."""
        return self._process.stdout.readline() if self._process.stdout else ""

    def kill(self) -> None:
        """Kill all of its processes at once, as a loss of power does."""
        self._process.kill()  # with it ends the first process of its namespace, and with that all others
        self._process.wait()

    def stop(self) -> None:
        """Ask its first process to stop, and kill it if it does not."""
        with suppress(ProcessLookupError):
            for child in _children(self.pid):
                os.kill(child, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self.kill()


class Cluster:
    """A server, a bucket, and a Ray cluster whose nodes come and go.

    The head of the cluster, the server and the bucket are reached over a bridge, to which each node has a
    link. Each of them has a disk of its own under the same path.

    Attributes:
        machines: All machines, also those that are lost.
        store: The directory of the store on each machine.
    """

    def __init__(self, scratch: Path, bridge: str, network: str) -> None:
        self._scratch, self._bridge, self._network = scratch, bridge, network
        self._hub = f"{network}.1"
        self._count = 0
        self.machines: list[Machine] = []
        self._log = (scratch / "log").open("a")
        self.store = scratch / "machine" / "store"
        self._variables = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        } | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "TMPDIR": str(scratch / "machine" / "tmp"),
            "HOME": str(scratch / "machine"),
        }

    def start_bucket(self) -> None:
        """Start the S3 server with a bucket."""
        from boto3.session import Session  # noqa: PLC0415 (an optional package)

        self._buckets = Popen(
            [sys.executable, "-c", _BUCKETS, self._hub],
            env=self._variables,
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )
        port = self._buckets.stdout.readline().strip() if self._buckets.stdout else ""
        self._variables["AWS_ENDPOINT_URL"] = f"http://{self._hub}:{port}"
        session = Session("tester", "secret", region_name="us-east-1")
        session.client("s3", endpoint_url=self._variables["AWS_ENDPOINT_URL"]).create_bucket(Bucket="scale")

    def start_head(self) -> None:
        """Start the head of the Ray cluster, on which no tasks run."""
        ports = [
            f"--port={_GCS_PORT}",
            f"--ray-client-server-port={_CLIENT_PORT}",
            "--include-dashboard=false",
        ]
        address = [f"--node-ip-address={self._hub}", f"--temp-dir={self._scratch / 'machine' / 'ray'}"]
        self._started("head", [], [*_RAY, *self._start("--head", *ports, *address, "--num-cpus=0")])
        health = [*_RAY, "health-check", f"--address={self._hub}:{_GCS_PORT}"]
        _until(
            lambda: (
                subprocess.run(health, env=self._variables, capture_output=True, check=False).returncode == 0
            )
        )

    def add_node(self) -> Machine:
        """Add a node with one slot, in a network namespace of its own."""
        self._count += 1
        number = self._count
        name, device = f"node-{number}", f"{self._bridge}n{number}"
        space = f"{self._bridge}-{name}"
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", device, "type", "veth", "peer", "eth0", "netns", space)
        _run("ip", "link", "set", device, "master", self._bridge, "up")
        own = f"{self._network}.{1 + number}"
        _run("ip", "-n", space, "address", "add", f"{own}/24", "dev", "eth0")
        for each in ("lo", "eth0"):
            _run("ip", "-n", space, "link", "set", each, "up")
        joining = self._start(
            f"--address={self._hub}:{_GCS_PORT}", f"--node-ip-address={own}", "--num-cpus=1"
        )
        return self._started(name, ["ip", "netns", "exec", space], [*_RAY, *joining])

    def start_server(self, slots: int, collector: str) -> str:
        """Start the server; return its address for clients.

        Args:
            slots: Number of concurrent tasks.
            collector: The URL that receives the traces.
        """
        command = [
            sys.executable,
            "-m",
            "mistify_server.cli",
            "serve",
            f"--store={self.store}",
            f"--slots={slots}",
            "--artifacts=s3://scale/store",
            f"--engine=ray://{self._hub}:{_CLIENT_PORT}",
            "--listen=127.0.0.1:0",
            "--http=off",
            f"--traces={collector}",
        ]
        self._server = self._started("server", [], command, output=PIPE)
        line = self._server.line()
        if not line:
            raise RuntimeError(f"the server did not start: {(self._scratch / 'log').read_text()[-2000:]}")
        return line.split()[-1]

    def stop_server(self) -> None:
        """Stop the server, so that it sends the last traces."""
        self._server.stop()

    def close(self) -> None:
        """End everything."""
        for machine in self.machines:
            machine.kill()
        if self._buckets.stdin:
            self._buckets.stdin.close()
            self._buckets.wait()
        for number in range(1, self._count + 1):
            _try("ip", "netns", "delete", f"{self._bridge}-node-{number}")
        self._log.close()

    def _start(self, *options: str) -> list[str]:
        return [
            "start",
            "--block",
            "--disable-usage-stats",
            f"--object-store-memory={_OBJECT_STORE_BYTES}",
            *options,
        ]

    def _started(
        self, name: str, within: Sequence[str], command: Sequence[str], output: int = DEVNULL
    ) -> Machine:
        (self._scratch / "disks" / name / "tmp").mkdir(parents=True)
        spaces = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        disk = ["bash", "-c", _WITH_OWN_DISK, "machine", name, str(self._scratch)]
        machine = Machine(
            name, [*within, *spaces, *disk, *command], self._variables, self._log, output=output
        )
        self.machines.append(machine)
        return machine


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """Run a cluster without nodes and without a server within the block.

    Raises:
        MissingDataError: This system does not allow it.
    """
    if os.geteuid() != 0 or any(shutil.which(program) is None for program in _PROGRAMS):
        raise MissingDataError(f"namespaces need root, and the programs {', '.join(_PROGRAMS)}")
    bridge, network = f"mst{os.getpid() % 10**6}", f"10.202.{os.getpid() % 250}"
    with TemporaryDirectory(prefix="mst") as directory:
        scratch = Path(directory)
        for name in ("disks", "machine"):
            (scratch / name).mkdir()
        try:
            _run("ip", "link", "add", bridge, "type", "bridge")
            _run("ip", "address", "add", f"{network}.1/24", "dev", bridge)
            _run("ip", "link", "set", bridge, "up")
        except subprocess.CalledProcessError as error:
            raise MissingDataError(f"network namespaces do not work here: {error.stderr.strip()}") from error
        cluster = Cluster(scratch, bridge, network)
        try:
            cluster.start_bucket()
            cluster.start_head()
            yield cluster
        finally:
            cluster.close()
            _try("ip", "link", "delete", bridge)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the Ray cluster did not start in time")
        time.sleep(1)


def _try(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
