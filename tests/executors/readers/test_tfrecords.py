"""Features of records: types, and missing features."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from tests.executors.readers.files import problem_of, signature, write_records

FIGURES = Input("figures", (3,), "float32")
FREE = Input("free", (None,), "float32")
KIND = Output("kind", (3,), Activation.SOFTMAX)
PRICE = Output("price", (1,), Activation.NONE)


@pytest.mark.parametrize("output", [KIND, PRICE])
@pytest.mark.parametrize("empty", [[], np.array([], np.int64), ()])
@pytest.mark.parametrize("name", ["x", "y"])
def test_an_empty_feature_is_reported(tmp_path, output, empty, name):
    rows = [{"x": np.ones(3), "y": 1}, {"x": np.ones(3), "y": 1, name: empty}]
    path = write_records(tmp_path / "t.tfrecord", rows)
    reported = problem_of(path, signature([FREE if name == "x" else FIGURES], [output]))
    assert f"t.tfrecord, record 1: {name} is nothing; expected numbers" in reported


def test_a_feature_missing_from_a_later_record_is_reported(tmp_path):
    """Also if a block of records begins with that record."""
    rows = [{"x": np.ones(3), "y": 1} for _ in range(300)]
    del rows[256]["x"]
    path = write_records(tmp_path / "t.tfrecord", rows)
    assert "t.tfrecord, record 256: x is nothing" in problem_of(path, signature([FIGURES], [PRICE]))


def test_numbers_become_floats_whatever_the_type_in_the_record(tmp_path):
    rows = [{"x": np.array([1, 2, 3]), "y": 1}, {"x": np.array([0.5, 2, 3]), "y": 1}]
    figures = load_dataset(
        str(write_records(tmp_path / "t.tfrecord", rows)), signature([FIGURES], [KIND])
    ).inputs["figures"]
    assert (figures.tolist(), figures.dtype) == ([[1, 2, 3], [0.5, 2, 3]], np.float32)


@pytest.mark.parametrize("before", [1, 300])
@pytest.mark.parametrize(
    ("first", "then", "reported"),
    [(3, 2.5, "y of type float32; expected type int64"), (2.5, 3, "y of type int64; expected type float32")],
)
def test_a_record_with_a_target_of_another_type_is_reported(tmp_path, before, first, then, reported):
    rows = [{"x": np.ones(3), "y": y} for y in [*[first] * before, then]]
    path = write_records(tmp_path / "t.tfrecord", rows)
    assert f"t.tfrecord, record {before}: {reported}, as in earlier rows" in problem_of(
        path, signature([FIGURES], [PRICE])
    )


@pytest.mark.parametrize("other", [1, ""])
def test_a_target_that_is_not_a_class_name_is_reported(tmp_path, other):
    rows = [{"x": np.ones(3), "y": kind} for kind in ("cat", "dog", "eel", other)]
    path = write_records(tmp_path / "t.tfrecord", rows)
    reported = problem_of(path, signature([FIGURES], [KIND]))
    assert (
        f"t.tfrecord, record 3: y is {other!r}; expected one of the training data's cat, dog, eel" in reported
    )


@pytest.mark.parametrize("kept", [5, 11, 40, -1])
def test_a_truncated_record_is_reported(tmp_path, kept):
    path = write_records(tmp_path / "t.tfrecord", [{"x": np.ones(3), "y": 1}])
    path.write_bytes(path.read_bytes() + path.read_bytes()[:kept])
    reported = problem_of(path, signature([FIGURES], [PRICE]))
    assert "t.tfrecord, record 1: truncated; expected complete records, not compressed" in reported


def test_a_compressed_file_is_reported(tmp_path):
    path = write_records(tmp_path / "t.tfrecord", [{"x": np.ones(3), "y": 1}])
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert "t.tfrecord, record 0: compressed" in problem_of(path, signature([FIGURES], [PRICE]))


def test_the_data_say_which_features_were_encoded_images(tmp_path):
    pixels = np.zeros((4, 5, 3), np.uint8)
    encoded = tf.io.encode_png(pixels).numpy()
    photo, inputs = Input("photo", (4, 5, 3), "float32"), [Input("photo", (4, 5, 3), "float32"), FIGURES]
    path = write_records(tmp_path / "a.tfrecord", [{"photo": encoded, "figures": np.ones(3), "y": 1}])
    assert load_dataset(str(path), signature(inputs, [KIND])).origins == {"photo": "image"}
    path = write_records(tmp_path / "b.tfrecord", [{"photo": pixels, "y": 1}])
    assert load_dataset(str(path), signature([photo], [KIND])).origins == {}
