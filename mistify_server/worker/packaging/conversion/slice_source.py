"""The converted networks of a preparation, as far as a package needs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras

from mistify.config.package.quantization import QuantizationConfig
from mistify.tflite.slicing import OpenUnits
from mistify_server.worker.packaging.conversion.cuttable import CuttableNetwork, NotCuttableError
from mistify_server.worker.packaging.conversion.factory import convert_assembler


def _no_network(_: QuantizationConfig) -> CuttableNetwork:
    raise NotCuttableError("there is no network to cut slices from")


@dataclass(frozen=True)
class SliceSource:
    """The network that a package's network is a slice of, with its assembler.

    Attributes:
        network: Returns the converted network at a precision; raises NotCuttableError if it cannot be cut.
        assembler: Converts the assembler.
        units: The units of the package's network; None if it is no slice.
    """

    network: Callable[[QuantizationConfig], CuttableNetwork] = _no_network
    assembler: Callable[[keras.Model], bytes] = convert_assembler
    units: Sequence[OpenUnits] | None = None

    def cut(self, quantization: QuantizationConfig) -> bytes | None:
        """Return the package's network at a precision, as a `.tflite`; None if it cannot be cut."""
        try:
            return None if self.units is None else self.network(quantization).cut(self.units)
        except NotCuttableError:
            return None
