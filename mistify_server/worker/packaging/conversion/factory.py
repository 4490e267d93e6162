"""The factory of a package: a converted network with the places of its units, and its assembler."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import keras
import numpy as np

from executors.contract.package_parts import Factory
from executors.structure import Role, Structure, analyse, fold_batch_norm, model_of
from executors.structure.exporting import folded
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET, FactoryStore
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify_server.worker.packaging.conversion.activation_ranges import with_ranges_of
from mistify_server.worker.packaging.conversion.converter import convert, convert_function
from mistify_server.worker.packaging.conversion.cut_places import find_cut_places
from mistify_server.worker.packaging.conversion.representative import Examples
from mistify_server.worker.packaging.tflite.isolation import LiteRtError

#: Slices whose activations give integers their scales, and the examples for each.
_SLICES: Final = 24
_EXAMPLES: Final = 48

#: In place of zeros; float16 has numbers near it.
_TINY: Final = 1e-6

#: Examples for the conversions whose scales are not used.
_FEW: Final = 4


def factory_files(
    factory: Factory,
    quantization: QuantizationConfig,
    examples: Examples,
    kinds: Mapping[str, OutputEncoding],
) -> dict[str, bytes]:
    """Convert a factory, and return its files by name.

    Args:
        quantization: The precision of the network; quantization-aware training is not possible. The assembler
            is float32.
        examples: Input -> training data, from which integers take the scales of activations; may be empty
            otherwise.
        kinds: Output of the network -> its encoding.

    Raises:
        ValueError: The converter has merged units of the network, so that they cannot be cut.
    """
    names, rules = [group.name for group in factory.groups], factory.structure.rules
    network = fold_batch_norm(model_of(factory.structure.graph))
    network = _with_biases(analyse(network, rules), names)
    few = {name: array[:_FEW] for name, array in examples.items()}
    converted, places = find_cut_places(
        convert(network, quantization, few or None),
        analyse(network, rules),
        names,
        partial(convert, quantization=quantization, examples=few or None),
        classes=len(factory.classes),
    )
    if quantization.precision.integer:
        converted = with_ranges_of(converted, _slices(factory, quantization, examples))
    assembler = convert_function(folded(factory.assembler), QuantizationConfig())
    store = FactoryStore(
        space=factory.space,
        classes=factory.classes,
        quality=factory.quality,
        groups=tuple(factory.groups),
        places=places,
        kinds=dict(kinds),
        supernet=PackagedFile.of(converted),
        assembler=PackagedFile.of(assembler),
    )
    return {SUPERNET: converted, ASSEMBLER: assembler, FACTORY: store.as_json()}


def _slices(factory: Factory, quantization: QuantizationConfig, examples: Examples) -> Iterator[bytes]:
    """Yield slices, each converted with some examples; not those that LiteRT cannot run by themselves.

    An activation that is always zero has no scale.
    """
    rng, count = np.random.default_rng(0), min(map(len, examples.values()))
    for one in factory.slices(_SLICES):
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
