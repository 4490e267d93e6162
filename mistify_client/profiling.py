"""The latency of packages on this device."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.isolation.process import DisposableProcess, ProcessEndedError
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.profiling.measuring import best_ms, load_network, random_input
from mistify_client.runtime.interpreter import Network

#: The duration of a measurement, in seconds.
_SECONDS: Final = 2.0


def measure_package(package: Path) -> float:
    """Return the latency of a package on this device, in milliseconds, with the threads of its goal.

    The measurement runs in a separate process, because LiteRT crashes on some networks.

    Args:
        package: The directory of the package; if it has branches, the goal's own network is measured.

    Raises:
        MistifyError: The directory is not a package; CORRUPT_PACKAGE, its network is damaged, or LiteRT
            crashes on it.
    """
    with closing(DisposableProcess()) as process:
        try:
            return process.call(package_latency_ms, package)
        except ProcessEndedError as error:
            raise MistifyError(
                ErrorCode.CORRUPT_PACKAGE,
                f"LiteRT cannot run {package / NETWORK} on this device: {error}; ask for the goal at another "
                'precision, such as "quantization": "float16"',
            ) from error


def package_latency_ms(package: Path) -> float:
    """Return the latency as in `measure_package`, measured in this process."""
    opened = Package.open(package)
    manifest, content = opened.manifest, opened.read(NETWORK)
    load = partial(_load_branch, manifest) if manifest.branches else load_network
    return best_ms(partial(load, content, manifest.latency.threads), _SECONDS)


def _load_branch(manifest: Manifest, content: bytes, threads: int) -> Callable[[], object]:
    network = Network(manifest, content, threads)
    inputs = {info.name: random_input(info.example_shape, info.dtype) for info in manifest.inputs}
    return lambda: network(inputs, manifest.default_branch)
