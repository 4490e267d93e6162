"""The templates of a worker: networks of one architecture are converted a few times, then only written."""

from dataclasses import dataclass
from typing import Final

from executors.structure import Structure, Widths, analyse
from executors.structure.architecture import same_architecture
from executors.structure.edits.widths import resized
from executors.timing import activity
from mistify.config.package.quantization import QuantizationConfig
from mistify_server.worker.packaging.conversion.template import ConversionTemplate
from mistify_server.worker.packaging.conversion.template_making import NoTemplateError, make_template

#: Number of architectures, each at a precision, that are remembered.
_MOST: Final = 8


@dataclass(frozen=True, eq=False)
class _Architecture:
    """An architecture at a precision.

    Attributes:
        structure: A network of it.
        quantization: The precision.
        template: Its template; None if it needs the converter.
    """

    structure: Structure
    quantization: QuantizationConfig
    template: ConversionTemplate | None


class ConversionTemplates:
    """Writes networks into templates.

    A template takes two conversions, and then many goals of a source, with whatever blocks, share it. What is
    written depends on the network and its source alone, not on what was written before.
    """

    def __init__(self) -> None:
        self._architectures: list[_Architecture] = []

    @activity("converting")
    def written(self, structure: Structure, quantization: QuantizationConfig, source: Widths) -> bytes | None:
        """Return the `.tflite` of a network; None if it needs the converter.

        Integer activations need it, because each network has its own ranges, and so do groups that the source
        does not have.

        Args:
            structure: The structure of the network, which has its weights and must not be changed.
            source: The widths of the source. Templates have them, because kernels of narrow networks may be
                too small to be stored as integers.
        """
        if quantization.precision.integer or not structure.widths.keys() <= source.keys():
            return None
        known = self._known(structure, quantization)
        if known is None:
            known = _Architecture(structure, quantization, _template(structure, quantization, source))
            self._architectures = [*self._architectures, known][-_MOST:]
        return None if known.template is None else known.template.written(structure)

    def _known(self, structure: Structure, quantization: QuantizationConfig) -> _Architecture | None:
        """Return the architecture of a network, which becomes the latest one; None if it is new."""
        for one in self._architectures:
            if one.quantization == quantization and same_architecture(one.structure, structure):
                self._architectures.remove(one)
                self._architectures.append(one)
                return one
        return None


def _template(
    structure: Structure, quantization: QuantizationConfig, source: Widths
) -> ConversionTemplate | None:
    """Return the template of an architecture at the widths of its source; None if it needs the converter."""
    try:
        at_source = resized(structure, {name: source[name] for name in structure.widths})
        return make_template(analyse(at_source), quantization)
    except NoTemplateError:
        return None
