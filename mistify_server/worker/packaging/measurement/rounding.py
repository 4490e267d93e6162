"""The accuracy that a network loses if a tensor between two blocks is rounded to bytes."""

import time
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

import numpy as np

from executors.data import Dataset
from executors.data.storage import Array, Rows
from executors.outputs.metrics import score
from executors.outputs.objectives import OutputObjective
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.cuts import worthwhile_starts
from mistify.package.rounding import rounded
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.packaging.tflite.runner import Arrays, Runner

#: The most examples, and the most seconds after which no others are begun.
_EXAMPLES: Final = 1000
_SECONDS: Final = 30.0

#: The number of examples that run at a time.
_BATCH: Final = 32


def with_rounding_losses(
    files: Mapping[str, bytes],
    data: Dataset,
    objectives: Mapping[str, OutputObjective],
    source: DataSource,
) -> dict[str, bytes]:
    """Return the files of a package; the manifest of its block store, if there is one, has the losses.

    Args:
        files: Name -> content.
        data: Validation data.
        objectives: Output -> its objective.
        source: The data source, which defines the metric.
    """
    if BLOCKS not in files:
        return dict(files)
    store = BlockStore.model_validate_json(files[BLOCKS])
    losses = rounding_losses(store, files, data, objectives, source)
    return {**files, BLOCKS: store.model_copy(update={"rounding_losses": losses}).as_file()}


def rounding_losses(
    store: BlockStore,
    files: Mapping[str, bytes],
    data: Dataset,
    objectives: Mapping[str, OutputObjective],
    source: DataSource,
) -> dict[int, float]:
    """Return the accuracy lost by rounding the tensor at each position at which a network is worth cutting.

    Each example is rounded by itself, as devices do. All figures are of the same examples.

    Args:
        store: The blocks; its own network is cut.
        files: The content of the blocks by file name.
        data: Validation data.
        objectives: Output -> its objective.
        source: The data source, which defines the metric.

    Returns:
        Position -> accuracy without rounding minus accuracy with it. Positions in integers are left out, and
        all if the metric is undefined for the examples.
    """
    blocks = store.network_of(store.served) if store.served else ()
    starts = [
        start for start in worthwhile_starts(store, blocks)[1:] if _is_float(store, blocks[start].start)
    ]
    if not starts:
        return {}
    runners = [Runner(files[block.file]) for block in blocks]
    outputs: dict[int, dict[str, Rows]] = {start: {} for start in (0, *starts)}
    order = np.random.default_rng(0).permutation(len(data))[:_EXAMPLES]
    deadline = time.monotonic() + _SECONDS
    done = 0
    while done < len(order) and (done == 0 or time.monotonic() < deadline):
        batch = order[done : done + _BATCH]
        tensors: Arrays = {name: array[batch] for name, array in data.inputs.items()}
        for index, runner in enumerate(runners):
            if index in starts:
                _append(outputs[index], _through(runners[index:], _rounded(tensors)))
            tensors = runner(tensors)
        _append(outputs[0], tensors)
        done += len(batch)
    targets = {name: array[order[:done]] for name, array in data.targets.items()}
    whole, *cut = (
        score(source.metric, objectives, {name: rows.array() for name, rows in each.items()}, targets)
        for each in outputs.values()
    )
    losses = {blocks[start].start: whole - one for start, one in zip(starts, cut, strict=True)}
    return {position: loss for position, loss in losses.items() if isfinite(loss)}


def _is_float(store: BlockStore, position: int) -> bool:
    return all(tensor.dtype == "float32" for tensor in store.tensors_at(position))


def _through(runners: Sequence[Runner], tensors: Arrays) -> Arrays:
    for runner in runners:
        tensors = runner(tensors)
    return tensors


def _rounded(tensors: Arrays) -> dict[str, Array]:
    """Return tensors of which each example is rounded by itself."""
    return {name: np.stack([rounded(one) for one in tensor]) for name, tensor in tensors.items()}


def _append(outputs: dict[str, Rows], tensors: Arrays) -> None:
    for name, tensor in tensors.items():
        outputs.setdefault(name, Rows()).append(tensor)
