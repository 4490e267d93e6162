"""Test data in every format, and the problems found in it."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from executors.readers.loading import load_dataset
from executors.structure.signature import Signature
from mistify.errors import MistifyError

FORMATS = ["npz", "csv", "jsonl", "tfrecord"]


def signature(inputs, outputs):
    return Signature(tuple(inputs), tuple(outputs))


def problem_of(source, sig, **options):
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(str(source), sig, **options)
    assert caught.value.problems[0].place == str(source)
    return str(caught.value.problems[0])


def write_csv(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_jsonl(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def write_table(path, header, rows):
    if path.suffix.lower() == ".csv":
        return write_csv(path, header, rows)
    return write_jsonl(path, [dict(zip(header, row, strict=True)) for row in rows])


def write_images(root, images):
    for name, pixels in images.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / name)
    return root


def write_records(path, rows):
    def feature(value):
        texts = (value,) if isinstance(value, bytes | str) else value
        if isinstance(texts, tuple):
            content = [text if isinstance(text, bytes) else text.encode() for text in texts]
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=content))
        array = np.ravel(value)
        if array.dtype.kind == "f":
            return tf.train.Feature(float_list=tf.train.FloatList(value=array))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=array))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            features = tf.train.Features(feature={name: feature(value) for name, value in row.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return path


def write_labelled(path, targets):
    """Write examples of three numbers with these targets, in the format given by the suffix."""
    if path.suffix == ".npz":
        np.savez(path, x=np.ones((len(targets), 3), np.float32), y=np.array(targets))
        return path
    if path.suffix == ".tfrecord":
        return write_records(path, [{"x": np.ones(3), "y": target} for target in targets])
    return write_table(path, ["x", "y"], [["1 1 1", target] for target in targets])
