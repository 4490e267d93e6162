"""A network trained in PyTorch, ported from its ONNX file, and from Keras with the same weights.

`python -m benchmarks.porting.pytorch_source --data DIR [--seeds N ...] [--quick] [--json FILE]`

A residual network of 4.6 million multiply-adds is trained on CIFAR-10 in PyTorch. Its ONNX file, in which the
exporter has merged the batch norms with the convolutions, and the same network written in Keras, with batch
norms, are cut to half of the multiply-adds with the same settings and the same training steps. Accuracies are
those of the test file, means over the seeds. A seed takes 4 minutes on one core.

DIR has `cifar10/train.npz` and `cifar10/test.npz` (arrays x, uint8, and y). PyTorch is in the extra `peers`.
`--quick` trains one seed briefly, on both sides.
"""

import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    MissingDataError,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run_with_one_thread,
    seeds_of,
)
from benchmarks.harness.worker import TEST, TRAIN, Porting, Reached
from executors.training.evaluation import Evaluation
from mistify_server.tasks.sources import DataSource, ModelSource

SHARE: Final = 0.5
ONNX, KERAS = ("PyTorch", "Keras")

_EPOCHS: Final = 3
_STEPS: Final = 600
_QUICK_STEPS: Final = 60

TARGETS: Final[dict[str, Target]] = {
    "difference": {"what": "difference of the outputs of both sources, relative to the largest", "max": 1e-4},
    "loss": {
        "what": "accuracy at half below that of the port from Keras, points",
        "max": 0.5,
        "full_run_only": True,
    },
}


def measure(options: Namespace) -> Figures:
    """Train and port with each seed, and print the table."""
    data = data_with((TRAIN, TEST), options)
    if find_spec("torch") is None or find_spec("onnx") is None:
        raise MissingDataError("PyTorch or onnx is not installed: pip install -e '.[server,onnx,peers]'")
    of_seeds = [_ported(data, seed, options.quick) for seed in seeds_of(options)]
    figures = {name: mean(of[name] for of in of_seeds) for name in of_seeds[0]}
    figures["difference"] = max(of["difference"] for of in of_seeds)
    if not options.quick:
        figures["loss"] = figures["keras"] - figures["pytorch"]
    return figures


def _ported(data: Path, seed: int, quick: bool) -> dict[str, float]:
    from benchmarks.porting import torch_cifar, torch_resnet8  # noqa: PLC0415 (an optional dependency)

    files = DataSource(train=str(data / TRAIN), test=str(data / TEST))
    settings: dict[str, object] = {"seed": seed, "source_steps": 0}
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        network = torch_cifar.trained(data / TRAIN, 1 if quick else _EPOCHS, seed)
        torch_cifar.export(network, directory / "net.onnx")
        torch_cifar.in_keras(network).save(directory / "net.keras")
        steps = _QUICK_STEPS if quick else _STEPS
        reached, outputs = dict[str, Reached](), []
        for side, name in ((ONNX, "net.onnx"), (KERAS, "net.keras")):
            ported = Porting(ModelSource(path=str(directory / name)), files, directory / side, settings)
            test = ported.test()
            outputs.append(next(iter(Evaluation(ported.source()).outputs(test.inputs).values())))
            reached[side] = ported.case(SHARE, steps)
        accuracy = 100 * torch_resnet8.accuracy(network, test)
    Console().print(_table(seed, accuracy, reached))
    return {
        "difference": float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[1]).max()),
        "source": accuracy,
        "pytorch": reached[ONNX].accuracy,
        "keras": reached[KERAS].accuracy,
    }


def _table(seed: int, accuracy: float, reached: dict[str, Reached]) -> Table:
    title = f"Seed {seed}: accuracy at {SHARE}x; the source has {accuracy:.2f} %"
    table = Table(title=title, title_justify="left")
    for column in ("ported from", "accuracy, %", "share reached", "steps", "seconds"):
        table.add_column(column, justify="left" if column == "ported from" else "right")
    for side, each in reached.items():
        table.add_row(
            side, f"{each.accuracy:.2f}", f"{each.share:.4f}", f"{each.steps:,}", f"{each.seconds:.0f}"
        )
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


if __name__ == "__main__":
    sys.exit(run_with_one_thread("porting.pytorch_source", TARGETS, measure, sys.argv[1:], add_options))
