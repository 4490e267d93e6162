"""In-memory cache of source models and data, valid until one of their files changes."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from executors.data import Dataset, split
from executors.data.errors import invalid
from executors.readers.loading import load_dataset
from executors.sources.contract import SourceModel
from executors.sources.keras.builtin import builtin_source
from executors.sources.keras.flat import flatten
from executors.sources.keras.loading import load_application
from executors.sources.keras.source import KerasSource
from executors.sources.loading import load_call, load_source
from executors.structure.signature import Signature, with_channels_first
from executors.timing import activity
from mistify.config.data.dataset import TextSettings
from mistify.errors import Problem
from mistify.jobs.job import ProgressUpdate
from mistify.scenarios.space import TaskSpace
from mistify_server.tasks.messages import LOADING, OnProgress
from mistify_server.tasks.sources import DataSource, ModelSource

#: Number of files, latest modification time in nanoseconds, total size in bytes.
FileStamp: TypeAlias = tuple[int, int, int]

#: Parts of the data, and the stamps of their files.
DataVersion: TypeAlias = tuple["LearningData | DataPart", tuple[FileStamp, ...]]

#: Minimum number of training examples for splitting off validation data.
_LEAST_EXAMPLES: Final = 2

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SourceCache:
    """Loads source models and data, and keeps the most recent ones.

    Attributes:
        learning: Loads training and validation data; raises MistifyError if there are too few.
        data: Loads a complete part of the data.
        source: Loads a source model; raises MistifyError like `executors.sources`.
    """

    def __init__(self, report: OnProgress) -> None:
        self.learning = _until_changed(_load_learning, LearningData.paths)
        self.data = _until_changed(_load_data, DataPart.paths)
        self.source = _until_changed(partial(_load_source, report), _source_paths)


@dataclass(frozen=True)
class DataPart:
    """A part of the data, and the part that defines its classes, if any: usually the training data.

    If it is not `labelled`, only inputs are read. `tasks` is the file of the tasks that it answers. The
    inputs in `channels_first` may have channels first.
    """

    source: str
    schema_source: str | None
    signature: Signature
    text: TextSettings | None
    labelled: bool = True
    tasks: str | None = None
    channels_first: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        """Return the paths from which the data are read."""
        vocabulary = self.text.vocabulary if self.text else None
        return [path for path in (self.source, self.schema_source, vocabulary, self.tasks) if path]


@dataclass(frozen=True)
class LearningData:
    """Training and validation data; the latter are a share of the former or a separate part.

    Labelled training data may be combined with unlabelled data.
    """

    train: DataPart
    validation: DataPart | float
    unlabelled: DataPart | None = None

    def paths(self) -> list[str]:
        """Return the paths from which the data are read."""
        others = (part for part in (self.validation, self.unlabelled) if isinstance(part, DataPart))
        return [*self.train.paths(), *(path for part in others for path in part.paths())]


def parts_of(data: DataSource, signature: Signature) -> tuple[LearningData, DataPart]:
    """Return the training and validation data, and the test data, for a model with this signature.

    Until pseudo-labels exist, unlabelled inputs replace the parts that a config omits.
    """

    def part(source: str | None) -> DataPart:
        schema_source = None if source == data.schema_source else data.schema_source
        return DataPart(
            source or data.unlabelled or "",
            schema_source,
            signature,
            data.settings.text,
            source is not None,
            data.settings.tasks,
            data.channels_first,
        )

    train, test = (part(data.answered.get(name, getattr(data, name))) for name in ("train", "test"))
    validation = data.settings.validation
    return (
        LearningData(
            train,
            part(validation) if isinstance(validation, str) else validation,
            None if data.train is None or data.unlabelled is None else part(None),
        ),
        test,
    )


def version_of(data: LearningData | DataPart) -> DataVersion:
    """Return a value that changes with the files of the data."""
    return data, _stamps(data.paths())


def _load_learning(data: LearningData) -> tuple[Dataset, Dataset]:
    train = _load_data(data.train)
    if isinstance(data.validation, DataPart):
        return train, _load_data(data.validation)
    if len(train) < _LEAST_EXAMPLES:
        expected = f"at least {_LEAST_EXAMPLES} examples, one for training and one for validation"
        raise invalid(Problem("dataset.train", f"{len(train)} example", expected, "add some"))
    return split(train, data.validation)


def _load_data(part: DataPart) -> Dataset:
    space = None if part.tasks is None else TaskSpace.read(Path(part.tasks))
    return load_dataset(
        part.source,
        with_channels_first(part.signature, part.channels_first),
        part.schema_source,
        part.text,
        labelled=part.labelled,
        space=space,
    )


def _source_paths(source: ModelSource) -> list[str]:
    return [path for path in (source.path, source.external_data, source.weights) if path]


def _load_source(report: OnProgress, source: ModelSource) -> SourceModel:
    report(ProgressUpdate(stage=LOADING, step=0, total_steps=1))
    model = _loaded(source)
    report(ProgressUpdate(stage="loaded the model", step=1, total_steps=1))
    return model


def _loaded(source: ModelSource) -> SourceModel:
    if source.builtin is not None:
        return KerasSource(flatten(source.builtin, builtin_source(source.builtin)))
    weights = None if source.weights is None else Path(source.weights)
    if source.application is not None:
        return KerasSource(load_application(source.application, source.classes, source.input, weights))
    if source.call is not None:
        return load_call(Path(source.path or ""), source.call, weights)
    return load_source(Path(source.path or ""), source.sequence, source.classes, dict(source.sizes))


def _until_changed(load: Callable[[K], T], paths_of: Callable[[K], list[str]]) -> Callable[[K], T]:
    """Return `load` with a small cache, in which entries are valid until one of their files changes."""

    @lru_cache(maxsize=4)
    @activity("loading")
    def loaded(key: K, _stamp: Hashable) -> T:
        return load(key)

    def current(key: K) -> T:
        return loaded(key, _stamps(paths_of(key)))

    return current


def _stamps(paths: Sequence[str]) -> tuple[FileStamp, ...]:
    return tuple(_stamp(Path(path)) for path in paths)


def _stamp(path: Path) -> FileStamp:
    """Return the stamp of a file, or of all files in a directory."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    statuses = [file.stat() for file in files]
    newest = max((status.st_mtime_ns for status in statuses), default=0)
    return len(statuses), newest, sum(status.st_size for status in statuses)
