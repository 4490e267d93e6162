"""Seconds of the commands `mistify plan` and `mistify port`, compared with those of another checkout.

`python -m benchmarks.porting.commands [--data DIR] [--against DIR] [--seeds N ...] [--quick] [--json FILE]`

The commands run one after another, in turn with those of another checkout (`--against DIR`, of 5daba0d1),
each with a store and a cache of its own. Seconds are those of the whole command, on all processors.

- `plan`: the first plan for a small network that was trained for this benchmark, and one after it;
- `mistake`: `mistify plan` of a config with a mistake;
- `digits`, `resnet8`: `mistify port` of `configs/digits.json` and `configs/resnet8_cifar10.json`, once for
  each seed; accuracies are means over the goals, in percent. The latter needs DIR, with `cifar10/train.npz`,
  `cifar10/test.npz` (arrays x, uint8, and y) and `mlperf_tiny/resnet8_cifar10.h5`.

`--quick` only plans.
"""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.harness.checkouts import HERE, add_against_option, python_of
from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)

#: The commit that the targets compare with.
BEFORE: Final = "5daba0d1"

TARGETS: Final[dict[str, Target]] = {
    "plan_share": {"what": f"first plan of a small network, relative to {BEFORE}", "max": 0.5},
    "mistake_seconds": {"what": "plan of a config with a mistake, seconds", "max": 1.5},
    "digits_share": {
        "what": f"port of the digits, relative to {BEFORE}", "max": 0.6, "full_run_only": True
    },
    "digits_points": {
        "what": f"digits: mean accuracy beyond that of {BEFORE}, points", "min": 0.0, "full_run_only": True
    },
    "resnet8_share": {
        "what": f"port of the ResNet-8, relative to {BEFORE}", "max": 0.6, "full_run_only": True
    },
    "resnet8_points": {
        "what": f"ResNet-8: mean accuracy beyond that of {BEFORE}, points", "min": 0.0, "full_run_only": True
    },
}  # fmt: skip

_PLANS: Final = 5
_CONFIGS: Final = {"digits": "digits.json", "resnet8": "resnet8_cifar10.json"}

#: The console script, which a checkout need not have installed.
_MISTIFY: Final = "import sys; from mistify_client.cli.main import main; sys.exit(main())"

#: Trains a network in a separate process, so that this one needs no TensorFlow.
_TRAIN: Final = """
import sys, keras, numpy as np
from sklearn.datasets import load_digits
digits, (model, *parts) = load_digits(), sys.argv[1:]
images, labels = digits.images[..., None].astype(np.float32), digits.target
for path, part in zip(parts, (slice(1400), slice(1400, None))):
    np.savez(path, x=images[part], y=labels[part])
layers = keras.layers
inputs = keras.Input((8, 8, 1), name="image")
x = layers.Rescaling(1 / 16)(inputs)
for width in (32, 32, 64):
    x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
x = layers.GlobalAveragePooling2D()(x)
network = keras.Model(inputs, layers.Dense(10, activation="softmax", name="digit")(x))
network.compile("adam", "sparse_categorical_crossentropy")
network.fit(images[:1400], labels[:1400], batch_size=32, epochs=20, verbose=0)
network.save(model)
"""


class _Ported(NamedTuple):
    """The seconds of a command, and the mean accuracy of its goals in percent."""

    seconds: float
    accuracy: float


def measure(options: Namespace) -> Figures:
    """Run all commands, print the seconds and return the figures."""
    sides = {"this": HERE}
    if options.against:
        sides["other"] = options.against.resolve()
    with TemporaryDirectory() as directory:
        seconds, figures = _planned(sides, Path(directory)), dict[str, float]()
    for name, config in () if options.quick else _CONFIGS.items():
        batch = json.loads((HERE / "configs" / config).read_text())
        files = {file for goal in batch for file in _files(goal)}
        data = data_with(sorted(files), options) if files else HERE
        ported: dict[str, list[_Ported]] = {side: [] for side in sides}
        for seed in seeds_of(options):
            for side, checkout in sides.items():
                ported[side].append(_port(checkout, batch, data, seed))
        seconds[name] = {side: [each.seconds for each in of_side] for side, of_side in ported.items()}
        accuracy = {side: fmean(each.accuracy for each in of_side) for side, of_side in ported.items()}
        figures[f"{name}_accuracy"] = accuracy["this"]
        if options.against:
            figures[f"{name}_points"] = accuracy["this"] - accuracy["other"]
    figures |= {f"{name}_seconds": median(of["this"]) for name, of in seconds.items()}
    if options.against:
        figures |= {f"{name}_share": _share(of["this"], of["other"]) for name, of in seconds.items()}
    Console().print(_table(seconds, sides))
    return figures


