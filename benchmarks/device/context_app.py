"""The app of `benchmarks.device.context_loop`: it runs one inference after another until it is ended.

`python -m benchmarks.device.context_app PACKAGE [HELPER TOKEN_FILE]`

It prints the bytes of its process before it loads the package, but after it has run a small block with each
execution and has connected to the helper once: the code of LiteRT, gRPC and Mistify is in memory by then.
"""

import sys
import time
from pathlib import Path
from typing import Final

import grpc
import numpy as np
import psutil  # noqa: F401 (would be imported when blocks are stitched)

import mistify_client
import mistify_client.assembly.paging
import mistify_client.runtime.helped
import mistify_client.runtime.loading
import mistify_client.runtime.model  # as the others, it would be imported with the package
from mistify.package.opened import Package
from mistify_client.assembly.executions import Execution, open_network, part_that_runs
from mistify_client.assembly.memory import return_memory
from mistify_client.assembly.shipped import blocks_of
from mistify_client.engines.measuring import proportional_bytes
from mistify_client.lending.tensors import zeros_of

_PAUSE_SECONDS: Final = 0.01
_CONNECTING_SECONDS: Final = 30.0


def main(package: Path, helper: tuple[str, ...]) -> None:
    """Run inferences on random images of bytes."""
    lending = None
    if helper:
        lending = package.with_name(f"{package.name}-lending.toml")
        lending.write_text(f'[lending]\nhelpers = ["{helper[0]}"]\ntoken_file = "{helper[1]}"\n')
    _run_block(Package.open(package))
    for address in helper[:1]:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(_CONNECTING_SECONDS)
    return_memory()
    before = proportional_bytes()
    model = mistify_client.load(package, lending=lending)
    (info,) = model.inputs
    shape = tuple(max(1, size) for size in info.shape)
    image = np.random.default_rng(0).integers(0, 256, shape).astype(info.dtype)
    model(image)
    print(before, flush=True)
    while True:
        model(image)
        time.sleep(_PAUSE_SECONDS)


def _run_block(package: Package) -> None:
    """Run the first block of a package with each execution."""
    store = blocks_of(package)
    block = store.network_of(store.served)[0]
    content = (package.directory / block.file).read_bytes()
    for execution in Execution:
        open_network(part_that_runs(content, execution), execution, 1)(zeros_of(store.inputs))


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]))
