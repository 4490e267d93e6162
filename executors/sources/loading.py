"""Source models from files, both users' and the worker's own."""

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
        path: `.keras`, `.h5` or `.hdf5`, a SavedModel, or a preset of keras_hub.
        sequence: Tokens of a text, for presets.
        classes: Classes of the classifier that a preset gets.

    Raises:
        MistifyError: INVALID_MODEL, naming the file, what is wrong and what would do.
    """
    return load_graph(path) if is_graph(path) else KerasSource(load_keras(path, sequence, classes))


def read_source(path: Path) -> SourceModel:
    """Return a model from a file that `SourceModel.write` has written."""
    return _KINDS[path.suffix].read(path)
