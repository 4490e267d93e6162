"""What the monitor costs the device: memory and processor time of the daemon.

`python -m benchmarks.device.monitor_cost [--against DIR] [--quick] [--json FILE]`

Two daemons run at the same time, each for a copy of one package with five branches, whose app runs an
inference every 20 ms; both decide once a second. One side is this code's monitor with the policy
`contextual`, which measures conditions and weighs options. The other side is the monitor of another checkout
with `--against DIR`, or otherwise this code's, with the policy `predictive`. Both are measured after a
warm-up.

- `extra_mb`: resident memory of the daemon in addition to the other side's, at the end;
- `extra_core_percent`: processor time in addition to the other side's, in percent of one core.

The targets compare with eddc39f2, the last commit before `contextual`.
"""

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from shutil import copytree
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, MissingDataError, Target, run
from benchmarks.harness.worker import Porting
from mistify.config.package.branches import BranchesConfig
from mistify_server.tasks.sources import DataSource, ModelSource

TARGETS: Final[dict[str, Target]] = {
    "extra_mb": {"what": "memory of the monitor in addition to that before `contextual`, MB", "max": 5},
    "extra_core_percent": {
        "what": "processor time of the monitor in addition to that before `contextual`, percent of a core",
        "max": 0.5,
    },
}

_SHARE: Final = 0.5
_BRANCHES: Final = 5
_STEPS: Final = 20

_WARM_UP_SECONDS: Final = 15
_SECONDS: Final = 300

_MEGABYTE: Final = 1e6

_DAEMON: Final = "import sys; from mistify_client.cli.main import main; main()"
_APP: Final = """
import sys, time
import numpy as np
import mistify_client
model = mistify_client.load(sys.argv[1], threads=1)
(info,) = model.inputs
image = np.zeros([max(1, size) for size in info.shape], info.dtype)
while True:
    model(image)
    if sys.argv:
        print(flush=True)
        sys.argv = []
    time.sleep(0.02)
"""

_TARGETS: Final = 'interval = "1s"\n[targets]\nlatency = "20ms"\n[policy]\n'
_OURS: Final = f'{_TARGETS}name = "contextual"\nimportance = {{ accuracy = 5, latency = 3, energy = 3 }}\n'
_OTHERS: Final = f'{_TARGETS}name = "predictive"\n'


class Cost(NamedTuple):
    """What a daemon took.

    Attributes:
        megabytes: Resident memory at the end.
        core_percent: Processor time after the warm-up, in percent of one core.
    """

    megabytes: float
    core_percent: float


def measure(options: Namespace) -> Figures:
    """Return all figures, and print a table."""
    if options.against is not None and not (options.against / "mistify_client").is_dir():
        raise MissingDataError(f"{options.against} is not a checkout of Mistify")
    seconds = _SECONDS // 10 if options.quick else _SECONDS
    ours = Path(__file__).parents[2]
    other = (options.against or ours).resolve()
    with TemporaryDirectory() as directory, ExitStack() as opened:
        package = _ported(Path(directory))
        daemons = [
            opened.enter_context(monitored(package, checkout, config, Path(directory)))
            for checkout, config in ((ours, _OURS), (other, _OTHERS))
        ]
        time.sleep(_WARM_UP_SECONDS)
        costs = _costs(daemons, seconds)
    Console().print(_table(costs, str(options.against or "predictive")))
    return {
        "megabytes": costs[0].megabytes,
        "core_percent": costs[0].core_percent,
        "extra_mb": costs[0].megabytes - costs[1].megabytes,
        "extra_core_percent": costs[0].core_percent - costs[1].core_percent,
    }


def add_options(parser: ArgumentParser) -> None:
    """Add the option for the other side."""
    message = "another checkout of Mistify to compare with"
    parser.add_argument("--against", type=Path, metavar="DIR", help=message)


def _ported(directory: Path) -> Path:
    """Port the digits model to a package with branches, and return its directory."""
    data = DataSource(train="builtin:digits-train", test="builtin:digits-test")
    (directory / "store").mkdir()
    porting = Porting(ModelSource(builtin="digits-resnet"), data, directory / "store", {})
    goal = porting.checkpoint(_SHARE, _STEPS)
    branches = porting.branches(goal, _SHARE, BranchesConfig(count=_BRANCHES).shares, _STEPS)
    porting.write_package(goal, directory / "package", branches)
    return directory / "package"


@contextmanager
def monitored(package: Path, checkout: Path, config: str, directory: Path) -> Iterator[psutil.Process]:
    """Run the monitor of a checkout and an app for a copy of a package; yield the monitor's process."""
    name = "contextual" if config is _OURS else "predictive"
    copied = copytree(package, directory / name / "package")
    settings = copied.with_name("monitor.toml")
    settings.write_text(config)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = ["monitor", "--package", str(copied), "--config", str(settings)]
    # Python prefers modules in the current directory to those of the checkout.
    start = partial(Popen, env=environment, cwd=copied)
    with (
        start([sys.executable, "-c", _APP, str(copied)], stdout=PIPE) as app,
        start([sys.executable, "-c", _DAEMON, *command], stdout=DEVNULL) as daemon,
    ):
        try:
            if app.stdout is None or not app.stdout.readline():
                raise RuntimeError("the app has ended")
            yield psutil.Process(daemon.pid)
        finally:
            app.kill()
            daemon.terminate()


def _costs(daemons: list[psutil.Process], seconds: float) -> list[Cost]:
    before = [_cpu_seconds(daemon) for daemon in daemons]
    time.sleep(seconds)
    return [
        Cost(
            daemon.memory_info().rss / _MEGABYTE,
            100 * (_cpu_seconds(daemon) - earlier) / seconds,
        )
        for daemon, earlier in zip(daemons, before, strict=True)
    ]


def _cpu_seconds(process: psutil.Process) -> float:
    taken = process.cpu_times()
    return float(taken.user + taken.system)


def _table(costs: list[Cost], other: str) -> Table:
    table = Table(title="the monitor's costs", title_justify="left")
    for column in ("monitor", "memory, MB", "processor, % of a core"):
        table.add_column(column, justify="left" if column == "monitor" else "right")
    for name, cost in zip(("contextual", other), costs, strict=True):
        table.add_row(name, f"{cost.megabytes:.1f}", f"{cost.core_percent:.2f}")
    return table


if __name__ == "__main__":
    sys.exit(run("device.monitor_cost", TARGETS, measure, sys.argv[1:], add_options))
