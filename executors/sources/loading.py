"""Loading of source models from users' files and the worker's own files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from executors.inspection.directories import is_graph
from executors.inspection.onnx_file import check_installed, is_onnx
from executors.sources.contract import SourceModel
from executors.sources.frozen_graph.loading import load_graph
from executors.sources.frozen_graph.source import FrozenGraph
from executors.sources.keras.loading import load_keras
from executors.sources.keras.source import KerasSource

_KINDS: Final[dict[str, type[SourceModel]]] = {kind.suffix: kind for kind in (KerasSource, FrozenGraph)}


def load_source(
    path: Path,
    sequence: int | None = None,
    classes: int | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> SourceModel:
    """Check and load a model that is a file or a directory.

    Args:
        path: `.keras`, `.h5` or `.hdf5`, `.onnx` or a directory with such a file and its external data, a
            SavedModel, or a keras_hub preset.
        sequence: Number of tokens of a text, for presets.
        classes: Number of classes of the classifier added to a preset.
        sizes: Input of an ONNX file -> its sizes without the batch, where the file leaves them free.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, the problem and an acceptable alternative.
    """
    if is_onnx(path):
        check_installed(path)
        from executors.sources.onnx.loading import read_onnx  # noqa: PLC0415 (needs onnx, which is optional)

        return KerasSource(*read_onnx(path, sizes))
    return load_graph(path) if is_graph(path) else KerasSource(load_keras(path, sequence, classes))


def load_call(path: Path, call: str, weights: Path | None = None) -> SourceModel:
    """Load the PyTorch network that a function in a Python file returns, with an example input.

    Args:
        weights: A file that the function takes as its argument; None if it takes none.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, the problem and an acceptable alternative.
    """
    check_installed(path)
    from executors.sources.pytorch.loading import load_pytorch  # noqa: PLC0415 (as above)

    return KerasSource(*load_pytorch(path, call, weights))


def read_source(path: Path) -> SourceModel:
    """Load a model from a file written by `SourceModel.write`."""
    return _KINDS[path.suffix].read(path)
