"""Adaptation at run time without labels, against the shipped network, LeanTTA's rule and TENT.

`python -m benchmarks.adaptation.test_time [--quick] [--json FILE] [--data DIR] [--network NAME]
[--seeds N ...]`

A package is shown a stream of images through each of twelve corruptions, 16 images a second, while the loop
of the monitor adapts it. Streamed accuracies are those of the answers at the time; settled ones are those of
the installed version on other images with the same corruption. Then the corruption ends, and the seconds
until the shipped network is back count. Streams of clean images, sorted by class, and of one class alone must
not be harmed.

LeanTTA, TENT and entropy alone answer the streams of the first seed in TensorFlow, each with the setting that
is best on the middle severity of each kind. The MobileNet is trained once for all seeds, ResNet-8 for each.
`--quick` has one seed, the digits alone and short streams.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.adaptation.corruptions import Corruption, corruptions
from benchmarks.adaptation.packages import RATE, Device, accuracy, memory_ratio, write_package
from benchmarks.adaptation.rivals import SETTINGS, Rival
from benchmarks.adaptation.subjects import SUBJECTS, Images, Labels, Subject
from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run_with_one_thread,
    seeds_of,
)
from benchmarks.harness.worker import FILES
from mistify_client.adapting.installing import remove_adaptation
from mistify_client.adapting.storage import AdaptationStorage

TARGETS: Final[dict[str, Target]] = {
    f"{name}_{figure}": {"what": f"{name}: {what}", bound: value, "full_run_only": name != "digits"}  # type: ignore[misc]
    for name in SUBJECTS
    for figure, what, bound, value in (
        ("gain", "settled accuracy over the shipped one, mean of 12 corruptions, points", "min", 14.0)
        if name == "resnet8"
        else ("gain", "settled accuracy over the shipped one, mean of 12 corruptions, points", "min", 10.0),
        ("clean", "clean images after a clean stream, points", "min", -0.3),
        ("sorted", "clean stream sorted by class, points", "min", -1.0),
        ("one_class", "installations under streams of one class", "max", 0.0),
        ("restored", "longest time until the shipped network is back, s", "max", 60.0),
        ("inferences", "inferences for each example, besides the app's", "max", 2.0),
        ("memory", "memory of an observed inference over that of the network", "max", 1.3),
    )
}

#: Images of a stream, which is longer than the pause between two installations, and of one of a single class;
#: clean ones after a corruption, at most.
_STREAM: Final = 1280
_OF_CLASS: Final = 640
_AFTER: Final = 1600
_QUICK_STREAM: Final = 1120
_RIVALS_STREAM: Final = 640

_EPOCHS: Final = 3

#: Figures of one corruption, and of clean streams.
Measured = dict[str, float]


def measure(options: Namespace) -> Figures:
    """Measure each network with each seed, print the tables and return means over the seeds."""
    names = ["digits"] if options.quick else [options.network] if options.network else [*SUBJECTS]
    data = None if names == ["digits"] else data_with(FILES, options)
    values_by_figure: dict[str, list[float]] = {}
    for seed in seeds_of(options):
        for name in names:
            subject = SUBJECTS[name](data, seed, epochs=_EPOCHS)
            figures = measured_subject(subject, seed, options.quick)
            if seed == seeds_of(options)[0]:
                figures |= rivals(subject, seed, options.quick)
            for figure, value in figures.items():
                values_by_figure.setdefault(f"{name}_{figure}", []).append(value)
    return {name: _over_seeds(name, values) for name, values in values_by_figure.items()}


def measured_subject(subject: Subject, seed: int, quick: bool) -> Measured:
    """Measure one network, and print its table."""
    count = _QUICK_STREAM if quick else _STREAM
    order = np.random.default_rng(seed).integers(0, len(subject.streamed[0]), count)
    with TemporaryDirectory() as directory:
        package = write_package(subject, Path(directory) / "package")
        rows = {
            name: corrupted(subject, package, corrupt, order, seed)
            for name, corrupt in corruptions(subject.largest).items()
        }
        figures = {
            **clean_streams(subject, package, order, quick),
            "memory": memory_ratio(package),
            "gain": mean(row["settled"] - row["shipped"] for row in rows.values()),
            "shipped": mean(row["shipped"] for row in rows.values()),
            "settled": mean(row["settled"] for row in rows.values()),
            "shipped_streamed": mean(row["shipped_streamed"] for row in rows.values()),
            "streamed": mean(row["streamed"] for row in rows.values()),
            "restored": max(row["restored"] for row in rows.values()),
            "inferences": max(row["inferences"] for row in rows.values()),
        }
    Console().print(_table(f"{subject.name}, seed {seed}", rows))
    Console().print({name: float(f"{value:.4g}") for name, value in sorted(figures.items())})
    return figures


def corrupted(subject: Subject, package: Path, corrupt: Corruption, order: Labels, seed: int) -> Measured:
    """Show a stream through a corruption, and then clean images."""
    rng = np.random.default_rng(seed)
    (images, labels), (others, answers) = subject.streamed, subject.held_out
    device = _fresh(package)
    seen, unseen = corrupt(images, rng)[order], corrupt(others, rng)
    row = {
        "shipped": accuracy(device.answers(unseen), answers),
        "shipped_streamed": accuracy(device.answers(seen), labels[order]),
        "streamed": accuracy(device.stream(seen), labels[order]),
        "settled": accuracy(device.answers(unseen), answers),
        "inferences": device.inferences,
        "installed": device.events.count("installed"),
    }
    started = device.seconds
    while device.adapted and device.seconds - started < _AFTER / RATE:
        device.stream(images[rng.integers(0, len(images), 32)])
    row["restored"] = device.seconds - started
    device.close()
    return row


def clean_streams(subject: Subject, package: Path, order: Labels, quick: bool) -> Measured:
    """Show clean images: at random, sorted by class, and of each class alone."""
    (images, labels), (others, answers) = subject.streamed, subject.held_out
    device = _fresh(package)
    shipped = accuracy(device.answers(others), answers)
    device.stream(images[order])
    clean = accuracy(device.answers(others), answers) - shipped
    device.close()
    device = _fresh(package)
    by_class = order[np.argsort(labels[order], kind="stable")]
    before = accuracy(device.answers(images[by_class]), labels[by_class])
    difference = accuracy(device.stream(images[by_class]), labels[by_class]) - before
    device.close()
    installed = 0
    for number in range(2 if quick else 10):
        device = _fresh(package)
        device.stream(np.resize(images[labels == number], (_OF_CLASS, *images.shape[1:])))
        installed += device.events.count("installed")
        device.close()
    return {"clean": clean, "sorted": difference, "one_class": float(installed), "shipped_clean": shipped}


def rivals(subject: Subject, seed: int, quick: bool) -> Measured:
    """Return the accuracies of other methods on the streams, each with its best setting."""
    order = np.random.default_rng(seed).integers(0, len(subject.streamed[0]), _RIVALS_STREAM)
    images, labels = subject.streamed[0][order], subject.streamed[1][order]
    by_class = np.argsort(labels, kind="stable")
    streams = {
        name: corrupt(images, np.random.default_rng(seed))
        for name, corrupt in corruptions(subject.largest).items()
    }
    middle = [stream for name, stream in streams.items() if name.endswith("2")]

    def score(method: str, setting: float, streams: Iterable[Images]) -> float:
        rival = Rival(subject.model, method, setting)
        return mean(accuracy(rival.reset().answers(stream), labels) for stream in streams)

    clean = accuracy(Rival(subject.model, "entropy", 0.0).answers(images), labels)
    figures: Measured = {}
    for method, settings in SETTINGS.items():
        tried = settings[1:2] if quick else settings
        best = max(tried, key=partial(score, method, streams=middle)) if len(tried) > 1 else tried[0]
        ordered = Rival(subject.model, method, best).answers(images[by_class])
        figures |= {
            f"{method}_streamed": score(method, best, streams.values()),
            f"{method}_setting": best,
            f"{method}_sorted": accuracy(ordered, labels[by_class]) - clean,
        }
    Console().print({name: float(f"{value:.4g}") for name, value in figures.items()})
    return figures


def _fresh(package: Path) -> Device:
    """Return a device with the shipped package, and without statistics of before."""
    AdaptationStorage(package).forget()
    remove_adaptation(package)
    return Device(package)


def _over_seeds(name: str, values: Sequence[float]) -> float:
    """Return the worst of what has to hold for each seed, and the mean of everything else."""
    worst = ("_one_class", "_restored", "_inferences", "_memory")
    return max(values) if name.endswith(worst) else mean(values)


def _table(title: str, rows: Mapping[str, Measured]) -> Table:
    table = Table(title=title, title_justify="left")
    columns = ("shipped", "settled", "shipped_streamed", "streamed", "installed", "restored", "inferences")
    for column in ("corruption", *columns):
        table.add_column(column.replace("_", " "), justify="left" if column == "corruption" else "right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[column]:.1f}" for column in columns))
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    parser.add_argument("--network", choices=[*SUBJECTS], help="one network alone")
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run_with_one_thread("adaptation.test_time", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
