"""Networks that are trained from scratch on CIFAR-10's training file, and may be kept for the next run."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import keras
from rich.console import Console
from rich.table import Table

from benchmarks.elastic.networks import NETWORKS, resnet14
from benchmarks.harness.run import SEEDS, Figures, add_data_option, add_seeds_option, data_with, seeds_of
from benchmarks.harness.worker import TEST, TRAIN, Porting
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify_server.tasks.sources import DataSource, ModelSource

#: Augmentation for training from scratch.
_CHANGES: Final = Augmentation(flip=True, crop=4)

_Run = TypeVar("_Run")


def trained_porting(
    network: keras.Model, data: Path, work: Path, *, steps: int, seed: int, kept: Path | None = None
) -> Porting:
    """Return the porting of a network after some training steps.

    Args:
        data: The directory of the data.
        work: An empty directory for its files, which has to remain as long as the porting is in use.
        kept: The directory in which trained networks are kept and looked for; None to forget them.
    """
    files = DataSource(
        train=str(data / TRAIN), test=str(data / TEST), settings=DataSettings(augment=_CHANGES)
    )
    source = (kept or work).absolute() / f"{network.name}-{steps}-{seed}.keras"
    settings = {"source_steps": steps, "learning_rate": 0.05, "seed": seed}
    if not source.exists():
        network.save(work / "network.keras")
        untrained = ModelSource(path=str(work / "network.keras"))
        source.parent.mkdir(parents=True, exist_ok=True)
        Porting(untrained, files, work / "training", settings).source().save(source)
    return Porting(ModelSource(path=str(source)), files, work / "trained", {**settings, "source_steps": 0})


def measure_networks(
    options: Namespace,
    measured: Callable[[keras.Model, Path, int], _Run],
    tables: Callable[[str, _Run], Iterable[Table]],
    figures_of: Callable[[Sequence[_Run]], Mapping[str, float]],
) -> Figures:
    """Measure every network with each seed, and print the tables; `--quick` takes a small ResNet.

    Args:
        measured: Returns the results with an untrained network, the directory of the data and a seed.
        tables: Returns the tables of these results, with a title.
        figures_of: Returns medians over the seeds.

    Returns:
        The medians, with the name of the network before that of the figure.
    """
    data = data_with((TRAIN, TEST), options)
    networks: Mapping[str, Callable[[], keras.Model]] = {"resnet14": resnet14} if options.quick else NETWORKS
    figures: dict[str, float] = {}
    for network, made in networks.items():
        if options.network in (None, network):
            runs = []
            for seed in seeds_of(options):
                runs.append(measured(made(), data, seed))
                for table in tables(f"{network}, seed {seed}", runs[-1]):
                    Console(width=110).print(table)
            figures |= {f"{network}_{name}": figure for name, figure in figures_of(runs).items()}
    return figures


def add_options(parser: ArgumentParser) -> None:
    """Add the options of a benchmark that trains networks: data, network, seeds and checkpoints."""
    add_data_option(parser)
    parser.add_argument("--network", choices=[*NETWORKS], help="use only this network")
    add_seeds_option(parser, default=SEEDS[:1])
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="keep the trained networks here")
