"""Suitable arrays are used directly; others are converted, or refused with all problems."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from mistify.errors import MistifyError
from mistify.package.manifest import TensorInfo
from mistify_client.runtime.inputs import bind

IMAGE = TensorInfo(name="image", dtype="float32", shape=(-1, 2, 3))
COUNT = TensorInfo(name="count", dtype="int32", shape=(-1,))
INPUTS = (IMAGE, COUNT)

image = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
count = np.array([1, 2], np.int32)


@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((image, count), {}),
        ((image,), {"count": count}),
        ((), {"count": count, "image": image}),
        (({"count": count, "image": image},), {}),
        ((MappingProxyType({"count": count, "image": image}),), {}),
    ],
)
def test_suitable_arrays_are_not_copied(positional: Any, named: Any) -> None:
    bound = bind(INPUTS, positional, named)
    assert list(bound) == ["image", "count"]
    assert bound["image"] is image
    assert bound["count"] is count


@pytest.mark.parametrize(
    "other",
    [
        image.astype(np.float16),
        np.asfortranarray(image),
        np.repeat(image, 2, axis=0)[::2],
        image.view(np.recarray),
    ],
)
def test_other_arrays_are_converted(other: Any) -> None:
    bound = bind(INPUTS, (other, count), {})
    np.testing.assert_array_equal(bound["image"], image)
    assert bound["image"].dtype == np.float32
    assert bound["image"].flags.c_contiguous


@pytest.mark.parametrize(
    "numbers", [image.tolist(), (image / 3).tolist(), image.astype(int).tolist(), list(image.astype(float))]
)
def test_lists_of_numbers_are_accepted(numbers: Any) -> None:
    bound = bind(INPUTS, (numbers, [1, 2]), {})
    np.testing.assert_array_equal(bound["image"], np.array(numbers, np.float32))
    np.testing.assert_array_equal(bound["count"], count)
    assert [array.dtype for array in bound.values()] == [np.float32, np.int32]


def test_lists_of_numbers_are_quantized_for_an_integer_input() -> None:
    info = IMAGE.model_copy(update={"dtype": "int8", "scale": 0.5, "zero_point": -3})
    (actual,) = bind((info,), (image.astype(int).tolist(),), {}).values()
    np.testing.assert_array_equal(actual, info.quantized(image))


@pytest.mark.parametrize("numbers", [[1, 2**31], [1, -(2**70)], [1.0, 2.0], ["1", "2"], [1j, 2]])
def test_lists_outside_the_integer_range_are_refused(numbers: Any) -> None:
    with pytest.raises(MistifyError, match=r"count: got .*; expected int32"):
        bind(INPUTS, (image, numbers), {})


@pytest.mark.parametrize(
    ("positional", "named", "place"),
    [
        ((image[:1], count), {}, "inputs"),
        ((image[:0], count[:0]), {}, "image"),
        ((image[0], count), {}, "image"),
        ((image, count.astype(np.int64)), {}, "count"),
        ((image, np.int32(1)), {}, "count"),
        ((image,), {"image": image}, "image"),
        ((image,), {"number": count}, "number"),
        ((image,), {}, "count"),
        ((image, count, count), {}, "inputs"),
        (({"image": image},), {"count": count}, "inputs"),
        (({"image": image}, count), {}, "image"),
        (({"image": image, "counts": count},), {}, "counts"),
        (({"image": image},), {}, "count"),
        (({"image": image, 1: count},), {}, "1"),
        (([[1.0], [2.0, 3.0]], count), {}, "image"),
    ],
)
def test_unsuitable_inputs_are_refused(positional: Any, named: Any, place: str) -> None:
    with pytest.raises(MistifyError) as caught:
        bind(INPUTS, positional, named)
    assert place in [problem.place for problem in caught.value.problems]


def test_a_tensor_without_a_batch_dimension_requires_its_exact_shape() -> None:
    fixed = TensorInfo(name="table", dtype="float32", shape=(2, 3))
    bound = bind((fixed,), (image[0],), {})
    np.testing.assert_array_equal(bound["table"], image[0])
    with pytest.raises(MistifyError, match="does not fit"):
        bind((fixed,), (image[0][:1],), {})


def test_an_error_states_the_input_and_the_expected_shape_and_type() -> None:
    with pytest.raises(MistifyError) as caught:
        bind(INPUTS, ({"imag": image, "count": count.reshape(2, 1)},), {})
    assert [str(problem) for problem in caught.value.problems] == [
        'imag: got an array of shape (2, 2, 3); expected one of count, image; did you mean "image"?',
        "image: got nothing; expected an array of float32 of shape (batch, 2, 3); "
        "the network takes 2 (image, count)",
        "count: got shape (2, 1); expected shape (batch); reshape it",
    ]


@pytest.mark.parametrize(
    ("first", "shape", "fix"),
    [
        (False, (4, 3, 2, 5), "numpy.moveaxis(array, 1, -1)"),
        (False, (2, 5, 3), "array[numpy.newaxis]"),
        (True, (3, 2, 5), "array[numpy.newaxis]"),
        (False, (4, 5, 2, 3), "reshape it"),
        (False, (), "reshape it"),
    ],
)
def test_the_fix_of_a_shape_keeps_the_order_of_values(first: bool, shape: tuple[int, ...], fix: str) -> None:
    info = TensorInfo(name="image", dtype="float32", shape=(-1, 2, 5, 3), channels_first=first)
    with pytest.raises(MistifyError) as caught:
        bind((info,), (np.zeros(shape, np.float32),), {})
    (problem,) = caught.value.problems
    assert fix in problem.fix


def with_values(*values: float) -> Any:
    changed = image.copy()
    changed.ravel()[: len(values)] = values
    return changed


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (with_values(0, np.nan), "image[0, 0, 1]: got nan; expected"),
        (
            with_values(np.inf, 0, -np.inf),
            "image[0, 0, 0]: got inf, one of 2 of 12 values that are not finite",
        ),
        (with_values(np.nan).tolist(), "image[0, 0, 0]: got nan; expected"),
    ],
)
def test_non_finite_values_are_refused_if_requested(given: Any, place: str) -> None:
    assert not np.isfinite(bind(INPUTS, (given, count), {})["image"]).all()
    for positional in ((given, count), ({"image": given, "count": count},)):
        with pytest.raises(MistifyError) as caught:
            bind(INPUTS, positional, {}, finite=True)
        assert place in str(caught.value)
    assert bind(INPUTS, (image, count), {}, finite=True)["image"] is image


def test_floats_are_checked_before_quantization() -> None:
    quantized = TensorInfo(name="x", dtype="int8", shape=(-1, 2), scale=0.1, zero_point=0)
    with pytest.raises(MistifyError, match="nan"):
        bind((quantized,), (np.array([[np.nan, 1]], np.float32),), {}, finite=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_images_may_have_channels_first_if_the_package_says_so(dtype: Any) -> None:
    info = TensorInfo(name="image", dtype="float32", shape=(-1, 4, 5, 3), channels_first=True)
    last = np.arange(120, dtype=dtype).reshape(2, 4, 5, 3)
    first = np.ascontiguousarray(np.moveaxis(last, -1, 1))
    for given in (last, first, first.tolist()):
        bound = bind((info,), (given,), {})["image"]
        np.testing.assert_array_equal(bound, last)
        assert bound.flags.c_contiguous
    with pytest.raises(MistifyError) as caught:
        bind((info,), (last[:, :3],), {})
    assert r"expected shape (batch, 4, 5, 3) or (batch, 3, 4, 5)" in str(caught.value)


def test_ambiguous_images_have_channels_first() -> None:
    info = TensorInfo(name="image", dtype="float32", shape=(-1, 3, 3, 3), channels_first=True)
    given = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)
    np.testing.assert_array_equal(bind((info,), (given,), {})["image"], np.moveaxis(given, 1, -1))


def test_images_have_channels_last_otherwise() -> None:
    info = TensorInfo(name="image", dtype="float32", shape=(-1, 4, 5, 3))
    with pytest.raises(MistifyError):
        bind((info,), (np.zeros((2, 3, 4, 5), np.float32),), {})
