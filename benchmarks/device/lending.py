"""The latency of a busy device that offloads the last blocks of a network to a helper.

`python -m benchmarks.device.lending [--quick] [--json FILE] [--packages DIR]`

Device and helper run on one core each, in network namespaces with a link of 5, 20 or 100 MB/s between them.
None, one or three other programs compete with the device for its core. MobileNetV2 and ResNet-50 run on
images of 224 x 224, of bytes, in turns: on the device alone, as in an app with a helper, at each cut, and at
the best cut for idle devices, which Neurosurgeon and DADS (the same in a chain of blocks) would choose and
which sends float32, while the others round tensors between blocks to bytes. The best of the cuts and of the
device alone is the oracle. The helper grants more inferences than the device can ask for. All of them run
before other programs of the machine.
DIR keeps the packages for later runs. Needs root.

- `saved`: mean share of latency saved against the device alone, over the cases with competitors;
- `worst`: the largest latency relative to the device alone;
- `gap`, `largest_gap`: median and largest latency above the oracle's, as shares;
- `static`: mean latency relative to the best cut for idle devices, over all cases;
- `overhead_ms`: milliseconds of a message of 50 KB and its answer beyond bare TCP, on one machine;
- `trace`: latency relative to the best single placement, over a trace in which the link becomes slow, is
  unplugged and comes back, while competitors come and go.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.device.lending_overhead import overhead_ms
from benchmarks.device.namespaces import NamespaceLink, namespace_link
from benchmarks.harness.run import Figures, Target, run

TARGETS: Final[dict[str, Target]] = {
    "saved": {"what": "mean share of latency saved by a helper on a busy device", "min": 0.35},
    "worst": {"what": "largest latency relative to the device alone", "max": 1.05},
    "gap": {"what": "median latency above that of the best placement, as a share", "max": 0.1},
    "largest_gap": {"what": "largest latency above that of the best placement, as a share", "max": 0.25},
    "overhead_ms": {"what": "milliseconds of a message of 50 KB beyond bare TCP", "max": 0.5},
    "trace": {
        "what": "latency over a changing trace relative to the best fixed placement",
        "max": 0.85,
        "full_run_only": True,
    },
}

NETWORKS: Final = ("mobilenet-v2", "resnet-50")
MEGABYTES: Final = (5, 20, 100)
COMPETITORS: Final = (0, 1, 3)

#: Core of the device and its competitors, and of the helper.
_DEVICE, _HELPER = 0, 1

_SECONDS: Final = {"lending": 2.5, "here": 1.0, "static": 0.6}
_CUT_SECONDS: Final = 0.6

#: Seconds in which the device notices new conditions before a case counts.
_SETTLING_SECONDS: Final = 8.0

#: Seconds for which a single placement is measured in each part of the trace.
_FIXED_SECONDS: Final = 3.0

#: The trace: megabytes per second (0 is unplugged), competitors, seconds.
_TRACE: Final = (
    (100, 0, 30),
    (100, 3, 40),
    (5, 3, 40),
    (20, 3, 40),
    (0, 3, 30),
    (0, 0, 30),
    (100, 0, 30),
    (100, 1, 30),
    (20, 1, 30),
)


class Case(NamedTuple):
    """The mean milliseconds of each way under the same conditions, and where an app's inferences ran."""

    name: str
    competitors: int
    ways: dict[str, float]
    reason: str

    @property
    def oracle(self) -> float:
        """The milliseconds of the best single placement."""
        return min(value for way, value in self.ways.items() if way not in ("lending", "static"))


class Device:
    """The process of the device."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.cuts: list[int] = self._line()

    def run(self, way: str | int, seconds: float) -> tuple[list[float], str]:
        """Return the milliseconds of each inference, and where an app's last one ran."""
        if self._process.stdin is None:
            raise RuntimeError("a device without standard input")
        print(json.dumps([way, seconds]), file=self._process.stdin, flush=True)
        times, reason = self._line()
        return times, reason

    def _line(self) -> Any:
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise RuntimeError("the device has ended")
        return json.loads(line)