def add_options(parser: ArgumentParser) -> None:
    """Add the options for data, seeds and the other checkout."""
    add_data_option(parser)
    add_seeds_option(parser)
    add_against_option(parser, BEFORE)


def _planned(sides: Mapping[str, Path], directory: Path) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of plans, by kind and side."""
    names = ("own.keras", "train.npz", "test.npz")
    subprocess.run([sys.executable, "-c", _TRAIN, *(directory / name for name in names)], check=True)
    goal = {
        "id": "half",
        "model": "own.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "algorithm": {"name": "auto"},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    right, wrong = directory / "right.json", directory / "wrong.json"
    right.write_text(json.dumps([goal]))
    wrong.write_text(json.dumps([{**goal, "adaptation_goal": {"FLOPS": "0.5x"}}]))
    seconds: dict[str, dict[str, list[float]]] = {
        name: {side: [] for side in sides} for name in ("plan", "known_plan", "mistake")
    }
    for number in range(_PLANS):
        for side, checkout in sides.items():
            cache = directory / f"cache-{side}-{number}"
            for name, config in (("plan", right), ("known_plan", right), ("mistake", wrong)):
                taken, code = _run(checkout, cache, "plan", config)
                if (code == 0) != (config is right):
                    raise RuntimeError(f"mistify plan {config.name} of {checkout} ended with {code}")
                seconds[name][side].append(taken)
    return seconds


def _files(goal: Mapping[str, Any]) -> list[str]:
    """Return the files of a goal; what is built in has none."""
    named = [goal["model"], *goal["dataset"].values()]
    return [name for name in named if Path(name).suffix]


def _port(checkout: Path, batch: Iterable[Mapping[str, Any]], data: Path, seed: int) -> _Ported:
    """Port a batch with a seed."""
    with TemporaryDirectory() as directory:
        config, out = Path(directory) / "goals.json", Path(directory) / "out"
        goals = [{**goal, "algorithm": {"config": {}, **goal["algorithm"]}} for goal in batch]
        for goal in goals:
            goal["algorithm"]["config"] = {**goal["algorithm"]["config"], "seed": seed}
        config.write_text(json.dumps(goals))
        cache = Path(directory) / "cache"
        seconds, _ = _run(checkout, cache, "port", config, "--out", out, "--data-root", data)
        report = json.loads((out / "report.json").read_text())
    return _Ported(seconds, 100 * fmean(goal["achieved"]["accuracy"] for goal in report["goals"]))


def _run(checkout: Path, cache: Path, *arguments: str | Path) -> tuple[float, int]:
    """Run `mistify` of a checkout with a cache of its own; return seconds and exit code."""
    command = [python_of(checkout), "-c", _MISTIFY, *arguments]
    started = perf_counter()
    ended = subprocess.run(
        command,
        check=False,
        cwd=checkout,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return perf_counter() - started, ended.returncode


def _share(this: Iterable[float], other: Iterable[float]) -> float:
    return median(here / there for here, there in zip(this, other, strict=True))


def _table(seconds: Mapping[str, Mapping[str, list[float]]], sides: Iterable[str]) -> Table:
    table = Table("command", *(f"{side}, s" for side in sides), title="seconds of commands, medians")
    for name, of in seconds.items():
        table.add_row(name, *(f"{median(of[side]):.1f}" for side in sides))
    return table


if __name__ == "__main__":
    sys.exit(run("porting.commands", TARGETS, measure, sys.argv[1:], add_options))
