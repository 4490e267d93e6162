"""What a worker works on: source models and data, kept until a file of theirs changes."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import keras

from executors.data import Dataset
from executors.readers.loading import load_dataset
from executors.sources import builtin_source, flatten, load_application, load_source
from executors.sources.graphs import FrozenGraph, load_graph
from executors.structure.signature import Signature
from executors.timing import activity
from mistify.config.dataset import TextSettings
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import LOADING, OnProgress
from mistify_server.tasks.sources import DataSource, ModelSource

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SourceCache:
    """Loads models and data.

    Attributes:
        data: A part of the data.
        source: A source model; raises MistifyError as `executors.sources` does.
        graph: One without Keras structure, likewise.
    """

    def __init__(self, report: OnProgress) -> None:
        self.data = _until_changed(_load_data, DataPart.paths)
        self.source = _until_changed(partial(_load_source, report), _source_paths)
        self.graph = _until_changed(partial(_load_graph, report), _source_paths)


@dataclass(frozen=True)
class DataPart:
    """Training data, or test data with the training data whose classes they share."""

    source: str
    train: str | None
    signature: Signature
    text: TextSettings | None

    def paths(self) -> list[str]:
        """What the data are read from."""
        vocabulary = self.text.vocabulary if self.text else None
        return [path for path in (self.source, self.train, vocabulary) if path]


def parts_of(data: DataSource, signature: Signature) -> tuple[DataPart, DataPart]:
    """Training and test data for a model."""
    text = data.settings.text
    return DataPart(data.train, None, signature, text), DataPart(data.test, data.train, signature, text)


def _load_data(part: DataPart) -> Dataset:
    return load_dataset(part.source, part.signature, part.train, part.text)


def _source_paths(source: ModelSource) -> list[str]:
    return [path for path in (source.path, source.weights) if path]


def _load_source(report: OnProgress, source: ModelSource) -> keras.Model:
    report(ProgressUpdate(stage=LOADING, step=0, total_steps=1))
    model = _loaded(source)
    report(ProgressUpdate(stage="loaded the model", step=1, total_steps=1))
    return model


def _load_graph(report: OnProgress, source: ModelSource) -> FrozenGraph:
    report(ProgressUpdate(stage=LOADING, step=0, total_steps=1))
    graph = load_graph(Path(source.path or ""))
    report(ProgressUpdate(stage="loaded the model", step=1, total_steps=1))
    return graph


def _loaded(source: ModelSource) -> keras.Model:
    if source.builtin is not None:
        return flatten(source.builtin, builtin_source(source.builtin))
    if source.application is not None:
        weights = None if source.weights is None else Path(source.weights)
        return load_application(source.application, source.classes, source.input, weights)
    return load_source(Path(source.path or ""), source.sequence, source.classes)


def _until_changed(load: Callable[[K], T], paths_of: Callable[[K], list[str]]) -> Callable[[K], T]:
    """Keep what was loaded from the last files until a file changes."""

    @lru_cache(maxsize=4)
    @activity("loading")
    def loaded(key: K, _stamp: Hashable) -> T:
        return load(key)

    def current(key: K) -> T:
        return loaded(key, tuple(_stamp(Path(path)) for path in paths_of(key)))

    return current


def _stamp(path: Path) -> tuple[int, int, int]:
    """Number, newest time of change and size of the files of a path, be it a file or a directory."""
    files = [path] if path.is_file() else [found for found in path.rglob("*") if found.is_file()]
    found = [file.stat() for file in files]
    newest = max((status.st_mtime_ns for status in found), default=0)
    return len(found), newest, sum(status.st_size for status in found)
