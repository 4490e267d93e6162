"""A server under load: over TLS, with tokens, a package to download, and a job that trains throughout."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

import numpy as np
import trustme

from benchmarks.server.large_jobs import Server
from benchmarks.server.load_clients import Settings
from mistify.jobs.job import ProgressUpdate
from mistify_client.rpc.porting import PortingClient
from mistify_client.rpc.trust import CA
from mistify_server.identity.authentication import create_token
from mistify_server.identity.callers import Scope
from mistify_server.store.directory import open_store
from tests.support.postgresql import bound_to
from tests.support.published import publish
from tests.support.signed_packages import write_package

#: The package to download.
_JOB, _GOAL, _FILE = "20260101-000000-00000000", "phone", "serve.tflite"

#: Training steps of each job's source: enough for the first job to keep its worker until the end.
_LONG: Final = 1_000_000

#: Makes a network in a separate process, so that this one needs no TensorFlow.
_MAKE: Final = """
import sys, keras
layers = keras.layers
inputs = keras.Input((8, 8, 1), name="image")
x = layers.Conv2D(8, 3, activation="relu")(inputs)
x = layers.Dense(10, "softmax", name="digit")(layers.GlobalAveragePooling2D()(x))
keras.Model(inputs, x).save(sys.argv[1])
"""


class LoadedServer:
    """A server process with one worker, which can be killed and started again at the same addresses.

    Args:
        directory: An empty directory for the store and all other files.
        package_bytes: Size of the package to download.
    """

    def __init__(self, directory: Path, package_bytes: int) -> None:
        self._directory = directory
        self._store = directory / "store"
        self._package_bytes = package_bytes
        self._process: Popen[str] | None = None
        self._ports = ("0", "0")
        self._address = self._url = self._secret = self._job_id = ""

    def begin(self, database: str | None = None) -> None:
        """Start the server, and a job that trains until the end.

        Args:
            database: Address of an empty database in PostgreSQL; None for SQLite.
        """
        self._store.mkdir()
        if database is not None:
            bound_to(database, self._store)
        self._secret = self._fill_store()
        self._write_certificate()
        self._write_inputs()
        self._start()
        self._job_id = self._training()

    @property
    def process(self) -> Server:
        """The server's process."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        return Server(self._address, self._process.pid, self._store)

    def settings(self, clients: int, every: float = 0.0, *, package: bool = False) -> Settings:
        """Return the settings of clients of this server.

        Args:
            every: Seconds between the calls of a client; 0 for one after the other.
            package: Whether their job is that of the package, and not the one that trains.
        """
        return Settings(
            address=self._address,
            url=self._url,
            token=self._secret,
            authority=str(self._directory / "authority.pem"),
            clients=clients,
            every=every,
            config=self._config("0.5NUMBERx"),
            job=_JOB if package else self._job_id,
            goal=_GOAL,
            file=_FILE,
        )

    def restart(self) -> None:
        """Kill the server, and start it again; its clients lose their connections."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """Kill the server if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        grpc_port, http_port = self._ports
        options: dict[str, str | Path] = {
            "--store": self._store,
            "--listen": f"127.0.0.1:{grpc_port}",
            "--http": f"127.0.0.1:{http_port}",
            "--slots": "1",
            "--data-root": self._directory,
            "--token-file": self._directory / "token",
            "--tls-certificate": self._directory / "chain.pem",
            "--tls-key": self._directory / "key.pem",
        }
        command = [sys.executable, "-m", "mistify_server.cli", "serve"]
        for option, value in options.items():
            command += [option, str(value)]
        with (self._directory / "log").open("a") as log:
            self._process = Popen(command, stdout=PIPE, stderr=log, text=True)
        lines = [self._process.stdout.readline() for _ in self._ports] if self._process.stdout else []
        if not all(lines):
            raise RuntimeError(f"the server does not start: {(self._directory / 'log').read_text()[-2000:]}")
        self._address, self._url = (line.split()[-1] for line in lines)
        self._ports = (self._address.rpartition(":")[2], self._url.rpartition(":")[2].rstrip("/"))

    def _training(self) -> str:
        """Submit a job, wait until it trains, and return its id."""
        with PortingClient(self._address, self._secret) as client:
            job = client.submit(self._config("0.5x"), "")
            for event in client.watch(job.id):
                if isinstance(event.event, ProgressUpdate) and event.event.step > 0:
                    return job.id
        raise RuntimeError("the job has ended before the load began")

    def _config(self, flop: str) -> str:
        data = str(self._directory / "data.npz")
        goal = {
            "id": "goal",
            "model": str(self._directory / "known.keras"),
            "dataset": {"train": data, "test": data},
            "algorithm": {"name": "morphnet", "config": {"source_steps": _LONG}},
            "adaptation_goal": {"FLOP": flop},
        }
        return json.dumps([goal])

    def _fill_store(self) -> str:
        """Add a package and a token, and return its secret."""
        content = np.random.default_rng(0).bytes(self._package_bytes)
        publish(self._store, _JOB, [write_package(self._directory / _GOAL, {_FILE: content})])
        with open_store(self._store) as store:
            scopes = (Scope.READ, Scope.SUBMIT, Scope.REPORT)
            return create_token(store.tokens, "load", scopes)[1]

    def _write_certificate(self) -> None:
        """Write a certificate with its authority, which clients trust, and the administrator's token."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self._directory / "authority.pem"))
        os.environ[CA] = str(self._directory / "authority.pem")
        certificate = authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(str(self._directory / "key.pem"))
        chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
        (self._directory / "chain.pem").write_bytes(chain)
        token = self._directory / "token"
        token.touch(0o600)
        token.write_text(secrets.token_hex(32))

    def _write_inputs(self) -> None:
        """Write a network and data."""
        model = self._directory / "known.keras"
        subprocess.run([sys.executable, "-c", _MAKE, model], check=True, capture_output=True)
        rng = np.random.default_rng(0)
        images = rng.normal(size=(200, 8, 8, 1)).astype(np.float32)
        np.savez(self._directory / "data.npz", image=images, digit=np.arange(200) % 10)
