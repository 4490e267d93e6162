"""Networks that are trained from scratch on CIFAR-10's training file, and may be kept for the next run."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Final

import keras

from benchmarks.elastic.networks import NETWORKS
from benchmarks.harness.run import SEEDS, add_data_option, add_seeds_option
from benchmarks.harness.worker import TEST, TRAIN, Porting
from mistify.config.data.dataset import Augmentation, DataSettings
from mistify_server.tasks.sources import DataSource, ModelSource

#: Augmentation for training from scratch.
_CHANGES: Final = Augmentation(flip=True, crop=4)


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


def add_options(parser: ArgumentParser) -> None:
    """Add the options of a benchmark that trains networks: data, network, seeds and checkpoints."""
    add_data_option(parser)
    parser.add_argument("--network", choices=[*NETWORKS], help="use only this network")
    add_seeds_option(parser, default=SEEDS[:1])
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="keep the trained networks here")
