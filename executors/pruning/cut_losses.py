"""Measurement of what a network loses if one of its channel groups is cut, without training.

All layers behind the cut are fitted to what they computed before it, by least squares. What several cuts have
in common is computed once: the results to which layers are fitted, and everything in front of a cut.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isfinite
from typing import Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.contract.assignment import Assignment
from executors.data import Dataset
from executors.data.dataset import joined
from executors.outputs.objectives import objectives_of
from executors.pruning.layer_fits import (
    KernelResults,
    Original,
    Tensors,
    fit_layer,
    input_tensors,
    walk,
)
from executors.pruning.loss_table import measured_widths
from executors.pruning.masked_norms import with_masked_norms
from executors.pruning.masks import Masks
from executors.pruning.reconstruction import Compensation
from executors.pruning.refitting import following
from executors.pruning.state import unit_values
from executors.structure import Keep, Structure, analyse, copied
from executors.structure.graph import Graph
from executors.structure.signature import output_names
from executors.training.evaluation import examples_of_shapes
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import DataSettings

#: Training examples to which layers are fitted, and validation examples on which losses are measured.
FITTED: Final = 500
JUDGED: Final = 384

#: The loss of a network with outputs that overflow.
_MOST: Final = 1e6


class CutLosses:
    """A network whose groups are cut one at a time; each cut is undone.

    Args:
        assignment: The network with its data; neither is changed.
    """

    def __init__(self, assignment: Assignment) -> None:
        setup, rules = assignment.setup, assignment.source.rules
        model = with_masked_norms(copied(assignment.model))
        structure = analyse(model, rules)
        compensation, self._masks = Compensation(structure), Masks(structure)
        moments = compensation.moments(setup.train)
        self._values = unit_values(structure, compensation, self._masks.keep, moments)
        self._original = Original.of(structure)
        fitted, judged = _examples(structure, setup)
        self._fitted, self._targets = len(fitted), judged.targets
        self._inputs = input_tensors(structure.graph, joined(fitted, judged))
        self._objectives = objectives_of(model, judged, DataSettings(losses=setup.settings.losses))
        self._names = output_names(model)

    def measured(self, groups: Collection[str]) -> Iterator[tuple[str, dict[int, float]]]:
        """Measure some groups; yield the name of each, and its losses by width in descending order."""
        structure = self._original.structure
        graph, first_calls = structure.graph, defaultdict[int, list[str]](list)
        for name in groups:
            first_calls[_first_call(structure, name)].append(name)
        results, source = self._uncut(graph)
        tensors = dict(self._inputs)
        for place, _ in enumerate(walk(graph, tensors, {})):
            for name in first_calls.pop(place, ()):
                losses = {}
                for width in measured_widths(structure.groups[name]):
                    outputs = self._cut(self._keep(name, width), results, tensors, place)
                    losses[width] = self._loss(outputs, source)
                yield name, losses
            if not first_calls:
                return

    def _uncut(self, graph: Graph) -> tuple[dict[str, list[KernelResults | None]], list[tf.Tensor]]:
        """Return what the kernels of each layer that is called once compute, and the judged outputs."""
        calls, results = Counter(node.name for node in graph.nodes), {}
        tensors = dict(self._inputs)
        for node, inputs in walk(graph, tensors, {}):
            if calls[node.name] == 1:
                results[node.name] = self._original.results(node, self._first(inputs))
        return results, self._judged(graph, tensors)

    def _cut(
        self,
        keep: Keep,
        results: Mapping[str, Sequence[KernelResults | None]],
        tensors: Tensors,
        place: int,
    ) -> list[tf.Tensor]:
        """Return the judged outputs of the network after a cut.

        Args:
            keep: The units left in each group.
            results: Layer name -> the results of its kernels before the cut.
            tensors: The tensors of the uncut network in front of the call at `place`.
            place: Index of the first call that the cut changes.
        """
        structure, tensors = self._original.structure, dict(tensors)
        graph = structure.graph
        self._masks.set(keep)
        fitted = frozenset(following(self._original, keep, graph))
        for node, inputs in walk(graph, tensors, {}, place):
            if node.name in fitted:
                fit_layer(node, self._first(inputs), results[node.name], keep)
        outputs = self._judged(graph, tensors)
        self._undo_cut()
        return outputs

    def _undo_cut(self) -> None:
        """Restore the masks, which norms read as well, and the weights."""
        structure = self._original.structure
        self._masks.choose({name: np.ones(group.size, bool) for name, group in structure.groups.items()})
        for name, own in structure.graph.variables.items():
            for variable, weight in zip(own, self._original.weights[name], strict=True):
                variable.assign(weight)

    def _loss(self, outputs: Sequence[tf.Tensor], source: Sequence[tf.Tensor]) -> float:
        """Return the distance of outputs from the source's; for classes, their divergence in nats."""
        loss = 0.0
        for name, output, before in zip(self._names, outputs, source, strict=True):
            objective, target = self._objectives[name], tf.constant(self._targets[name])
            teacher = objective.predicted(before)
            after, least = (
                objective.distillation(own, target, teacher, temperature=1.0) for own in (output, before)
            )
            loss += float(after - least)
        return min(loss, _MOST) if isfinite(loss) else _MOST

    def _keep(self, cut: str, width: int) -> dict[str, npt.NDArray[np.bool_]]:
        """Return masks of all units but the least valuable ones of one group."""
        keep = {name: np.ones(group.size, bool) for name, group in self._original.structure.groups.items()}
        keep[cut][np.argsort(-self._values[cut], kind="stable")[width:]] = False
        return keep

    def _first(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the part of tensors for the examples to which layers are fitted."""
        return [tensor[: self._fitted] for tensor in tensors]

    def _judged(self, graph: Graph, tensors: Tensors) -> list[tf.Tensor]:
        """Return the outputs for the other examples."""
        return [tf.cast(tensors[index][self._fitted :], tf.float32) for index in graph.outputs]


def _first_call(structure: Structure, group: str) -> int:
    """Return the index of the first call of a layer with weights of a group."""
    layers = {slot.layer for slot in structure.groups[group].slots}
    return next(place for place, node in enumerate(structure.graph.nodes) if node.name in layers)


def _examples(structure: Structure, setup: TrainingSetup) -> tuple[Dataset, Dataset]:
    """Return training and validation examples: fewer if a network's tensors are large."""
    at_once = examples_of_shapes(structure.graph.shapes, FITTED + JUDGED)
    fitted = max(1, at_once * FITTED // (FITTED + JUDGED))
    rng = np.random.default_rng(0)
    train, validation = setup.train, setup.validation
    return (
        train.subset(rng.permutation(len(train))[:fitted]),
        validation.subset(rng.permutation(len(validation))[: max(1, at_once - fitted)]),
    )
