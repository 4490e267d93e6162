"""Weights in transit: compact, and never trusted."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import TunableTensor
from mistify.package.weights import most_bytes, read_weights, write_weights

finite = st.floats(-4, 4, width=16)


def tunable_of(weights):
    return {
        name: TunableTensor(shape=values.shape, norm=float(np.linalg.norm(values)))
        for name, values in weights.items()
    }


@given(
    arrays.arrays(np.float32, arrays.array_shapes(max_dims=4, max_side=5), elements=finite),
    arrays.arrays(np.float32, arrays.array_shapes(max_dims=1, max_side=7), elements=finite),
)
def test_weights_arrive_as_float16(tmp_path_factory, kernel, bias):
    weights = {"a/kernel": kernel, "a/bias": bias}
    path = tmp_path_factory.mktemp("weights") / "file"
    path.write_bytes(write_weights(weights))
    actual = read_weights(path, tunable_of(weights))
    assert path.stat().st_size <= most_bytes(tunable_of(weights))
    for name, values in weights.items():
        assert actual[name].dtype == np.float32
        np.testing.assert_array_equal(actual[name], values.astype(np.float16))


def transposed(values):
    return np.array(values.T, order="C").T


LAYOUTS = {
    "by rows": lambda values: np.array(values, order="C"),
    "by columns": lambda values: np.array(values, order="F"),
    "transposed": transposed,
    "backwards": lambda values: values[tuple(slice(None, None, -1) for _ in values.shape)],
    "every other": lambda values: np.repeat(values, 2, -1)[..., ::2] if values.ndim else values,
    "broadcast": lambda values: np.broadcast_to(values[:1] if values.ndim else values, values.shape),
    "big-endian": lambda values: values.astype(">f4"),
    "double": lambda values: values.astype(np.float64),
    "half": lambda values: np.array(values, np.float16, order="F"),
}


@given(
    arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4), elements=finite
    ),
    st.sampled_from(sorted(LAYOUTS)),
    st.booleans(),
)
def test_the_memory_layout_of_weights_does_not_matter(tmp_path_factory, values, layout, large):
    """Safetensors writes an array's memory sequentially, whatever its order and strides."""
    laid_out = np.asanyarray(LAYOUTS[layout](values * np.float32(1e6 if large and layout != "half" else 1)))
    expected = np.array([*laid_out.flat], np.float32).reshape(values.shape)
    path = tmp_path_factory.mktemp("weights") / "file"
    path.write_bytes(write_weights({"a": laid_out}))
    (actual,) = read_weights(path, tunable_of({"a": expected})).values()
    assert actual.shape == values.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)


def test_weights_outside_the_range_of_float16_stay_float32(tmp_path):
    weights = {"a": np.float32([1e6, -1.0 / 3]), "b": np.float32([1.0, 2.0])}
    path = tmp_path / "file"
    path.write_bytes(write_weights(weights))
    actual = read_weights(path, tunable_of(weights))
    np.testing.assert_array_equal(actual["a"], weights["a"])


def test_trained_weights_are_compressed_to_less_than_half():
    """Weights of one network are of similar magnitude."""
    weights = {"kernel": np.random.default_rng(0).normal(0, 0.1, 40_000).astype(np.float32)}
    assert len(write_weights(weights)) < 0.44 * 4 * 40_000


@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        (lambda data: data[:-5], "cut off"),
        (lambda data: data + b"x", "cut off, or something follows it"),
        (lambda data: zlib.compress(bytes(10**8)), "more than"),
        (lambda data: zlib.compress(b"\xff" * 30), "cannot be read"),
        (lambda data: save({"a": np.ones(2, np.float32)}), "cannot be read"),
        (lambda data: b"", "cut off"),
    ],
    ids=["short", "long", "bomb", "no safetensors", "not deflated", "empty"],
)
def test_damaged_or_unsuitable_files_are_refused(tmp_path, spoil, reported):
    weights = {"a": np.ones(2, np.float32)}
    path = tmp_path / "file"
    path.write_bytes(spoil(write_weights(weights)))
    with pytest.raises(MistifyError, match=reported) as caught:
        read_weights(path, tunable_of(weights))
    assert caught.value.code is ErrorCode.INVALID_PUBLICATION
