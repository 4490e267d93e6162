"""Loading of data in any format for a model."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from executors.data.dataset import Dataset
from executors.data.errors import SchemaSourceError, invalid
from executors.data.storage import StorageError
from executors.readers.answers import answering, with_answers_of_tasks
from executors.readers.builtin import BUILTIN, read_builtin
from executors.readers.csv_files import csv_rows
from executors.readers.formats import Reader, Request, Schema
from executors.readers.images import ImageFolderReader
from executors.readers.jsonl_files import jsonl_rows
from executors.readers.matching import check_training_targets, matched_to_model
from executors.readers.npz import NpzReader
from executors.readers.tables import TableReader
from executors.readers.tfrecords import TFRecordReader
from executors.structure.signature import Signature
from mistify.config.data.dataset import TextSettings
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.scenarios.space import TaskSpace
from mistify.wording import counted

READERS: Final[tuple[Reader, ...]] = (
    NpzReader(),
    TableReader(".csv", csv_rows),
    TableReader(".jsonl", jsonl_rows),
    TFRecordReader(),
    ImageFolderReader(),
)

EXPECTED: Final = (
    "a file .npz, .csv, .jsonl or .tfrecord, or a directory of images by class or of TFRecord files"
)


def load_dataset(
    source: str,
    signature: Signature,
    train: str | None = None,
    text: TextSettings | None = None,
    *,
    labelled: bool = True,
    space: TaskSpace | None = None,
) -> Dataset:
    """Read data for a model.

    Args:
        source: A file or directory in a format of one of `READERS`, or the name of built-in data.
        signature: The inputs and outputs of the model.
        train: For test data, the training data, with the same classes, columns and kinds of targets.
        text: How text is converted to token ids.
        labelled: Read targets; otherwise none are returned, and columns that look like targets are not read
            as inputs.
        space: The tasks that the targets answer; None if the targets are those of the outputs.

    Raises:
        MistifyError: INVALID_DATASET with every problem: the file, what was found, what was expected.
        SchemaSourceError: The training data of test data cannot be used; the test data have no error that is
            visible without them.
        StorageError: Data larger than memory cannot be stored in a file.
    """
    request = Request(signature, text, labelled=labelled, space=space)
    if space is not None and len(signature.outputs) > 1:
        actual = f"answers to tasks for {counted(len(signature.outputs), 'output')}"
        raise invalid(Problem(source, actual, "a model with one output", "leave dataset.tasks out"))
    if source.startswith(BUILTIN):
        return matched_to_model(read_builtin(source), request, source)
    try:
        request = replace(request, schema=_decided(source, train or source, request))
        reader, path = _reader(source), Path(source)
        arrays, left_out = reader.read(path, request), reader.left_out(path, request)
        origins = reader.origins(path, request)
    except StorageError:
        raise
    except OSError as error:
        problem = Problem(source, f"unreadable data ({error.strerror})", "readable data", "check the file")
        raise invalid(problem) from error
    data = matched_to_model(with_answers_of_tasks(arrays, request, source), request, source)
    if train in (None, source):
        check_training_targets(data, request.outputs, source)
    data = data if space is None or not labelled else answering(data, space)
    return replace(data, origins=origins, left_out=left_out)


def _decided(source: str, schema_source: str, request: Request) -> Schema:
    """Return the schema defined by the training data.

    Raises:
        SchemaSourceError: The training data cannot be used, and the test data have no error of their own.
    """
    try:
        return _schema(schema_source, request)
    except (MistifyError, OSError) as error:
        if schema_source == source or isinstance(error, StorageError):
            raise
        _schema(source, request)
        message = f"{schema_source}, which decides on classes and columns, cannot be used"
        raise SchemaSourceError(ErrorCode.INVALID_DATASET, message) from error


def _schema(source: str, request: Request) -> Schema:
    """Return the schema of training data."""
    if source.startswith(BUILTIN):
        return Schema(whole={output.name: True for output in request.outputs})
    return _reader(source).schema(Path(source), request)


def _reader(source: str) -> Reader:
    path = Path(source)
    for reader in READERS:
        if reader.accepts(path):
            return reader
    actual = "a directory" if path.is_dir() else f"a file named {path.name}"
    raise invalid(Problem(source, actual, EXPECTED, "convert it"))
