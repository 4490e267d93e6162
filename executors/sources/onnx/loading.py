"""Loading of ONNX files: checked, translated, compared with ONNX's own results, ready to adapt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import keras
import onnx

from executors.inspection import inspect_source
from executors.inspection.errors import invalid
from executors.inspection.limits import GIB, LIMITS
from executors.inspection.onnx_file import onnx_file, parse_onnx, read_external_data
from executors.sources.contract import Range
from executors.sources.errors import first_line
from executors.sources.keras.flat import check_finite, flatten
from executors.sources.onnx import operators
from executors.sources.onnx.comparison import check_equal
from executors.sources.onnx.floats import make_float
from executors.sources.onnx.graph import check_nodes, read_graph, with_inner
from executors.sources.onnx.interface import interface_of, ranges_of
from executors.sources.onnx.reader import translated
from executors.sources.resource_limits import limited_resources
from mistify.errors import MistifyError
from mistify.package.source import SourceInterface

__all__ = ["load_onnx", "operators", "read_onnx"]

#: Memory limit for loading a model, as a multiple of its weights in float32: the file, its arrays, the model,
#: its flat copy, the comparison.
_COPIES: Final = 8
_LEAST_MEMORY: Final = 2 * GIB

#: Versions of the operator set that are read.
_OLDEST: Final = 7


class OnnxNetwork(NamedTuple):
    """The network of an ONNX file.

    Attributes:
        model: A flat functional Keras model with channels last.
        interface: The inputs and outputs as they are in the file.
        ranges: Layer -> the range of its output's integers, where the file simulates quantization.
    """

    model: keras.Model
    interface: SourceInterface
    ranges: Mapping[str, Range]


def load_onnx(path: Path, sizes: Mapping[str, Sequence[int]] | None = None) -> keras.Model:
    """Return the model of `read_onnx`."""
    return read_onnx(path, sizes).model


def read_onnx(path: Path, sizes: Mapping[str, Sequence[int]] | None = None) -> OnnxNetwork:
    """Load an ONNX file.

    Args:
        path: The file, or the directory with the file and its external data.
        sizes: Input -> its sizes without the batch, in ONNX's order, where the file leaves them free.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, the problem and an acceptable alternative.
    """
    with limited_resources(path, _LEAST_MEMORY):
        inspected = inspect_source(path)
    with limited_resources(path, _LEAST_MEMORY + _COPIES * max(inspected.size, 4 * inspected.weights)):
        try:
            return _loaded(path, sizes or {})
        except MistifyError:
            raise
        except Exception as error:  # onnx, numpy, Keras and TensorFlow raise dozens of types
            raise invalid(
                path,
                f"a file that cannot be translated ({first_line(error)})",
                "a valid graph",
                "check the file with onnx.checker.check_model, and report it if it is valid",
            ) from error


def _loaded(path: Path, sizes: Mapping[str, Sequence[int]]) -> OnnxNetwork:
    proto = parse_onnx(path, LIMITS)
    read_external_data(proto, onnx_file(path).parent)
    _name_own_domain(proto)
    version = _version(path, proto)
    check_nodes(path, proto.graph, version)
    ranges = make_float(path, proto, version)
    graph = read_graph(path, proto.graph, version)
    translation = translated(path, graph, sizes)
    interface = interface_of(translation, graph)
    del graph  # which contains a copy of the weights, as does the file's content
    check_finite(path, translation.model)
    check_equal(path, proto, translation)
    del proto
    return OnnxNetwork(flatten(path, translation.model), interface, ranges_of(translation, ranges))


def _name_own_domain(proto: onnx.ModelProto) -> None:
    """Write "" as the domain of ONNX's own operators, where a file has its other name, "ai.onnx"."""
    for node in with_inner(proto.graph.node):
        node.domain = _own(node.domain)
    imported: dict[str, int] = {}
    for each in proto.opset_import:
        imported[_own(each.domain)] = max(each.version, imported.get(_own(each.domain), 0))
    del proto.opset_import[:]
    proto.opset_import.extend(onnx.helper.make_opsetid(*each) for each in imported.items())


def _own(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _version(path: Path, proto: onnx.ModelProto) -> int:
    versions = [each.version for each in proto.opset_import if not each.domain]
    version = max(versions, default=1)
    if not _OLDEST <= version <= onnx.defs.onnx_opset_version():
        # Newer versions would change results (`findings/onnx_version_converter_keeps_old_operators.sh`).
        fix = f"convert it with onnx.version_converter.convert_version(model, {_OLDEST})"
        raise invalid(
            path, f"version {version} of ONNX's operators",
            f"a version from {_OLDEST} to {onnx.defs.onnx_opset_version()}",
            fix if version < _OLDEST else "install a newer onnx",
        )  # fmt: skip
    return version
