"""Packages for another device than the server: whether they meet their latency limits there.

`python -m benchmarks.latency.other_device [--data DIR] [--table FILE] [--quick] [--json FILE]`

The device is a Haswell emulated by QEMU (Debian: `apt-get install qemu-user`), with one thread. LiteRT uses
other kernels there, and floats are a hundred times slower than integers. The client's own commands run on it:
`mistify profile-device` registers it with a server, which runs natively on the same machine and knows nothing
else about the device. MLPerf Tiny's ResNet-8 (the built-in digits network without `--data`) is ported to
shares of the source's predicted latency on the device, in float32 and int8. Then each package is measured on
the device, as `mistify report-latency` does.

Networks are trained with few steps, as accuracy is irrelevant here. `--table FILE` keeps the device's
measurements for another run. `--quick` ports one goal.
"""

import json
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, MissingDataError, Target, add_data_option, data_with, run
from benchmarks.harness.worker import FILES, RESNET8, TEST, TRAIN
from mistify.costs.budget import FLOPS, latency_axis
from mistify.costs.profiles import device_profile_name
from mistify.costs.quantization import Quantization
from mistify.files.writing import write_bytes
from mistify.jobs.job import Goal
from mistify.package.manifest import MANIFEST, NETWORK
from mistify_client.porting.local_server import embedded_server
from mistify_client.rpc.porting import PortingClient

EMULATOR: Final = "qemu-x86_64"
PROCESSOR: Final = "Haswell"
DEVICE: Final = "emulated"

#: Limits, as shares of the source's latency on the device at the same precision.
SHARES: Final = (0.5, 0.25)
PRECISIONS: Final = (Quantization.INT8, Quantization.NONE)

_DIGITS: Final = {"train": "builtin:digits-train", "test": "builtin:digits-test"}

_SETTINGS: Final = {"source_steps": 20, "adapt_steps": 20, "tune_steps": 20}

TARGETS: Final[dict[str, Target]] = {
    "most_used": {"what": "highest latency of a package as a share of its limit", "max": 1.0},
    "least_used": {"what": "lowest latency of a package as a share of its limit", "min": 0.85},
    "worst_error": {"what": "largest error of a predicted latency", "max": 0.15},
}


class Package(NamedTuple):
    """The package of a goal, on the device.

    Attributes:
        share: Multiply-adds, as a share of the source's.
        limit_ms: None for the source before porting.
        predicted_ms: The server's prediction, based on the device's profile.
        measured_ms: Measured on the device.
    """

    share: float
    limit_ms: float | None
    predicted_ms: float
    measured_ms: float

    @property
    def used(self) -> float | None:
        """The package's latency as a share of the limit; None without a limit."""
        return None if self.limit_ms is None else self.measured_ms / self.limit_ms

    @property
    def error(self) -> float:
        """The relative error of the prediction; positive if the package is slower than predicted."""
        return self.measured_ms / self.predicted_ms - 1


def measure(options: Namespace) -> Figures:
    """Register the device, port to it, measure there, print the table and return the figures."""
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        raise MissingDataError(f"{EMULATOR} is not installed; Debian has it in the package qemu-user")
    device = [emulator, "-cpu", PROCESSOR, sys.executable, "-m", "benchmarks.latency.other_device_side"]
    network, roots = _source(options)
    with TemporaryDirectory() as directory:
        table = options.table or Path(directory) / "table.json"
        with embedded_server(Path(directory) / "store", roots) as server, PortingClient(*server) as client:
            token_file = Path(directory) / "token"
            write_bytes(token_file, server.token.encode(), private=True)
            _on(
                device,
                "mistify",
                "profile-device",
                "--name",
                DEVICE,
                "--table",
                str(table),
                "--server",
                server.address,
                "--token-file",
                str(token_file),
            )
            goals = _ported(client, network, Path(directory), quick=options.quick)
        taken = map(float, _on(device, "measure", *(f"{directory}/{goal.id}" for goal in goals)).split())
        whole = goals[0].achieved[FLOPS]
        packages = {goal.id: _package(goal, whole, ms) for goal, ms in zip(goals, taken, strict=True)}
    Console().print(_table(packages))
    return figures_of(list(packages.values()))


