"""Porting of a transformer for voice commands: `python -m benchmarks.porting.snips --data DIR`.

DIR has `snips/{train,test}/{seq.in,seq.out,label}`: the words of an utterance, their slots and its intent,
one utterance per line (Coucke et al., 2018). A small encoder learns both from scratch, and is ported to goals
between twice and a quarter of its multiply-adds. An utterance is correct if its intent and all its slots are.
Everything is repeated with several seeds (quick run: one); the loss is a median over the seeds.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import (
    Figures,
    Target,
    add_data_option,
    add_seeds_option,
    data_with,
    run,
    seeds_of,
)
from benchmarks.harness.worker import Porting, Reached
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify_server.tasks.sources import DataSource, ModelSource

SHARES: Final = (2.0, 1.0, 0.5, 0.25)
TARGETS: Final[dict[str, Target]] = {
    "loss_at_half": {
        "what": "accuracy loss at half of the multiply-adds against a source trained as long, points",
        "max": 1.5,
    }
}

PARTS: Final = ("train", "test")
FILES: Final = tuple(f"snips/{part}/{kind}" for part in PARTS for kind in ("seq.in", "seq.out", "label"))

#: Maximum number of words read per utterance; the longest has 35.
LENGTH: Final = 36
PADDING, UNKNOWN = 0, 1

#: Minimum count of a word in the training data; rarer words are unknown.
_LEAST_COUNT: Final = 2
_IGNORED: Final = -1

_WIDTH, _HEADS, _LAYERS, _DROPOUT = 128, 4, 2, 0.3
METRIC: Final = Metric.EXACT_MATCH
MODEL: Final = "snips.keras"
SETTINGS: Final[dict[str, object]] = {"optimizer": "adam", "learning_rate": 1e-3, "source_steps": 3_000}
_QUICK_SETTINGS: Final[dict[str, object]] = {"source_steps": 300}

#: The sum of the defaults of `adapt_steps` and `tune_steps`.
_STEPS, _QUICK_STEPS = 1_000, 60


@dataclass(frozen=True)
class Utterances:
    """Words, their slots, and the intent of each utterance."""

    words: Sequence[Sequence[str]]
    slots: Sequence[Sequence[str]]
    intents: Sequence[str]


class Ported(NamedTuple):
    """The results of one seed: accuracies of the source in percent, and the goals by share.

    Attributes:
        trained_as_long: Accuracy of the source after additional training for the steps of all goals down to
            the half.
    """

    source: float
    trained_as_long: float
    goals: Mapping[float, Reached]


def measure(options: Namespace) -> Figures:
    """Train, port and compare; return the figures."""
    data = data_with(FILES, options)
    runs = []
    for seed in seeds_of(options):
        with TemporaryDirectory() as directory:
            runs.append(_ported(prepare(data, Path(directory), seed), Path(directory), seed, options.quick))
        Console().print(_table(seed, runs[-1]))
    return figures_of(runs)


def figures_of(runs: Sequence[Ported]) -> dict[str, float]:
    """Return medians over the seeds: exact matches in percent, and the loss at half of the multiply-adds."""
    each = {
        f"exact_match_at_{share:g}": median(run.goals[share].accuracy for run in runs) for share in SHARES
    }
    lost = median(run.trained_as_long - run.goals[0.5].accuracy for run in runs)
    return {
        "exact_match": median(run.source for run in runs),
        "exact_match_trained_as_long": median(run.trained_as_long for run in runs),
        **each,
        "loss_at_half": lost,
    }


def _ported(sources: tuple[ModelSource, DataSource], directory: Path, seed: int, quick: bool) -> Ported:
    settings = SETTINGS | {"seed": seed} | (_QUICK_SETTINGS if quick else {})
    steps = _QUICK_STEPS if quick else _STEPS
    porting = Porting(*sources, directory / "goals", settings)
    goals = porting.collective(dict.fromkeys(SHARES, steps))
    more = steps * sum(share >= 0.5 for share in SHARES)
    longer = settings | {"source_steps": int(str(settings["source_steps"])) + more}
    return Ported(porting.accuracy, Porting(*sources, directory / "longer", longer).accuracy, goals)


def prepare(data: Path, directory: Path, seed: int) -> tuple[ModelSource, DataSource]:
    """Write the untrained network and the data as arrays; return the sources of both."""
    parts = {part: read(data / "snips" / part) for part in PARTS}
    counts = Counter(word for words in parts["train"].words for word in words)
    known = sorted(word for word, count in counts.items() if count >= _LEAST_COUNT)
    vocabulary = {word: number for number, word in enumerate(known, start=UNKNOWN + 1)}
    slots = _numbers(slot for part in parts.values() for row in part.slots for slot in row)
    intents = _numbers(intent for part in parts.values() for intent in part.intents)
    files: dict[str, Any] = {}
    for part, utterances in parts.items():
        files[part] = str(directory / f"{part}.npz")
        np.savez(
            files[part],
            words=_padded(utterances.words, vocabulary, UNKNOWN, PADDING),
            slots=_padded(utterances.slots, slots, _IGNORED, _IGNORED),
            intent=np.asarray([intents[intent] for intent in utterances.intents]),
        )
    path = directory / MODEL
    encoder(len(vocabulary) + 2, len(slots), len(intents), seed).save(path)
    settings = DataSettings(metric=METRIC)
    return ModelSource(path=str(path)), DataSource(**files, settings=settings)


def read(directory: Path) -> Utterances:
    """Return one part of the data."""
    words, slots, intents = (
        (directory / name).read_text(encoding="utf-8").splitlines() for name in ("seq.in", "seq.out", "label")
    )
    return Utterances([line.split() for line in words], [line.split() for line in slots], intents)


def encoder(words: int, slots: int, intents: int, seed: int) -> keras.Model:
    """Return a network with attention over words that predicts the intent and a slot for each word."""
    keras.utils.set_random_seed(seed)
    layers, ops = keras.layers, keras.ops
    inputs = keras.Input((LENGTH,), dtype="int32", name="words")
    there = ops.not_equal(inputs, PADDING)
    places = ops.cumsum(ops.ones_like(inputs), axis=1) - 1
    x = layers.Add()(
        [
            layers.Embedding(words, _WIDTH, name="word")(inputs),
            layers.Embedding(LENGTH, _WIDTH, name="place")(places),
        ]
    )
    x = layers.Dropout(_DROPOUT)(layers.LayerNormalization()(x))
    for number in range(_LAYERS):
        x = _block(x, ops.expand_dims(there, 1), f"block_{number}")
    pooled = layers.GlobalAveragePooling1D()(
        layers.Multiply()([x, ops.expand_dims(ops.cast(there, "float32"), -1)])
    )
    outputs = [
        layers.Dense(slots, "softmax", name="slots")(x),
        layers.Dense(intents, "softmax", name="intent")(pooled),
    ]
    return keras.Model(inputs, outputs, name="snips")


def _block(x: Any, there: Any, name: str) -> Any:
    """Return attention and two dense layers, each with normalised inputs and a residual connection."""
    layers = keras.layers
    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS, name=f"{name}_attention")(
        y, y, attention_mask=there
    )
    x = layers.Add()([x, layers.Dropout(_DROPOUT)(y)])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(2 * _WIDTH, "gelu", name=f"{name}_wide")(y)
    y = layers.Dense(_WIDTH, name=f"{name}_back")(y)
    return layers.Add()([x, layers.Dropout(_DROPOUT)(y)])


def _numbers(names: Any) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(set(names)))}


def _padded(
    rows: Sequence[Sequence[str]], numbers: Mapping[str, int], unknown: int, padding: int
) -> npt.NDArray[np.int32]:
    array = np.full((len(rows), LENGTH), padding, np.int32)
    for row, items in zip(array, rows, strict=True):
        row[: len(items)] = [numbers.get(item, unknown) for item in items[:LENGTH]]
    return array


def _table(seed: int, ported: Ported) -> Table:
    title = f"SNIPS, exact match with seed {seed}; source: {ported.source:.1f} %"
    table = Table(title=title, title_justify="left")
    for column in ("share", "exact match", "steps", "seconds"):
        table.add_column(column, justify="right")
    for goal in ported.goals.values():
        table.add_row(f"{goal.share:.3f}", f"{goal.accuracy:.1f}", f"{goal.steps:,}", f"{goal.seconds:.1f}")
    return table


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data_option(parser)
    add_seeds_option(parser)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and return the exit code."""
    return run("porting.snips", TARGETS, measure, argv, add_options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
