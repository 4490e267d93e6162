"""The time that communication adds to a round with peers (paper 8.2: Figure 7).

`python -m benchmarks.tuning.communication --data DIR [--work DIR] [--quick] [--json FILE] [--picture FILE]`

`benchmarks/tuning/devices.py` describes the devices. Six of them (two with the same package) publish the
models that they have tuned alone to a real coordinator. Then a new device joins, publishes its model, and
downloads the weights of 1 to 5 peers, and their networks, which it will not need again. All bytes of its
messages are counted. The communication time of a round is computed as these bytes divided by a bandwidth; the
training time is the CPU time that a device took to converge with 4 peers as the teacher.

The second table contains the sizes of tuned weights in several encodings, as means over the devices.
"""

import sys
import zlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, run
from benchmarks.tuning import devices, fleet
from benchmarks.tuning.devices import DEVICES, EQUAL, Lab, alone, peers_of, taught
from benchmarks.tuning.run import load_weights
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.weights import write_weights
from mistify.peers.hints import Hints
from mistify.peers.membership import PackageReference
from mistify_client.tuning.peers.exchange import Exchange, Peering
from mistify_client.tuning.trainer import Weights, load_trainer
from mistify_client.tuning.training_loop import Score

#: Bandwidths in MB/s.
BANDWIDTHS: Final = (1, 5, 10, 50)
PEERS: Final = (1, 2, 3, 4, 5)

TARGETS: Final[dict[str, Target]] = {
    "ratio_at_5_mb_per_s": {
        "what": "communication time relative to training time, 5 peers at 5 MB/s",
        "max": 0.1,
        "full_run_only": True,
    }
}


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.communication", TARGETS, measure, argv, add_options)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    devices.add_options(parser)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="plot the ratios to this PNG file")


def measure(options: Namespace) -> Figures:
    """Measure bytes and ratios."""
    with devices.lab(options, short=options.quick) as lab:
        lab.runs(alone(EQUAL))
        rounds = lab.each(taught(EQUAL, "4 peers", [peers_of(device, 4, EQUAL) for device in range(DEVICES)]))
        tuned = [load_weights(lab.work, plan.name) for plan in alone(EQUAL)]
        sizes = encodings(lab, tuned)
        bytes_by_peers = dict(traffic(lab, tuned))
    seconds = mean(run.seconds for run in rounds)
    ratios = ratios_of(bytes_by_peers, seconds)
    Console().print(_ratios(ratios, bytes_by_peers), _sizes(sizes))
    if options.picture:
        _draw(ratios, options.picture)
    figures = {
        "training_seconds": seconds,
        **{f"bytes_with_{count}_peers": float(total) for count, total in bytes_by_peers.items()},
        **{f"bytes_{name.replace(' ', '_')}": size for name, size in sizes.items()},
    }
    return {} if options.quick else {**figures, "ratio_at_5_mb_per_s": max(ratios[5])}


def traffic(lab: Lab, tuned: Sequence[Weights]) -> Iterator[tuple[int, int]]:
    """Yield the number of peers, and the bytes of all messages of a device."""
    with TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        packages = {
            str(device): {path.name: path.read_bytes() for path in _package(lab, device).iterdir()}
            for device in range(DEVICES)
        }
        fleet.prepare_packages(store, packages, {"view_degrees": 90.0})
        with fleet.served(store) as address:
            for member in range(max(PEERS) + 1):
                with _exchange(lab, address, member, 1, Path(directory)) as exchange:
                    exchange.publish(tuned[member % DEVICES], Score(0.5, 1.0))
            for count in PEERS:
                with _exchange(lab, address, DEVICES * (10 + count), count, Path(directory)) as exchange:
                    yield count, _round(exchange, count, tuned[0], Path(directory) / f"networks-{count}")


def _round(exchange: Exchange, count: int, weights: Weights, networks: Path) -> int:
    """Run step (ii) for a new device, which then leaves; return the total bytes.

    Raises:
        RuntimeError: The number of downloaded weights is not `count`.
    """
    exchange.publish(weights, Score(0.5, 1.0))
    files = exchange.peers()
    if len(files) != count:
        raise RuntimeError(f"got the weights of {len(files)} peers; expected {count}")
    for package in {file.peer.package for file in files}:
        exchange.fetch(package, networks / package.goal_id)
    total = exchange.traffic
    exchange.leave()
    return total.sent + total.received


def _exchange(lab: Lab, address: str, member: int, count: int, directory: Path) -> Exchange:
    """Return the exchange of a member with the package of one of the devices."""
    manifest = Manifest.load(_package(lab, member % DEVICES))
    package = PackageReference(manifest.job, manifest.goal, manifest.files[NETWORK].sha256)
    peering = Peering(address, fleet.GROUP, Hints(view_degrees=float(member)), count)
    return Exchange(peering, member.to_bytes(32, "big"), package, directory / f"weights-{member}")


def _package(lab: Lab, device: int) -> Path:
    return lab.work / "packages" / str(device)


def ratios_of(bytes_by_peers: Mapping[int, int], seconds: float) -> dict[int, list[float]]:
    """Return communication time over training time, for each number of peers, by bandwidth in MB/s."""
    return {
        bandwidth: [total / (1e6 * bandwidth) / seconds for total in bytes_by_peers.values()]
        for bandwidth in BANDWIDTHS
    }


def encodings(lab: Lab, tuned: Sequence[Weights]) -> dict[str, float]:
    """Return the mean bytes of the devices' weights by encoding."""
    by_encoding: dict[str, list[int]] = {}
    for device, weights in enumerate(tuned):
        ported = load_trainer(_package(lab, device), threads=1).ported
        changes = {name: values - ported[name] for name, values in weights.items()}
        single = np.concatenate([values.ravel() for values in weights.values()])
        sizes = {
            "float32": single.nbytes,
            "float16": single.nbytes // 2,
            "float16 deflated": len(zlib.compress(single.astype(np.float16).tobytes(), 9)),
            "float16 in planes deflated": len(write_weights(weights)),
            "changes as float16 in planes deflated": len(write_weights(changes)),
        }
        for name, size in sizes.items():
            by_encoding.setdefault(name, []).append(size)
    return {name: mean(each) for name, each in by_encoding.items()}


def _ratios(ratios: Mapping[int, Sequence[float]], bytes_by_peers: Mapping[int, int]) -> Table:
    table = Table(title="Communication over training time, by bandwidth", title_justify="left")
    for column in ("peers", "bytes", *(f"{bandwidth} MB/s" for bandwidth in BANDWIDTHS)):
        table.add_column(column, justify="right")
    for at, (count, total) in enumerate(bytes_by_peers.items()):
        table.add_row(f"{count}", f"{total:,}", *(f"{of[at]:.3%}" for of in ratios.values()))
    return table


def _sizes(sizes: Mapping[str, float]) -> Table:
    table = Table(title="Bytes of tuned weights", title_justify="left")
    for column in ("as", "bytes", "share"):
        table.add_column(column, justify="left" if column == "as" else "right")
    for name, size in sizes.items():
        table.add_row(name, f"{size:,.0f}", f"{size / sizes['float32']:.1%}")
    return table


def _draw(ratios: Mapping[int, Sequence[float]], path: Path) -> None:
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for bandwidth, each in ratios.items():
        axis.plot(PEERS, [100 * ratio for ratio in each], "o-", label=f"{bandwidth} MB/s")
    axis.set_xticks(PEERS)
    axis.set_xlabel("peers")
    axis.set_ylabel("communication over training time, %")
    axis.set_yscale("log")
    axis.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
