"""TFRecord: `tf.train.Example` records in one file, or in the shards of a directory."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from executors.data.dataset import Origin
from executors.data.errors import invalid
from executors.data.storage import Array, Rows
from executors.readers.decoding import decode_image, takes_images
from executors.readers.formats import Arrays, Reader, Request, Schema, append
from executors.readers.image_files import counts_by_suffix, shown
from executors.structure.signature import Input, Output, Tensor
from mistify.errors import Problem

_BLOCK: Final = 256
_MARK: Final = ".tfrecord"

#: A record consists of its length, a checksum of the length, the content, and a checksum of the content.
_LENGTH_BYTES: Final = 8
_FRAME_BYTES: Final = _LENGTH_BYTES + 4 + 4

#: The first bytes of a gzip-compressed file.
_GZIP: Final = b"\x1f\x8b"

#: The place of an example, and the example.
Record: TypeAlias = tuple[str, Any]


class TFRecordReader(Reader):
    """A reader of features named after the inputs and outputs: numbers, encoded images, or class names."""

    def accepts(self, path: Path) -> bool:
        """Check for a file with `.tfrecord` in its name, or a directory with such files in it."""
        return bool(_shards(path))

    def read(self, path: Path, request: Request) -> Arrays:
        """Return the features as arrays."""
        arrays: dict[str, Rows] = {}
        wanted: Mapping[str, Tensor] = {}
        records = _records(path)
        while block := list(islice(records, _BLOCK)):
            wanted = wanted or request.wanted(list(block[0][1].features.feature))
            for name, tensor in wanted.items():
                rows = [(record[0], _row(path, record, name, tensor, request)) for record in block]
                append(arrays.setdefault(name, Rows()), path, name, rows)
        return {name: rows.array() for name, rows in arrays.items()}

    def origins(self, path: Path, request: Request) -> Mapping[str, Origin]:
        """Return the inputs whose feature in the first record is an encoded image."""
        _, example = next(_records(path), ("", tf.train.Example()))
        features = example.features.feature
        wanted = request.wanted(list(features)).items()
        return {
            tensor.name: "image"
            for name, tensor in wanted
            if isinstance(tensor, Input) and features[name].HasField("bytes_list")
        }

    def left_out(self, path: Path, request: Request) -> str:
        """Describe the files other than shards, and links that lead out of the directory."""
        shards = {*_shards(path)}
        return counts_by_suffix([file for file in shown(path) if file not in shards]) if path.is_dir() else ""

    def schema(self, path: Path, request: Request) -> Schema:
        """Return the sorted texts of features named after outputs, and which outputs have only integers."""
        names: dict[str, set[str]] = {}
        whole: dict[str, bool] = {}
        for _, example in _records(path):
            for name, tensor in request.wanted(list(example.features.feature)).items():
                if isinstance(tensor, Output):
                    feature = example.features.feature[name]
                    whole[tensor.name] = whole.get(tensor.name, True) and not feature.HasField("float_list")
                    if feature.bytes_list.value:
                        names.setdefault(tensor.name, set()).update(_texts(feature.bytes_list.value))
        return Schema({name: tuple(sorted(texts - {""})) for name, texts in names.items()}, whole)


def _shards(path: Path) -> list[Path]:
    """Return the files of a dataset, sorted by name."""
    if path.is_dir():
        root = path.resolve()
        return sorted(
            file for file in path.iterdir()
            if _is_shard(file) and file.is_file() and file.resolve().is_relative_to(root)
        )  # fmt: skip
    return [path] if _is_shard(path) else []


def _is_shard(path: Path) -> bool:
    """Check whether a file's name has the mark, after which shards have their number."""
    return _MARK in path.name.lower()


def _records(path: Path) -> Iterator[Record]:
    """Yield every example of a file or of shards."""
    for shard in _shards(path):
        _check_lengths(path, shard)
        number = 0
        try:
            for record in tf.data.TFRecordDataset(str(shard)):
                yield f"{shard.name}, record {number}", tf.train.Example.FromString(record.numpy())
                number += 1
        except (tf.errors.OpError, DecodeError) as error:
            actual = f"{shard.name}, record {number}: unreadable ({type(error).__name__})"
            raise invalid(Problem(str(path), actual, "tf.train.Example", "write the file again")) from error


def _check_lengths(path: Path, shard: Path) -> None:
    """Refuse a file with a truncated record: TensorFlow would allocate memory for its declared length.

    Raises:
        MistifyError: INVALID_DATASET, naming the record.
    """
    size, at, number = shard.stat().st_size, 0, 0
    with shard.open("rb", buffering=0) as file:
        while at < size:
            length = file.read(_LENGTH_BYTES)
            end = at + int.from_bytes(length, "little") + _FRAME_BYTES
            if end > size:
                actual = (
                    f"{shard.name}, record {number}: {'compressed' if length[:2] == _GZIP else 'truncated'}"
                )
                raise invalid(
                    Problem(str(path), actual, "complete records, not compressed", "write the file again")
                )
            file.seek(end)
            at, number = end, number + 1


def _row(path: Path, record: Record, name: str, tensor: Tensor, request: Request) -> Array:
    place, example = record
    feature = example.features.feature[name]
    kind = feature.WhichOneof("kind")
    named = isinstance(tensor, Output) and (kind == "bytes_list" or tensor.name in request.schema.classes)
    try:
        values = getattr(feature, kind).value if kind else ()
        if not values:
            raise ValueError("nothing")
        if named:
            return _classes(values, tensor, request.schema.classes.get(tensor.name, ()))
        if kind == "bytes_list":
            return _image(values[0], tensor)
        figures = kind == "float_list" or (isinstance(tensor, Input) and tensor.figures)
        return _shaped(np.asarray(values, np.float32 if figures else np.int64), tensor)
    except ValueError as error:
        actual = f"{place}: {name} is {error}"
        shape = tensor.data_shapes[0] if isinstance(tensor, Input) else tensor.shape
        expected = request.expected_class(tensor) if named else f"numbers of shape {list(shape)}"
        raise invalid(Problem(str(path), actual, expected, "write the record again")) from error


def _image(content: bytes, tensor: Tensor) -> Array:
    if not takes_images(tensor.shape):
        raise ValueError("bytes")
    return decode_image(content, tensor.shape)


def _classes(values: Any, tensor: Tensor, names: tuple[str, ...]) -> Array:
    """Return the class numbers of class names."""
    labels = _texts(values) if isinstance(values[0], bytes) else list(values)
    unknown = [name for name in labels if name not in names]
    if unknown:
        raise ValueError(repr(unknown[0]))
    numbers = np.array([names.index(name) for name in labels], np.int64)
    return numbers if len(tensor.shape) > 1 else numbers[0]


def _texts(values: Any) -> list[str]:
    return [text.decode("utf-8", "replace") for text in values]


def _shaped(values: Array, tensor: Tensor) -> Array:
    """Return numbers in the shape of an input or of an output's targets."""
    if isinstance(tensor, Input):
        return values.reshape([-1 if size is None else size for size in tensor.data_shapes[0]])
    return values if len(tensor.shape) > 1 or len(values) > 1 else values.reshape(-1)[0]