def figures_of(packages: Sequence[Package]) -> Figures:
    """Return the extremes of the used shares of limits, and the errors of the predictions."""
    used = [(package.used, package.share) for package in packages if package.used is not None]
    errors = [abs(package.error) for package in packages]
    return {
        "most_used": max(of for of, _ in used),
        "least_used": min((of for of, share in used if share < 1), default=1.0),
        "worst_error": max(errors),
        "median_error": median(errors),
    }


def _source(options: Namespace) -> tuple[Mapping[str, object], Sequence[Path]]:
    """Return the model and its data as a config names them, and the directories with their files."""
    if options.data is None:
        return {"model": "digits-resnet", "dataset": _DIGITS}, ()
    return {"model": RESNET8, "dataset": {"train": TRAIN, "test": TEST}}, (
        data_with(FILES, options).resolve(),
    )


def _on(device: Sequence[str], *arguments: str) -> str:
    """Run a command on the device and return its output."""
    return subprocess.run([*device, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def _ported(
    client: PortingClient, network: Mapping[str, object], directory: Path, *, quick: bool
) -> list[Goal]:
    """Port the unchanged source and the limits in one job; download packages to directories by goal."""
    common = {**network, "hardware": DEVICE, "algorithm": {"name": "auto", "config": _SETTINGS}}
    precisions, shares = (PRECISIONS[:1], SHARES[:1]) if quick else (PRECISIONS, SHARES)
    goals = [_goal("FLOP", "1x", precision) for precision in precisions]
    (batch,) = client.plan(_batch(common, goals)).batches
    for precision in precisions:
        whole_ms = batch.source_costs[_latency(precision)]
        goals += [_goal("latency", f"{share * whole_ms}ms", precision, f"{share}x") for share in shares]
    job = client.submit(_batch(common, goals), "other-device")
    for _ in client.watch(job.id):
        pass
    return [
        client.fetch(job.id, str(goal["id"]), directory / str(goal["id"]), (NETWORK, MANIFEST))
        for goal in goals
    ]


def _goal(quantity: str, limit: str, precision: Quantization, named: str = "whole") -> dict[str, object]:
    name = "float32" if precision is Quantization.NONE else precision.value
    return {"id": f"{named}_{name}", "adaptation_goal": {quantity: limit}, "quantization": precision.value}


def _batch(common: Mapping[str, object], goals: Sequence[Mapping[str, object]]) -> str:
    return json.dumps([{**goal, **common} for goal in goals])


def _latency(precision: Quantization) -> str:
    return latency_axis(device_profile_name(DEVICE, precision.integer))


def _package(goal: Goal, whole: float, measured_ms: float) -> Package:
    axis = _latency(goal.spec.quantization.precision)
    return Package(goal.achieved[FLOPS] / whole, goal.spec.budget.get(axis), goal.achieved[axis], measured_ms)


def _table(packages: Mapping[str, Package]) -> Table:
    title = f"latency of packages made for {PROCESSOR} (emulated), ms"
    table = Table(title=title, title_justify="left")
    for column in ("goal", "multiply-adds", "limit", "predicted", "measured", "of limit", "error"):
        table.add_column(column, justify="left" if column == "goal" else "right")
    for name, package in packages.items():
        table.add_row(
            name,
            f"{package.share:.2f}",
            f"{package.limit_ms:.3g}" if package.limit_ms is not None else "",
            f"{package.predicted_ms:.3g}",
            f"{package.measured_ms:.3g}",
            f"{package.used:.2f}" if package.used is not None else "",
            f"{package.error:+.1%}",
        )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="the device's measurements, kept for another run"
    )


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("latency.other_device", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
