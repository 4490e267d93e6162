"""The supernet: the blocks of a network, with trainable variants next to them (AdaptiveNet 4)."""

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Final, NamedTuple, Self, TypeVar

import keras
import numpy as np
import tensorflow as tf

from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.space import Subnet, SupernetSpace, VariantSpan
from executors.algorithms.adaptivenet.variants import Kind, UnfitVariantError, kinds
from executors.data import Array, Dataset
from executors.inspection.limits import GIB
from executors.structure import Structure, analyse, in_parallel, in_series, model_of, segments
from executors.structure.graph import Graph
from executors.structure.signature import input_names, output_names
from executors.training.evaluation import EVALUATION_BATCH, Tensors, call, examples_of_shapes
from mistify.costs.layer import FLOAT_BYTES
from mistify.errors import ErrorCode, MistifyError, Problem

#: Training examples used to initialize variants, and the maximum size of their features in bytes.
_EXAMPLES: Final = 250
_FEATURE_BYTES: Final = GIB

#: Prefix of the variants' input names, before the number of the position.
_POSITION: Final = "position-"

T = TypeVar("T")


class TrainedSupernet(NamedTuple):
    """A supernet with the loss of each variant alone."""

    supernet: "Supernet"
    losses: list[float]


class Supernet:
    """The frozen blocks of a network, and the variants that can replace them.

    Attributes:
        model: All variants other than the original blocks, side by side. Its inputs are the positions where
            variants begin; its outputs are those of the variants, in order.
        unfit: Variants left out because they do not fit, with the reasons.
    """

    def __init__(
        self,
        source: Structure,
        largest: float,
        space: SupernetSpace,
        model: keras.Model,
        unfit: Sequence[str] = (),
    ) -> None:
        """Assemble a supernet.

        Args:
            largest: The share of parameters and multiply-adds up to which neighbouring layers are joined to a
                block (`segments`).
            model: All variants side by side, as one model.
            unfit: Variants left out, with the reasons.
        """
        self.space = space
        self.unfit = tuple(unfit)
        self.model = model
        self._name = source.graph.name
        self._graphs = [segment.graph for segment in segments(source, largest)]
        self._blocks = [model_of(replace(graph, name="block")) for graph in self._graphs]
        self._at_once = examples_of_shapes(source.graph.shapes, EVALUATION_BATCH)
        inputs = {tensor.name: tensor for tensor in model.inputs}
        self._variants = [
            keras.Model(inputs[_position(place.start)], output)
            for place, output in zip(space.places[space.blocks :], model.outputs, strict=True)
        ]
        signature = {
            tensor.name: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype) for tensor in self.inputs
        }
        path = tf.TensorSpec([space.blocks], tf.int32)
        self._run = tf.function(self.outputs, input_signature=[signature, path], autograph=False)
        self._run_alone = tf.function(self._outputs_alone, input_signature=[signature], autograph=False)

    @classmethod
    def expanded(cls, source: Structure, params: AdaptiveNetParams, train: Dataset) -> Self | None:
        """Return the supernet of a network, with variants as initialized by their makers.

        Args:
            source: The network. Layers that must not change are never part of a replaceable block.
            params: Settings that select the variants.

        Returns:
            The supernet; None if nothing can be replaced.

        Raises:
            MistifyError: INVALID_CONFIG if every requested variant is unfit.
        """
        parts = [segment.graph for segment in segments(source, params.largest)]
        structures = [analyse(model_of(replace(graph, name="block")), source.rules) for graph in parts]
        features = _features(structures, train.sample(_examples_kept(parts, _EXAMPLES)))
        places = [VariantSpan(f"block-{number:02d}", number, 1) for number in range(len(parts))]
        graphs, unfit = [], []
        for kind, start in _spans(kinds(params), structures):
            place = VariantSpan(f"block-{start:02d}-{kind.name}", start, kind.span)
            try:
                made = kind.variant(structures[start : place.end], features[start])
            except UnfitVariantError as error:
                unfit.append(f"{place.name} {error}")
                continue
            if made is not None:
                places.append(place)
                graphs.append(_variant(made, place))
        if not graphs:
            _require_fit(unfit)
            return None
        space = SupernetSpace(tuple(places), len(parts))
        return cls(source, params.largest, space, model_of(in_parallel(graphs, "variants")), unfit)

    def keeping(self, numbers: Collection[int], source: Structure, largest: float) -> "Supernet":
        """Return the supernet with copies of some variants only, in order.

        Args:
            numbers: The variants to keep, at least one; the blocks of the network always stay.
            source: The network that consists of the blocks.
            largest: The share of parameters and multiply-adds up to which neighbouring layers form a block.
        """
        blocks = self.space.blocks
        kept = [number for number in range(blocks, len(self.space.places)) if number in numbers]
        places = tuple(self.space.places[number] for number in (*range(blocks), *kept))
        model = model_of(in_parallel([self.graph_of(number) for number in kept], "variants"))
        return Supernet(source, largest, SupernetSpace(places, blocks), model, self.unfit)

    @property
    def inputs(self) -> list[keras.KerasTensor]:
        """The inputs of the network."""
        return list(self._blocks[0].inputs)

    @cached_property
    def variables(self) -> list[list[keras.Variable]]:
        """The weights of each variant, in order."""
        return [variant.variables for variant in self._variants]

    def examples_kept(self, most: int) -> int:
        """Return the number of examples, at most `most`, whose features fit in memory together."""
        return _examples_kept(self._graphs, most)

    def features(self, inputs: Tensors) -> list[tf.Tensor]:
        """Return the network's features at each position from 1 on, without the outputs."""
        tensor = next(iter(call(self._blocks[0], inputs, training=False).values()))
        features = [tensor]
        for block in self._blocks[1:-1]:
            features.append(block(features[-1], training=False))
        return features

    def inputs_from(self, features: Sequence[T]) -> dict[str, T]:
        """Return the inputs of `model` by name, from the network's features at each position from 1 on."""
        return {
            tensor.name: features[int(tensor.name.removeprefix(_POSITION)) - 1]
            for tensor in self.model.inputs
        }

    def outputs_and_targets(self, features: Sequence[tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Return for each variant its output in training mode, and the feature that it has to reproduce.

        Args:
            features: Features of the network at each position from 1 on, [examples, ...].
        """
        outputs = call(self.model, self.inputs_from(features), training=True).values()
        ends = [features[place.end - 1] for place in self.space.places[self.space.blocks :]]
        return list(zip(outputs, ends, strict=True))

    def outputs(self, inputs: Tensors, path: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs of a subnet by name.

        Args:
            inputs: Input name -> [examples, ...].
            path: The choice at each position (`SupernetSpace.path`) [blocks].
        """
        features = {1: next(iter(call(self._blocks[0], inputs, training=False).values()))}
        for position in range(2, self.space.blocks):
            features[position] = self._at(position, features, path[position - 1])
        last = self._blocks[-1]
        outputs = keras.tree.flatten(last(features[self.space.blocks - 1], training=False))
        return dict(zip(output_names(last), outputs, strict=True))

    def predictions(self, inputs: Mapping[str, Array], subnet: Subnet) -> dict[str, Array]:
        """Return the outputs of a subnet for many inputs: output name -> [examples, ...]."""
        path = tf.constant(self.space.path(subnet))
        batches = [self._run(batch, path) for batch in self._batches(inputs, self._at_once)]
        return {name: np.concatenate([batch[name].numpy() for batch in batches]) for name in batches[0]}

    def predictions_alone(self, inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Return the outputs of the network with each variant alone, for many inputs.

        The layers before a variant run once for all variants.

        Returns:
            Output name -> [examples, ...], for each variant in order.
        """
        order = self._by_ends()
        at_once = max(1, 2 * self._at_once // len(order))
        batches = [self._run_alone(batch) for batch in self._batches(inputs, at_once)]
        stacked = {
            name: np.concatenate(
                [
                    rows.reshape(len(order), -1, *rows.shape[1:])
                    for rows in (batch[name].numpy() for batch in batches)
                ],
                axis=1,
            )
            for name in batches[0]
        }
        places = {number: place for place, number in enumerate(order)}
        return [{name: rows[places[number]] for name, rows in stacked.items()} for number in sorted(order)]

    def _batches(self, inputs: Mapping[str, Array], at_once: int) -> Iterator[dict[str, tf.Tensor]]:
        """Yield batches of inputs as tensors."""
        for at in range(0, len(next(iter(inputs.values()))), at_once):
            yield {
                tensor.name: tf.constant(inputs[tensor.name][at : at + at_once].astype(tensor.dtype))
                for tensor in self.inputs
            }

    def _by_ends(self) -> list[int]:
        """Return the numbers of the variants in the order of the positions where they end."""
        ends = range(2, self.space.blocks)
        return [number for end in ends for number in self.space.ending[end] if number >= self.space.blocks]

    def _outputs_alone(self, inputs: Tensors) -> dict[str, tf.Tensor]:
        """Return the outputs of the network with each variant alone, in the order of `_by_ends`.

        The features of variants that have ended go through the next blocks as one batch.

        Returns:
            Output name -> [variants * examples, ...].
        """
        features = dict(enumerate(self.features(inputs), 1))
        carried: list[tf.Tensor] = []
        for end in range(2, self.space.blocks):
            passed = [self._blocks[end - 1](tf.concat(carried, 0), training=False)] if carried else []
            numbers = (number for number in self.space.ending[end] if number >= self.space.blocks)
            carried = [*passed, *(self._called(number, features) for number in numbers)]
        last = self._blocks[-1]
        outputs = keras.tree.flatten(last(tf.concat(carried, 0), training=False))
        return dict(zip(output_names(last), outputs, strict=True))

    def graph(self, subnet: Subnet) -> Graph:
        """Return the graph of a subnet, which shares the supernet's layers."""
        return in_series([self.graph_of(number) for number in subnet], self._name)

    def graph_of(self, number: int) -> Graph:
        """Return the graph of a variant."""
        if number < self.space.blocks:
            return self._graphs[number]
        return analyse(self._variants[number - self.space.blocks]).graph

    def subnet_of(self, model: keras.Model) -> Subnet | None:
        """Return the subnet that a network is; None for other networks, such as one with fewer channels.

        Args:
            model: A network whose layers have the same names as the supernet's.
        """
        shapes = {layer.name: _shapes(layer) for layer in model.layers}
        position, chosen = 0, list[int]()
        while position < self.space.blocks:
            for number in self.space.starting[position]:
                layers = self.graph_of(number).layers
                if all(shapes.get(name) == _shapes(layer) for name, layer in layers.items()):
                    chosen.append(number)
                    position = self.space.places[number].end
                    break
            else:
                return None
        return tuple(chosen)

    def multiply_adds(self) -> list[int]:
        """Return the multiply-adds of each variant."""
        return [
            analyse(model_of(self.graph_of(number))).network().flops
            for number in range(len(self.space.places))
        ]

    def saved(self, losses: Sequence[float]) -> bytes:
        """Return the variants and their losses, serialized."""
        about = {
            "blocks": self.space.blocks,
            "places": [asdict(place) for place in self.space.places],
            "losses": list(losses),
            "unfit": list(self.unfit),
        }
        arrays: dict[str, Any] = {
            f"weight-{n}": weight.numpy() for n, weight in enumerate(self.model.weights)
        }
        file = io.BytesIO()
        np.savez(file, about=json.dumps(about), model=self.model.to_json(), **arrays)
        return file.getvalue()

    @classmethod
    def loaded(cls, content: bytes, source: Structure, largest: float) -> TrainedSupernet:
        """Load a saved supernet and the losses of its variants."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            model = keras.models.model_from_json(str(arrays["model"]))
            for number, weight in enumerate(model.weights):
                weight.assign(arrays[f"weight-{number}"])
        space = SupernetSpace(tuple(VariantSpan(**place) for place in about["places"]), about["blocks"])
        return TrainedSupernet(cls(source, largest, space, model, about["unfit"]), about["losses"])

    def _at(self, position: int, features: Mapping[int, tf.Tensor], choice: tf.Tensor) -> tf.Tensor:
        """Return a subnet's feature at a position; zeros if none of its variants ends there."""
        numbers = self.space.ending[position]
        if len(numbers) == 1 and not self._covers(position):
            return self._blocks[numbers[0]](features[position - 1], training=False)
        output = self._blocks[position - 1].output
        nothing = partial(tf.zeros, [tf.shape(features[1])[0], *output.shape[1:]], output.dtype)
        called = [partial(self._called, number, features) for number in numbers]
        return tf.switch_case(choice, [*called, nothing])

    def _called(self, number: int, features: Mapping[int, tf.Tensor]) -> tf.Tensor:
        blocks = self.space.blocks
        model = self._blocks[number] if number < blocks else self._variants[number - blocks]
        return model(features[self.space.places[number].start], training=False)

    def _covers(self, position: int) -> bool:
        """Check whether any variant spans a position."""
        return any(place.start < position < place.end for place in self.space.places)


def replaceable(source: Structure, largest: float) -> bool:
    """Check whether a network has replaceable blocks, without making any variants.

    Args:
        largest: The share of parameters and multiply-adds up to which neighbouring layers are joined to a
            block (`segments`).
    """
    between = segments(source, largest)[1:-1]
    return any(source.staying.isdisjoint(segment.graph.layers) for segment in between)


def _spans(asked_for: Sequence[Kind], blocks: Sequence[Structure]) -> Iterator[tuple[Kind, int]]:
    """Yield kinds of variants with the first of the blocks that each can replace."""
    for kind in asked_for:
        for start in range(1, len(blocks) - kind.span):
            if not any(block.staying for block in blocks[start : start + kind.span]):
                yield kind, start


def _require_fit(unfit: Sequence[str]) -> None:
    if unfit:
        expected = "a graph with the inputs and outputs of the blocks"
        problems = [
            Problem("algorithm.config.variants", one, expected, "correct the plug-in") for one in unfit
        ]
        raise MistifyError(ErrorCode.INVALID_CONFIG, "no variant of any block fits", problems)


def _shapes(layer: keras.Layer) -> list[tuple[int, ...]]:
    return [tuple(weight.shape) for weight in layer.weights]


def _position(number: int) -> str:
    return f"{_POSITION}{number:02d}"


def _variant(graph: Graph, place: VariantSpan) -> Graph:
    """Return the graph of a variant with unique names and trainable layers of its own."""
    (tensor,) = graph.inputs
    return replace(graph.renamed(f"{place.name}-"), inputs={tensor: _position(place.start)})


def _examples_kept(blocks: Sequence[Graph], most: int) -> int:
    """Return the number of examples, at most `most`, whose features between all blocks fit in memory."""
    sizes = [prod(size or 1 for size in block.shapes[block.outputs[0]]) for block in blocks]
    at_once = examples_of_shapes(blocks[0].shapes, most)
    return max(1, min(at_once, _FEATURE_BYTES // (FLOAT_BYTES * sum(sizes))))


def _features(blocks: Sequence[Structure], some: Dataset) -> list[Dataset]:
    """Return the inputs of each block for some examples, in order."""
    tensors: list[Any] = list(some.inputs.values())
    features = []
    for structure in blocks:
        block = model_of(structure.graph)
        inputs = dict(zip(input_names(block), map(np.asarray, tensors), strict=True))
        features.append(Dataset(inputs, {}))
        tensors = [next(iter(call(block, inputs, training=False).values()))]
    return features
