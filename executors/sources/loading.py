"""Loading of source models from users' files and the worker's own files."""

from pathlib import Path
from typing import Final

from executors.inspection.directories import is_graph
from executors.sources.contract import SourceModel
from executors.sources.frozen_graph.loading import load_graph
from executors.sources.frozen_graph.source import FrozenGraph
from executors.sources.keras.loading import load_keras
from executors.sources.keras.source import KerasSource

_KINDS: Final[dict[str, type[SourceModel]]] = {kind.suffix: kind for kind in (KerasSource, FrozenGraph)}


def load_source(path: Path, sequence: int | None = None, classes: int | None = None) -> SourceModel:
    """Check and load a model that is a file or a directory.

    Args:
        path: `.keras`, `.h5` or `.hdf5`, a SavedModel, or a keras_hub preset.
        sequence: Number of tokens of a text, for presets.
        classes: Number of classes of the classifier added to a preset.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, the problem and an acceptable alternative.
    """
    return load_graph(path) if is_graph(path) else KerasSource(load_keras(path, sequence, classes))


def read_source(path: Path) -> SourceModel:
    """Load a model from a file written by `SourceModel.write`."""
    return _KINDS[path.suffix].read(path)
