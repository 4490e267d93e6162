"""Five devices with packages and data, and their runs, for the benchmarks of tuning with peers.

ResNet-8 (MLPerf Tiny's architecture) is trained briefly on images that no device has; from these early
weights it is ported to five goals, the packages of five devices. The devices share 5,000 images, divided at
random, or by a Dirichlet distribution (0.5) for each class. They tune with the client's own code, in LiteRT,
in two processes with one thread each; peers' weights pass through the files that devices exchange. Accuracy
is that of the package with the best weights, on 2,000 test images that are used for nothing else.

The sizes are limited by LiteRT's step, which takes 15 to 35 ms for these networks on a quiet core (batches of
32): a pass through 1,000 images takes about 0.7 s, a run about 20 passes, and there are ninety runs. Results
are kept in `--work DIR` and not computed again: all benchmarks share packages, and runs alone and with peers.
Short runs have separate directories there.
"""

import multiprocessing
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.harness.run import add_data_option, data_with
from benchmarks.tuning.packages import SHARES, make_packages, pretrained_probabilities
from benchmarks.tuning.run import CLASSES, NOISY, RANDOM, Plan, Published, Run, load_run, train
from mistify_server.tasks.sources import DataSource

TRAIN: Final = "cifar10/train.npz"
TEST: Final = "cifar10/test.npz"
RESNET8: Final = "mlperf_tiny/resnet8_cifar10.h5"

DEVICES: Final = len(SHARES)

#: Numbers of images: per device on average, in total for the early weights, and for tests.
IMAGES: Final = 1_000
EARLY_IMAGES: Final = 2_500
TEST_IMAGES: Final = 2_000

#: Divisions of the images, with the parameter of the Dirichlet distribution by which each class is divided.
#: In the last one, every device has all images.
EQUAL, SKEWED, POOLED = "random", "dirichlet", "pooled"
_CONCENTRATION: Final = 0.5
_LEAST_IMAGES: Final = 300

#: Images per device and passes in a short run.
_SHORT_IMAGES: Final = 100
_SHORT_PASSES: Final = 2

#: Passes of devices that are trained on random labels.
_RANDOM_PASSES: Final = 15


@dataclass(frozen=True)
class Lab:
    """The devices of one benchmark run.

    Attributes:
        work: Directory for all generated files.
        short: Whether to shorten runs.
        seed: Seed for all randomness.
    """

    work: Path
    short: bool
    seed: int

    def runs(self, plans: Sequence[Plan]) -> dict[str, Run]:
        """Return the runs of plans by name; earlier runs are reused."""
        plans = [replace(plan, seed=self.seed) for plan in plans]
        if self.short:
            plans = [replace(plan, most_passes=_SHORT_PASSES) for plan in plans]
        left = [plan for plan in plans if load_run(self.work, plan.name) is None]
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=spawned) as pool:
            for plan, run in zip(left, pool.map(partial(train, self.work), left), strict=True):
                print(
                    f"{plan.name}: {run.began:.1%} -> {run.accuracy:.1%}, {len(run.curve)} passes", flush=True
                )
        runs = {plan.name: load_run(self.work, plan.name) for plan in plans}
        return {name: run for name, run in runs.items() if run is not None}

    def each(self, plans: Sequence[Plan]) -> list[Run]:
        """Return the runs in the order of the plans."""
        runs = self.runs(plans)
        return [runs[plan.name] for plan in plans]


def alone(part: str) -> list[Plan]:
    """Return plans for step (i): every device tunes on its own images."""
    return [Plan(part, "alone", device) for device in range(DEVICES)]


def noisy(part: str, epsilon: int) -> list[Plan]:
    """Return plans for the publications of private devices."""
    return [Plan(part, f"noisy {epsilon}", device, data=NOISY, epsilon=epsilon) for device in range(DEVICES)]


def random_labels(part: str, devices: Sequence[int]) -> list[Plan]:
    """Return plans for the publications of hostile devices, trained on random labels."""
    return [
        Plan(part, RANDOM, device, data=RANDOM, most_passes=_RANDOM_PASSES, patience=_RANDOM_PASSES)
        for device in devices
    ]


