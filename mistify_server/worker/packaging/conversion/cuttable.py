"""A converted network with the places of its units, out of which slices are cut (NN-Factory 3.4)."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import keras
import numpy as np

from executors.contract.slices import WholeNetwork
from executors.structure import Role, Structure, analyse, fold_batch_norm, model_of
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.cut_places import CutPlaces
from mistify.tflite.slicing import OpenUnits, sliced
from mistify.tflite.small_kernels import with_float_kernels
from mistify_server.worker.packaging.conversion.activation_ranges import with_ranges_of
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cut_places import find_cut_places
from mistify_server.worker.packaging.conversion.representative import Examples
from mistify_server.worker.packaging.tflite.isolation import LiteRtError

#: Slices whose activations give integers their scales, and the examples for each.
_SLICES: Final = 24
_EXAMPLES: Final = 48

#: In place of zeros; float16 has numbers near it.
_TINY: Final = 1e-6

FLOAT32: Final = QuantizationConfig()

#: Examples for the conversions whose scales are not used.
_FEW: Final = 4


class NotCuttableError(Exception):
    """No slice can be cut out of a converted network; the message says why."""


@dataclass(frozen=True)
class CuttableNetwork:
    """A converted network, and the places of its units.

    Attributes:
        network: Content of the `.tflite`.
        places: Where the units are in it.
        floats: The same network in float32, from which small kernels of slices are taken; None if they are
            to have the precision of the others.
        least_kernel: Number of elements from which a kernel is not small.
    """

    network: bytes
    places: CutPlaces
    floats: "CuttableNetwork | None" = None
    least_kernel: int = 0

    def cut(self, units: Sequence[OpenUnits]) -> bytes:
        """Return the slice with these units, as the content of a `.tflite`."""
        cut = sliced(self.network, self.places, units)
        if self.floats is None:
            return cut
        return with_float_kernels(cut, self.floats.cut(units), self.least_kernel)


def convert_cuttable(
    whole: WholeNetwork, quantization: QuantizationConfig, examples: Examples
) -> CuttableNetwork:
    """Convert a network for cuts.

    Args:
        quantization: The precision of the network; quantization-aware training is not possible.
        examples: Input -> training data, from which integers take the scales of activations; may be empty
            otherwise.

    Raises:
        NotCuttableError: The converter has merged units of the network, or LiteRT cannot run it.
    """
    try:
        return _converted(whole, quantization, examples)
    except (ValueError, LiteRtError) as error:
        raise NotCuttableError(str(error)) from error


def _converted(whole: WholeNetwork, quantization: QuantizationConfig, examples: Examples) -> CuttableNetwork:
    names, rules = [group.name for group in whole.groups], whole.structure.rules
    network = fold_batch_norm(model_of(whole.structure.graph))
    network = _with_biases(analyse(network, rules), names)
    few = {name: array[:_FEW] for name, array in examples.items()}
    converted, places = find_cut_places(
        convert(network, quantization, few or None),
        analyse(network, rules),
        names,
        partial(convert, quantization=quantization, examples=few or None),
        classes=len(whole.classes),
    )
    if quantization.precision.integer:
        converted = with_ranges_of(converted, _slices(whole, quantization, examples))
    return CuttableNetwork(converted, places)


def _slices(whole: WholeNetwork, quantization: QuantizationConfig, examples: Examples) -> Iterator[bytes]:
    """Yield slices, each converted with some examples; not those that LiteRT cannot run by themselves.

    An activation that is always zero has no scale.
    """
    rng, count = np.random.default_rng(0), min(map(len, examples.values()))
    for one in whole.examples(_SLICES):
        rows = rng.permutation(count)[:_EXAMPLES]
        with suppress(LiteRtError):
            yield convert(one, quantization, {name: array[rows] for name, array in examples.items()})


def _with_biases(structure: Structure, groups: Collection[str]) -> keras.Model:
    """Return the network of a structure, in which no bias of a maker of units is all zero.

    The converter leaves out such biases, to which slices may have to add shifts, and stores equal ones once.
    """
    network, rng = model_of(structure.graph), np.random.default_rng(0)
    slots = (slot for name in groups for slot in structure.groups[name].slots)
    for name in sorted({slot.layer for slot in slots if slot.role is Role.MAKES}):
        bias = getattr(network.get_layer(name), "bias", None)
        if bias is not None and not np.any(bias):
            bias.assign(rng.uniform(_TINY, 2 * _TINY, bias.shape))
    return network
