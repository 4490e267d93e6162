"""ONNX files: parsed within limits, and with external data only from files beside them."""

import os
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Final

from executors.inspection.config import ClassPolicy
from executors.inspection.directories import GRAPH
from executors.inspection.errors import invalid, too_large
from executors.inspection.limits import LIMITS, Limits
from mistify.config.files import ONNX, external_data_of

_EXPECTED: Final = "an ONNX model that passes onnx.checker.check_model"
_EXPORT: Final = "export it again"

#: Largest size of an ONNX file without external data.
_LARGEST: Final = 2**31 - 1

#: Largest nesting depth of graphs in attributes of nodes.
_DEPTH: Final = 16


def is_onnx(path: Path) -> bool:
    """Check whether a model is an ONNX file, or a directory with one."""
    if path.is_dir():
        return not (path / GRAPH).exists() and any(path.glob(f"*{ONNX}"))
    return path.suffix == ONNX


def onnx_file(path: Path) -> Path:
    """Return the ONNX file of a model: the file itself, or the only one in a directory.

    Raises:
        MistifyError: INVALID_MODEL if a directory has several.
    """
    if not path.is_dir():
        return path
    files = sorted(path.glob(f"*{ONNX}"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files[:5])
        raise invalid(path, f"a directory with {names}", f"a single {ONNX} file", "remove the others")
    return files[0]


def inspect_onnx(path: Path, policy: ClassPolicy) -> int:
    """Return the number of weights in an ONNX file and its external data.

    Raises:
        MistifyError: INVALID_MODEL, onnx is not installed, or the file is damaged, has functions of its own,
            exceeds the limits, or refers to data elsewhere than in regular files beside it.
    """
    return sum(prod(weight.dims) for weight in _weights(parse_onnx(path, policy.limits).graph))


def with_external_data(path: Path) -> bytes | None:
    """Return an ONNX file that contains its external data; None if it has none.

    Raises:
        MistifyError: INVALID_MODEL, onnx is not installed, or the file is damaged, has functions of its own,
            exceeds the limits, or refers to data elsewhere than in regular files beside it; or the file with
            its data would be too large.
    """
    model, file = parse_onnx(path, LIMITS), onnx_file(path)
    external = [entry for weight in _weights(model.graph) for entry in weight.external_data]
    locations = {entry.value for entry in external if entry.key == "location"}
    if not locations:
        return None
    size = file.stat().st_size + sum((file.parent / location).stat().st_size for location in locations)
    if size > _LARGEST:
        raise invalid(
            path, f"an ONNX file and external data of {size:,} bytes", f"at most {_LARGEST:,} bytes",
            "give the directory with both as the model of a config",
        )  # fmt: skip
    read_external_data(model, file.parent)
    return bytes(model.SerializeToString())


def read_external_data(model: Any, directory: Path) -> None:
    """Read the external data of a model from `parse_onnx` into its tensors.

    onnx itself refuses files with several hard links, which are how a server keeps uploads.

    Args:
        directory: The directory with the ONNX file.
    """
    from onnx import TensorProto  # noqa: PLC0415 (optional)

    for weight in _weights(model.graph):
        if weight.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in weight.external_data}
        handle = os.open(directory / entries["location"], os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            file.seek(int(entries.get("offset", "0")))
            weight.raw_data = file.read(_bytes_of(weight))
        weight.data_location = TensorProto.DEFAULT
        del weight.external_data[:]


def check_installed(path: Path) -> None:
    """Refuse a model that needs onnx, if that is not installed.

    Raises:
        MistifyError: INVALID_MODEL, with the command that installs it.
    """
    if find_spec("onnx") is None:
        raise invalid(
            path, "a network that is read as ONNX, which is not installed", "onnx",
            "run pip install 'mistify-porting[onnx]' on the server",
        )  # fmt: skip


def parse_onnx(path: Path, limits: Limits) -> Any:
    """Return the `ModelProto` of an ONNX file, whose external data were checked but not read.

    Raises:
        MistifyError: INVALID_MODEL, onnx is not installed, or the file is damaged, has functions of its own,
            exceeds the limits, or refers to data elsewhere than in regular files beside it.
    """
    check_installed(path)
    import onnx  # noqa: PLC0415 (optional)
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (comes with onnx)

    file = onnx_file(path)
    try:
        model = onnx.load(file, load_external_data=False)
    except DecodeError as error:
        raise invalid(path, "a file that is not ONNX, or damaged", _EXPECTED, _EXPORT) from error
    if not model.graph.output or not model.graph.node:
        raise invalid(path, "an ONNX file without nodes or outputs", _EXPECTED, _EXPORT)
    if model.functions:
        raise invalid(
            path, "a graph with functions of its own", "a graph of ONNX's operators",
            "inline them with onnx.inliner.inline_local_functions",
        )  # fmt: skip
    _check_graph(path, model.graph, limits)
    declared = 0
    for weight in _weights(model.graph):
        declared += prod(weight.dims)
        _check_weight(path, weight, limits)
    if declared > limits.weights:
        raise too_large(path, f"{declared:,} weights", limits.weights)
    return model


def _check_graph(path: Path, graph: Any, limits: Limits, depth: int = 0) -> None:
    if depth > _DEPTH:
        raise too_large(path, "graphs nested more deeply", _DEPTH)
    if len(graph.node) > limits.entries:
        raise too_large(path, f"a graph of {len(graph.node):,} nodes", limits.entries)
    if graph.sparse_initializer:
        raise invalid(path, "sparse weights", "dense weights", "store the weights as dense tensors")
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                _check_graph(path, inner, limits, depth + 1)


def _weights(graph: Any) -> Iterator[Any]:
    """Yield the tensors stored in a graph: initializers, and attributes of nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs) if attribute.type in (5, 10) else ():
                yield from _weights(inner)


def _check_weight(path: Path, weight: Any, limits: Limits) -> None:
    from onnx import TensorProto  # noqa: PLC0415 (optional)

    name = weight.name[:100] or "of a constant"
    if any(size < 0 for size in weight.dims):
        raise invalid(path, f"a tensor {name} of shape {list(weight.dims)}", _EXPECTED, _EXPORT)
    if prod(weight.dims) > limits.weights:
        raise too_large(path, f"a tensor {name} of {prod(weight.dims):,} entries", limits.weights)
    if weight.data_type == TensorProto.STRING:
        if weight.data_location == TensorProto.EXTERNAL:
            raise invalid(path, f"a tensor {name} of texts in another file", "numbers there", _EXPORT)
        return
    try:
        needed = _bytes_of(weight)
    except KeyError as error:
        raise invalid(path, f"a tensor {name} of an unknown type", _EXPECTED, _EXPORT) from error
    if weight.data_location == TensorProto.EXTERNAL:
        _check_external(path, weight, needed)
    elif weight.HasField("raw_data") and len(weight.raw_data) != needed:
        raise invalid(
            path, f"a tensor {name} of shape {list(weight.dims)} with {len(weight.raw_data):,} bytes",
            f"{needed:,} bytes", _EXPORT,
        )  # fmt: skip


def _bytes_of(weight: Any) -> int:
    """Return the number of bytes that a tensor needs.

    Raises:
        KeyError: Its type is unknown.
    """
    from onnx import TensorProto, helper  # noqa: PLC0415 (optional)

    bits = helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize * 8
    packed = "INT4" in TensorProto.DataType.Name(weight.data_type)
    return int(prod(weight.dims) * (4 if packed else bits) + 7) // 8


def _check_external(path: Path, weight: Any, needed: int) -> None:
    """Refuse external data that are not in a regular file beside the model, or not large enough.

    If the model is not given as a directory, only `net.onnx.data` beside `net.onnx` belongs to it.
    """
    entries = {entry.key: entry.value for entry in weight.external_data}
    location = entries.get("location", "")
    name = weight.name[:100]
    if not location or Path(location).name != location or "\\" in location or "\0" in location:
        raise invalid(
            path, f"a tensor {name} with its data in {location[:100]!r}",
            "the name of a file beside the model",
            "save it with onnx.save_model(MODEL, FILE, save_as_external_data=True)",
        )  # fmt: skip
    data = onnx_file(path).parent / location
    try:
        status = data.lstat()
    except OSError as error:
        raise invalid(
            path, f"no file {location[:100]} with the data of {name} beside the model", "all its files",
            "copy it there and give the directory that contains both, or save the model as a single file",
        ) from error  # fmt: skip
    if not stat.S_ISREG(status.st_mode):
        raise invalid(
            path, f"{location[:100]}, which is a link or a device", "a regular file", "copy the file"
        )
    if not path.is_dir() and data != external_data_of(path):
        raise invalid(
            path, f"a tensor {name} with its data in {location[:100]}", f"{path.name}.data beside the model",
            "give a directory that contains only the model's files, or save the model as a single file",
        )  # fmt: skip
    first, length = (entries.get(key, default) for key, default in (("offset", "0"), ("length", str(needed))))
    fits = first.isdecimal() and len(first) < 20 and length == str(needed)
    if not fits or int(first) + needed > status.st_size:
        raise invalid(
            path, f"a tensor {name} at {first[:20]}+{length[:20]} in a file of {status.st_size:,} bytes",
            f"{needed:,} bytes within the file", "copy both files again",
        )  # fmt: skip
