"""The factory of a package: a converted network with the places of its units, and its assembler."""

from collections.abc import Mapping

from executors.contract.package_parts import Factory
from executors.structure.exporting import folded
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET, FactoryStore
from mistify.package.records import PackagedFile
from mistify.package.training import OutputEncoding
from mistify_server.worker.packaging.conversion.converter import convert_function
from mistify_server.worker.packaging.conversion.cuttable import CuttableNetwork


def factory_files(
    factory: Factory, whole: CuttableNetwork, kinds: Mapping[str, OutputEncoding]
) -> dict[str, bytes]:
    """Return the files of a factory by name; the assembler is float32.

    Args:
        whole: The converted network of the factory.
        kinds: Output of the network -> its encoding.
    """
    assembler = convert_function(folded(factory.assembler), QuantizationConfig())
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
