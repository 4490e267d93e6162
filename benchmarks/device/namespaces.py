"""Two network namespaces with a link of limited bandwidth between them."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks.harness.run import MissingDataError

#: Bytes that may pass at once: what the link carries in a tick of the kernel's clock, and at least a packet.
_TICK_SECONDS: Final = 0.004
_LEAST_BURST: Final = 16_000


class NamespaceLink:
    """A link between two namespaces, each with an address.

    Attributes:
        addresses: The address of each side.
    """

    addresses = ("10.201.77.1", "10.201.77.2")

    def __init__(self, names: Sequence[str], devices: Sequence[str]) -> None:
        self._names, self._devices = names, devices

    def inside(self, side: int, core: int) -> list[str]:
        """Return the beginning of a command that runs in a namespace, on one core, before other programs."""
        return ["ip", "netns", "exec", self._names[side], "nice", "-n", "-20", "taskset", "-c", str(core)]

    def limit(self, bytes_per_second: float) -> None:
        """Limit the bandwidth in both directions."""
        burst = max(_LEAST_BURST, int(bytes_per_second * _TICK_SECONDS))
        for name, device in zip(self._names, self._devices, strict=True):
            bucket = ["rate", f"{8 * bytes_per_second:.0f}bit", "burst", str(burst), "latency", "500ms"]
            inside = ["ip", "netns", "exec", name]
            _run(*inside, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *bucket)

    def connect(self, *, up: bool) -> None:
        """Connect the sides, or unplug the cable."""
        _run("ip", "-n", self._names[0], "link", "set", self._devices[0], "up" if up else "down")


@contextmanager
def namespace_link() -> Iterator[NamespaceLink]:
    """Make two namespaces and a link for the block.

    Raises:
        MissingDataError: This system does not allow it.
    """
    if os.geteuid() != 0 or any(shutil.which(program) is None for program in ("ip", "tc", "taskset")):
        raise MissingDataError("network namespaces need root, and the programs ip, tc and taskset")
    names = [f"mistify-{side}-{os.getpid()}" for side in "ab"]
    devices = [f"mst{side}{os.getpid() % 10**6}" for side in "ab"]
    link = NamespaceLink(names, devices)
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        peer = ["peer", devices[1], "netns", names[1]]
        _run("ip", "-n", names[0], "link", "add", devices[0], "type", "veth", *peer)
        for name, device, address in zip(names, devices, link.addresses, strict=True):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            for each in ("lo", device):
                _run("ip", "-n", name, "link", "set", each, "up")
        yield link
    except subprocess.CalledProcessError as error:
        raise MissingDataError(f"network namespaces do not work here: {error.stderr.strip()}") from error
    finally:
        for name in names:
            command = ["ip", "netns", "delete", name]
            subprocess.run(command, check=False, capture_output=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
