"""The templates of a worker: networks of one architecture are converted a few times, then only written."""

from dataclasses import dataclass
from typing import Final

from executors.structure import Structure
from executors.structure.architecture import same_architecture
from executors.timing import activity
from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.template import ConversionTemplate
from mistify_server.worker.packaging.conversion.template_making import NoTemplateError, make_template

#: Number of architectures, each at a precision, that are remembered.
_MOST: Final = 8


@dataclass(eq=False)
class _Architecture:
    """An architecture at a precision.

    Attributes:
        structure: The widest network of it so far.
        quantization: The precision.
        template: Its template; None as long as there is none.
        needs_converter: Whether a template cannot be made.
    """

    structure: Structure
    quantization: QuantizationConfig
    template: ConversionTemplate | None = None
    needs_converter: bool = False


class ConversionTemplates:
    """Writes networks into templates.

    A template takes two conversions. So the first network of an architecture is left to the
    converter, and the template is made for the second one: a job never takes twice as long as without
    templates, and many goals of a source, with whatever blocks, share a few conversions.
    """

    def __init__(self) -> None:
        self._architectures: list[_Architecture] = []

    @activity("converting")
    def written(self, structure: Structure, quantization: QuantizationConfig) -> bytes | None:
        """Return the `.tflite` of a network; None if it needs the converter.

        Integer activations need it, because each network has its own ranges.

        Args:
            structure: The structure of the network, which has its weights and must not be changed.
        """
        if quantization.precision.integer:
            return None
        known = self._known(structure, quantization)
        if known is None:
            self._architectures = [*self._architectures, _Architecture(structure, quantization)][-_MOST:]
            return None
        if known.template is None and not known.needs_converter:
            _make(known, structure)
        return None if known.template is None else known.template.written(structure)

    def _known(self, structure: Structure, quantization: QuantizationConfig) -> _Architecture | None:
        """Return the architecture of a network, which becomes the latest one; None if it is new."""
        for one in self._architectures:
            if one.quantization == quantization and same_architecture(one.structure, structure):
                self._architectures.remove(one)
                self._architectures.append(one)
                return one
        return None


def _make(architecture: _Architecture, structure: Structure) -> None:
    """Make the template of an architecture at the larger widths of two networks.

    Kernels of narrow networks may be too small to be stored as integers.
    """
    if sum(structure.widths.values()) > sum(architecture.structure.widths.values()):
        architecture.structure = structure
    try:
        architecture.template = make_template(architecture.structure, architecture.quantization)
    except NoTemplateError:
        architecture.needs_converter = True