def measure(options: Namespace) -> Figures:
    """Return all figures, and print a table."""
    networks = NETWORKS[:1] if options.quick else NETWORKS
    megabytes = MEGABYTES[1:] if options.quick else MEGABYTES
    competitors = COMPETITORS[:2] if options.quick else COMPETITORS
    cases, figures = [], {"overhead_ms": overhead_ms()}
    with ExitStack() as stack:
        packages = options.packages or Path(stack.enter_context(TemporaryDirectory()))
        link = stack.enter_context(namespace_link())
        for network in networks:
            package = _package(packages, network)
            with _helper(link, package) as address, _device(link, package, address) as device:
                for rate in megabytes:
                    link.limit(rate * 1e6)
                    for count in competitors:
                        with competing(link, count):
                            name = f"{network}, {rate} MB/s"
                            cases.append(_case(name, count, device, 1 if options.quick else 3))
                if not options.quick and network == "mobilenet-v2":
                    figures["trace"] = _traced(link, device)
    Console().print(_table(cases))
    gaps = [case.ways["lending"] / case.oracle - 1 for case in cases]
    shares = [(case.ways["lending"] / case.ways["here"], case.competitors) for case in cases]
    return {
        "saved": mean(1 - share for share, count in shares if count),
        "worst": max(share for share, _ in shares),
        "gap": median(gaps),
        "largest_gap": max(gaps),
        "static": mean(case.ways["lending"] / case.ways["static"] for case in cases),
        **figures,
    }


def add_options(parser: ArgumentParser) -> None:
    """Add the option for the packages."""
    parser.add_argument("--packages", type=Path, metavar="DIR", help="directory of packages; made if missing")


def _case(name: str, competitors: int, device: Device, rounds: int) -> Case:
    device.run("lending", _SETTLING_SECONDS)
    times: dict[str, list[float]] = {}
    reason = ""
    for number in range(rounds):
        ways: list[str | int] = ["here", "lending", "static", *device.cuts]
        turned = ways[number % len(ways) :] + ways[: number % len(ways)]
        for way in turned:
            taken, last = device.run(way, _SECONDS.get(str(way), _CUT_SECONDS))
            times.setdefault(str(way), []).extend(taken)
            reason = last if way == "lending" else reason
    return Case(name, competitors, {way: mean(taken) for way, taken in times.items()}, reason)


def _traced(link: NamespaceLink, device: Device) -> float:
    """Return the latency of an app over the trace, relative to the best single placement.

    An app goes through the whole trace; single placements, which have nothing to learn, are measured for some
    seconds in each part. All parts count by their seconds.
    """
    totals: dict[str, float] = defaultdict(float)
    single: list[str | int] = ["here", *device.cuts]
    for rate, count, seconds in _TRACE:
        link.connect(up=rate > 0)
        if rate:
            link.limit(rate * 1e6)
        with competing(link, count):
            totals["lending"] += seconds * mean(device.run("lending", seconds)[0])
            for way in single:
                totals[str(way)] += seconds * mean(device.run(way, _FIXED_SECONDS)[0])
    link.connect(up=True)
    return totals["lending"] / min(value for way, value in totals.items() if way != "lending")


def _package(packages: Path, network: str) -> Path:
    directory = packages / network
    if not directory.exists():
        command = [sys.executable, "-m", "benchmarks.device.lending_package", network, str(directory)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return directory


@contextmanager
def _helper(link: NamespaceLink, package: Path) -> Iterator[str]:
    """Run a helper, and yield its address for the device."""
    listen = f"{link.addresses[1]}:0"
    token = ["--token-file", str(_token(package.with_suffix(".token"))), "--rate", "1000"]
    mistify = str(Path(sys.executable).parent / "mistify")
    command = [mistify, "lend", "--package", str(package), "--listen", listen, "--memory", "2GB", *token]
    with _started([*link.inside(1, _HELPER), *command]) as process:
        if process.stdout is None:
            raise RuntimeError("a helper without standard output")
        yield process.stdout.readline().split()[-1]


def _token(path: Path) -> Path:
    path.touch(0o600)
    path.write_text("of a benchmark")
    return path


@contextmanager
def _device(link: NamespaceLink, package: Path, address: str) -> Iterator[Device]:
    token = str(package.with_suffix(".token"))
    module = [sys.executable, "-m", "benchmarks.device.lending_device", str(package), address, token]
    with _started([*link.inside(0, _DEVICE), *module]) as process:
        yield Device(process)


@contextmanager
def competing(link: NamespaceLink, count: int) -> Iterator[None]:
    """Run programs that compete with the device for its core during the block."""
    busy = [*link.inside(0, _DEVICE), sys.executable, "-c", "while True: pass"]
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(_started(busy))
        yield


@contextmanager
def _started(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _table(cases: Sequence[Case]) -> Table:
    title = "mean milliseconds of an inference on the device alone, with a helper, and at single cuts"
    table = Table(title=title, title_justify="left")
    for column in ("case", "competitors", "alone", "with a helper", "idle best", "oracle", "placement"):
        table.add_column(column, justify="left" if column in ("case", "placement") else "right")
    for case in cases:
        ways = (case.ways["here"], case.ways["lending"], case.ways["static"], case.oracle)
        table.add_row(case.name, str(case.competitors), *(f"{each:.1f}" for each in ways), case.reason)
    return table


if __name__ == "__main__":
    sys.exit(run("device.lending", TARGETS, measure, sys.argv[1:], add_options))
