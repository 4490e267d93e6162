"""The device side of `elastic.update`: a process that performs one task, and prints its peak memory.

python -m benchmarks.elastic.update_side nothing|largest|adapt PACKAGE DATA
"""

import re
import sys
from pathlib import Path

import numpy as np

from mistify.package.blocks import BlockStore
from mistify.parsing.quantities import parse_time
from mistify_client.assembly.chaining import ChosenBlocks
from mistify_client.assembly.paging import Blocks, PagedNetwork
from mistify_client.subnets.search_session import adapt
from mistify_client.subnets.space import SubnetSpace


def peak_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    line = re.search(r"VmHWM:\s+(\d+) kB", status)
    if line is None:
        raise OSError("/proc/self/status has no VmHWM; it is only available on Linux")
    return 1024 * int(line[1])


def _largest(package: Path, data: Path) -> None:
    """Load the original network, which has the most weights, and run it on one example."""
    store = BlockStore.load(package)
    files = tuple(block.file for block in SubnetSpace(store).original)
    network = PagedNetwork(Blocks(package, store), ChosenBlocks(files=files), 1)
    with np.load(data) as arrays:
        network({store.inputs[0].name: arrays["x"][:1]})
    network.close()


def main(what: str, package: str, data: str) -> None:
    """Perform the task, and print the peak memory in bytes."""
    if what == "largest":
        _largest(Path(package), Path(data))
    if what == "adapt":
        adapt(Path(package), Path(data), parse_time("1x"))
    print(peak_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
