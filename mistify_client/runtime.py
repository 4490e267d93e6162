"""A package in use: load it, call it on NumPy arrays."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import numpy.typing as npt
from ai_edge_litert.interpreter import Interpreter

from mistify.errors import ErrorCode, MistifyError
from mistify.manifest import Manifest, TensorInfo, verify
from mistify_client.client import PortingClient
from mistify_client.inputs import Array, bind
from mistify_client.retry import Backoff

NETWORK = "serve.tflite"
SIGNATURE = "serving_default"

#: Failures in a row (some 6 seconds) after which `load` no longer waits for a server.
LOAD_ATTEMPTS = 6


class PortedModel:
    """A ported network: call it with NumPy arrays, by position or by the names of its inputs.

    Any batch size from 1 on; all inputs of a call share it. A change of batch size costs an allocation.
    Values are converted where the network's dtype holds them exactly (uint8 to float32). A network of
    integers takes values as well, and gives values, by the scales in its manifest; arrays that are int8
    already it takes as they are. One output comes as an array, several as a dict by name. May be called from
    several threads, one at a time runs.

    Attributes:
        manifest: what the package says about itself.
        inputs: name, dtype and shape of every input, in order; -1 is the batch.
        outputs: the same of every output.
    """

    def __init__(self, manifest: Manifest, signature: Any) -> None:
        self.manifest = manifest
        self.inputs: tuple[TensorInfo, ...] = manifest.inputs
        self.outputs: tuple[TensorInfo, ...] = manifest.outputs
        self._signature = signature
        self._lock = threading.Lock()

    def __call__(self, /, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> Array | dict[str, Array]:
        """Run the network.

        Raises:
            MistifyError: INVALID_DATASET, naming every input that does not fit.
        """
        values = bind(self.inputs, arrays, named)
        with self._lock:
            found: Mapping[str, Array] = self._signature(**values)
        outputs = {info.name: info.dequantized(found[info.name]) for info in self.outputs}
        return outputs if len(outputs) > 1 else outputs[self.outputs[0].name]


@overload
def load(package: str | os.PathLike[str], *, threads: int | None = None) -> PortedModel: ...


@overload
def load(
    *,
    server: str,
    job: str,
    goal: str,
    token: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> PortedModel: ...


def load(
    package: str | os.PathLike[str] | None = None,
    *,
    server: str | None = None,
    job: str | None = None,
    goal: str | None = None,
    token: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> PortedModel:
    """Load a package from a directory, or the package of a job's goal from a server.

    A package that was downloaded before is used again, also without a connection.

    Args:
        package: the package's directory.
        server: `host:port` of the server, instead of `package`.
        job: the job's id there.
        goal: the goal's id in the job.
        token: the server's access token.
        cache: where downloads are kept; `~/.cache/mistify` (or below `$XDG_CACHE_HOME`) if not given.
        threads: how many threads LiteRT uses; its own choice if not given.

    Raises:
        MistifyError: NOT_FOUND, CORRUPT_PACKAGE (a file is not what its digest says), UNAVAILABLE.
    """
    if package is not None and server is None and job is None and goal is None:
        return _open(Path(package), threads)
    if package is None and server is not None and job is not None and goal is not None:
        directory = Path(cache or _default_cache()) / job / goal
        return _open(_downloaded(directory, server, job, goal, token), threads)
    raise TypeError("load() takes either a package's directory or all of server, job and goal")


def _open(directory: Path, threads: int | None) -> PortedModel:
    manifest = verify(directory)
    if NETWORK not in manifest.files:
        raise _unusable(directory, "the manifest does not list it")
    try:
        interpreter = Interpreter(model_path=str(directory / NETWORK), num_threads=threads)
        signature = interpreter.get_signature_runner(SIGNATURE)
    except ValueError as error:
        raise _unusable(directory, str(error)) from error
    takes, gives = signature.get_input_details(), signature.get_output_details()
    if {info.name for info in manifest.inputs} != set(takes):
        raise _unusable(directory, f"its inputs are {', '.join(takes)}, which the manifest does not say")
    if {info.name for info in manifest.outputs} != set(gives):
        raise _unusable(directory, f"its outputs are {', '.join(gives)}, which the manifest does not say")
    return PortedModel(manifest, signature)


def _unusable(directory: Path, reason: str) -> MistifyError:
    return MistifyError(ErrorCode.CORRUPT_PACKAGE, f"{directory / NETWORK} cannot be used: {reason}")


def _downloaded(directory: Path, server: str, job: str, goal: str, token: str | None) -> Path:
    try:
        verify(directory)
    except MistifyError:
        with PortingClient(server, token, backoff=Backoff(attempts=LOAD_ATTEMPTS)) as client:
            client.fetch(job, goal, directory)
    return directory


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mistify"
