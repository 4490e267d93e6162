"""The files of a package by which devices adapt it to their data without labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import keras
import numpy as np

from executors.data import Dataset
from executors.outputs.objectives import Binary, Categorical, OutputObjective
from executors.structure.signature import output_names
from mistify.adaptation.observing import folded_norms, observed_networks
from mistify.package.adaptation import (
    ADAPTATION,
    ARRAYS,
    STATISTICS,
    AdaptationStore,
    FoldedNorm,
    written_statistics,
)
from mistify_server.worker.packaging.adaptation.calibration import (
    LEAST_EXAMPLES,
    single_class_streams,
    usual_moves,
)
from mistify_server.worker.packaging.adaptation.norms import LocatedNorm, located_norms
from mistify_server.worker.packaging.conversion.representative import typed
from mistify_server.worker.packaging.conversion.trainable import kind_of
from mistify_server.worker.packaging.tflite.isolation import in_litert

#: Moves before they are measured.
_UNMEASURED: Final = 1.0


@dataclass(frozen=True)
class AdaptationFiles:
    """The files by name, or the reason why a package has none.

    Attributes:
        files: Name -> content; none with a reason.
        note: The reason; empty otherwise.
    """

    files: Mapping[str, bytes]
    note: str = ""


class _NotAdaptableError(Exception):
    """The network cannot be adapted to data without labels; the message says why."""


def adaptation_files(
    models: Sequence[keras.Model],
    network: bytes,
    objectives: Mapping[str, OutputObjective],
    labelled: Sequence[Dataset],
) -> AdaptationFiles:
    """Return the files that describe the folded batch norms of a package.

    Args:
        models: The models of the network, with batch norms: one, or those of its branches.
        network: Content of `serve.tflite`.
        objectives: Output -> its objective.
        labelled: Labelled data, the best first. On those in which most classes have enough examples, it is
            measured how far the statistics of single classes are from all.
    """
    try:
        return AdaptationFiles(_files(models, network, objectives, labelled))
    except _NotAdaptableError as error:
        return AdaptationFiles({}, f"cannot be adapted to data without labels: {error}")


def _files(
    models: Sequence[keras.Model],
    network: bytes,
    objectives: Mapping[str, OutputObjective],
    labelled: Sequence[Dataset],
) -> dict[str, bytes]:
    output, classes = _classes(models[0], objectives, labelled[0])
    located = located_norms(models, network)
    if not located:
        raise _NotAdaptableError("it has no batch norm that was folded into a layer of its own")
    by_data = [(data, single_class_streams(data.targets[output].reshape(-1))) for data in labelled]
    data, streams = max(by_data, key=lambda each: len(each[1]))
    if not streams:
        raise _NotAdaptableError(
            f"fewer than two classes of {output} have {LEAST_EXAMPLES} examples in the validation data or in "
            "the training data"
        )
    kind = kind_of(objectives[output])
    arrays = {name: np.concatenate([one.arrays[name] for one in located]) for name in ARRAYS}
    norms = [_record(one, _UNMEASURED, _UNMEASURED) for one in located]
    try:
        networks = list(observed_networks(network, norms, len(models) if len(models) > 1 else 0))
    except ValueError as error:
        raise _NotAdaptableError(str(error)) from error
    numbers = folded_norms(norms, arrays)
    examples = (typed(data.subset(rows).inputs, models[0]) for rows in streams)
    moves = [in_litert(usual_moves, networks, numbers, output, kind, of_class) for of_class in examples]
    store = AdaptationStore(
        norms=tuple(
            _record(one, float(variance), float(mean))
            for one, variance, mean in zip(located, *np.split(np.max(moves, axis=0), 2), strict=True)
        ),
        output=output,
        kind=kind,
        classes=classes,
    )
    return {ADAPTATION: store.as_json(), STATISTICS: written_statistics(arrays)}


def _record(norm: LocatedNorm, variance_move: float, mean_move: float) -> FoldedNorm:
    return FoldedNorm(
        name=norm.name,
        channels=len(norm.arrays["mean"]),
        operators=norm.operators,
        variance_move=variance_move,
        mean_move=mean_move,
    )


def _classes(model: keras.Model, objectives: Mapping[str, OutputObjective], data: Dataset) -> tuple[str, int]:
    """Return the first output that classifies whole examples, and its number of classes."""
    for name, objective in objectives.items():
        labels = data.targets[name]
        if isinstance(objective, Categorical) and labels.ndim == 1:
            return name, int(model.outputs[output_names(model).index(name)].shape[-1])
        if isinstance(objective, Binary) and labels.size == len(labels):
            return name, 2
    raise _NotAdaptableError("no output has classes of whole examples, by which examples are balanced")
