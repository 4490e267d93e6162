"""An app of `engines`: a process that keeps the network of a package in memory."""

from pathlib import Path

from mistify.package.opened import Package
from mistify_client.assembly.chaining import Chain
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.paged_engines import EngineFiles
from mistify_client.engines.measuring import proportional_bytes, random_inputs

#: The networks that the process keeps in memory.
_networks: list[Chain[Engine]] = []


def run_network(package: Path, weights: Path, engine: Engine) -> float:
    """Open the network of a package and run it once; return the bytes of the process before."""
    files = EngineFiles.of(Package.open(package), weights)
    inputs, before = random_inputs(files.inputs), proportional_bytes()
    _networks.append(files.opened(engine))
    _networks[-1](inputs)
    return before or 0.0


def current_bytes() -> float:
    """Return the bytes of the process."""
    return proportional_bytes() or 0.0
