"""The factory of a package: a converted network with the places of its units, and its assembler."""

from collections.abc import Mapping

import keras

from executors.contract.package_parts import Factory
from executors.structure.exporting import folded
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET, FactoryStore
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify_server.worker.packaging.conversion.converter import convert_function
from mistify_server.worker.packaging.conversion.cuttable import CuttableNetwork


def convert_assembler(assembler: keras.Model) -> bytes:
    """Convert an assembler in float32."""
    return convert_function(folded(assembler), QuantizationConfig())


def factory_files(
    factory: Factory, whole: CuttableNetwork, assembler: bytes, kinds: Mapping[str, OutputEncoding]
) -> dict[str, bytes]:
    """Return the files of a factory by name.

    Args:
        whole: The converted network.
        assembler: The converted assembler.
        kinds: Output of the network -> its encoding.
    """
    store = FactoryStore(
        space=factory.space,
        classes=factory.whole.classes,
        quality=factory.quality,
        groups=tuple(factory.whole.groups),
        places=whole.places,
        kinds=dict(kinds),
        supernet=PackagedFile.of(whole.network),
        assembler=PackagedFile.of(assembler),
    )
    return {SUPERNET: whole.network, ASSEMBLER: assembler, FACTORY: store.as_json()}
