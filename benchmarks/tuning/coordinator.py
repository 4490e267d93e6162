"""Time to look up peers by the number of devices, on real servers (paper 5.2).

`python -m benchmarks.tuning.coordinator [--quick] [--json FILE]`

Two coordinators run in separate processes: one with 50 devices, one with 4,000, which have joined and
published over gRPC, 16 at a time. Then single devices request 4 peers, alternately from both servers; they
also download the weights, which are tiny here. The peers found are compared with the nearest devices by
definition.

`--quick` uses 500 devices.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

import grpc
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, paired_ratio, run
from benchmarks.tuning import fleet
from benchmarks.tuning.fleet import Device
from mistify.peers.correlation import correlation
from mistify.peers.membership import PackageReference
from mistify.v1 import tuning_pb2 as pb
from mistify.v1.tuning_pb2_grpc import TuningStub
from mistify.wire import tuning as wire
from mistify_client.rpc.tuning import TuningClient, describe

TARGETS: Final[dict[str, Target]] = {
    "slowdown": {"what": "lookup time among 4,000 devices relative to 50", "max": 1.5},
    "recall_at_4": {"what": "recall of the four nearest peers", "min": 0.9},
}
FEW: Final = 50
MANY: Final = 4_000
QUICK_MANY: Final = 500
PEERS: Final = 4
LOOKUPS: Final = 200

_AT_ONCE: Final = 16

#: Number of devices for which peers are compared with those by definition.
_ASKED: Final = 50


class Fleet(NamedTuple):
    """Devices with models on a server, and the seconds that joining and publishing took."""

    devices: Sequence[Device]
    stub: TuningStub
    seconds: float

    def lookup(self, device: Device) -> list[str]:
        """Return a device's peers."""
        request = pb.PeersRequest(key=wire.key_to_proto(device.key), count=PEERS)
        return [message.peer.member for message in self.stub.Peers(request) if message.HasField("peer")]

    def recall(self) -> float:
        """Return the share of the nearest devices that lookups find."""
        point = correlation("spatiotemporal", fleet.SETTINGS).point
        points = np.array([point(device.hints) for device in self.devices])
        hits, queries = 0, np.random.default_rng(0).permutation(len(points))[:_ASKED]
        for number in queries:
            distances = np.linalg.norm(points - points[number], axis=1)
            distances[number] = np.inf
            nearest = {self.devices[place].key.member for place in np.argsort(distances)[:PEERS]}
            hits += len(nearest & set(self.lookup(self.devices[number])))
        return hits / PEERS / len(queries)


@contextmanager
def serving(count: int) -> Iterator[Fleet]:
    """Run a server with a given number of devices."""
    with TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        package = fleet.prepare(store)
        with fleet.served(store) as address:
            devices, seconds = _enter(address, package, count)
            with grpc.insecure_channel(address) as channel:
                yield Fleet(devices, TuningStub(channel), seconds)  # type: ignore[no-untyped-call]


def _enter(address: str, package: PackageReference, count: int) -> tuple[list[Device], float]:
    devices = [fleet.device(number) for number in range(count)]
    with TuningClient(address) as client, ThreadPoolExecutor(_AT_ONCE) as pool:

        def enter(device: Device) -> None:
            client.join(device.key)
            model = describe(package, device.weights, version=1, loss=0.5, accuracy=0.75, hints=device.hints)
            client.publish(device.key, model, device.weights)

        started = perf_counter()
        for _ in pool.map(enter, devices):
            pass
        return devices, perf_counter() - started


def measure(options: Namespace) -> Figures:
    """Return all figures; print the table."""
    with serving(FEW) as few, serving(QUICK_MANY if options.quick else MANY) as many:
        of_few, of_many = cycle(few.devices), cycle(many.devices[:: len(many.devices) // LOOKUPS])
        pair = paired_ratio(lambda: few.lookup(next(of_few)), lambda: many.lookup(next(of_many)), LOOKUPS)
        recall = min(few.recall(), many.recall())
    table = Table(title=f"Looking up {PEERS} peers, with their weights", title_justify="left")
    for column in ("devices", "join and publish, per second", "lookup, ms"):
        table.add_column(column, justify="right")
    for side, seconds in ((few, pair.a), (many, pair.b)):
        count = len(side.devices)
        table.add_row(f"{count:,}", f"{count / side.seconds:.3g}", f"{1e3 * seconds:.3g}")
    Console().print(table)
    return {
        "lookup_few_ms": 1e3 * pair.a,
        "lookup_many_ms": 1e3 * pair.b,
        "published_per_second": len(many.devices) / many.seconds,
        "slowdown": pair.ratio,
        "recall_at_4": recall,
    }


if __name__ == "__main__":
    sys.exit(run("tuning.coordinator", TARGETS, measure, sys.argv[1:]))