def taught(part: str, kind: str, teachers: Sequence[Sequence[Published]], start: str = "alone") -> list[Plan]:
    """Return plans for step (iii): every device continues with these peers, from alone or another setting."""
    return [
        Plan(part, kind, device, tuple(teachers[device]), start=Plan(part, start, device).name)
        for device in range(DEVICES)
    ]


def peers_of(device: int, count: int, part: str, kind: str = "alone") -> list[Published]:
    """Return the next devices in a ring."""
    peers = [(device + step) % DEVICES for step in range(1, count + 1)]
    return [Published(Plan(part, kind, peer).name, peer) for peer in peers]


def add_options(parser: ArgumentParser) -> None:
    """Add `--data DIR` and `--work DIR`."""
    add_data_option(parser)
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep packages and runs here")


@contextmanager
def lab(options: Namespace, seed: int = 0, *, short: bool) -> Iterator[Lab]:
    """Prepare the devices, and yield them.

    Args:
        options: The options of `add_options`.
        seed: Seed for the division of the images, the early weights and the order of the examples.
        short: Shorten runs and use few images, so that accuracies are meaningless.

    Raises:
        MissingDataError: The data are missing.
    """
    data = data_with((TRAIN, TEST, RESNET8), options)
    with TemporaryDirectory() as scratch:
        work = (options.work or Path(scratch)) / f"{'short-' if short else ''}seed-{seed}"
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "packages").is_dir():
            _prepare(data, work, Path(scratch), _SHORT_IMAGES if short else IMAGES, seed)
        yield Lab(work, short, seed)


def _prepare(data: Path, work: Path, scratch: Path, images: int, seed: int) -> None:
    """Divide the images, make the packages, and compute the ideal teacher's probabilities."""
    with np.load(data / TRAIN) as train_file, np.load(data / TEST) as test_file:
        x, y, test_x, test_y = train_file["x"], train_file["y"], test_file["x"], test_file["y"]
    order = np.random.default_rng(seed).permutation(len(y))
    early, used = order[:EARLY_IMAGES], order[EARLY_IMAGES : EARLY_IMAGES + DEVICES * images]
    x_used, y_used = x[used], y[used]
    count = min(TEST_IMAGES, 2 * images)
    np.savez(
        work / "images.npz", train_x=x_used, train_y=y_used, test_x=test_x[:count], test_y=test_y[:count]
    )
    _save(work / f"{EQUAL}.npz", np.array_split(np.arange(len(used)), DEVICES))
    _save(work / f"{POOLED}.npz", [np.arange(len(used))] * DEVICES)
    _save(work / f"{SKEWED}.npz", skewed(y_used, min(_LEAST_IMAGES, images // 2)))
    np.save(work / "ideal.npy", pretrained_probabilities(data / RESNET8, x_used.astype(np.float32)))
    np.savez(scratch / "early.npz", x=x[early], y=y[early])
    np.savez(scratch / "test.npz", x=test_x[-500:], y=test_y[-500:])
    source = DataSource(train=str(scratch / "early.npz"), test=str(scratch / "test.npz"))
    packages = work / "packages.part"
    shutil.rmtree(packages, ignore_errors=True)
    packages.mkdir()
    make_packages(source, scratch, packages, seed)
    packages.rename(work / "packages")


def skewed(classes: npt.NDArray[np.int64], least: int) -> list[npt.NDArray[np.int64]]:
    """Return rows for each device: class shares from a Dirichlet distribution, and at least `least` rows."""
    for seed in range(10_000):
        rng = np.random.default_rng(seed)
        parts: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(DEVICES)]
        for of in range(CLASSES):
            rows = rng.permutation(np.flatnonzero(classes == of))
            cuts = np.cumsum(rng.dirichlet(np.full(DEVICES, _CONCENTRATION)))[:-1] * len(rows)
            for part, rows_of_class in zip(parts, np.split(rows, cuts.astype(int)), strict=True):
                part.append(rows_of_class)
        drawn = [np.concatenate(part) for part in parts]
        if min(map(len, drawn)) >= least:
            return drawn
    raise ValueError(f"no division of {len(classes)} images leaves {least} to every device")


def _save(path: Path, parts: Sequence[npt.NDArray[np.int64]]) -> None:
    """Save the rows of each device, by its number."""
    np.savez(path, **{str(device): rows for device, rows in enumerate(parts)})  # type: ignore[arg-type]
