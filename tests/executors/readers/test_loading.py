"""Data in files converted for a model, and all problems with it."""

import numpy as np
import pytest

from executors.data import storage
from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output, Signature
from tests.executors.readers.arrays import IMAGE, ONE, PRICE, SCORES, X, Y, problems_of

TOKENS = Input("tokens", (4,), "int32")
TAGS = Output("tags", (4, 5), Activation.NONE)
SPAM = Output("spam", (1,), Activation.SIGMOID)
SEVERAL = Signature((IMAGE, TOKENS), (SCORES, TAGS, SPAM, PRICE))
ARRAYS = {
    "image": X,
    "tokens": np.arange(24).reshape(6, 4),
    "scores": Y,
    "tags": np.array([[0, 4, -1, -1]] * 6),
    "spam": np.array([0, 1, 1, 0, 1, 0]),
    "price": np.linspace(0, 1, 6),
}


@pytest.mark.parametrize("names", [("x", "y"), ("image", "scores"), ("image", "y")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int16])
def test_inputs_keep_their_type_and_classes_become_int64(saved, dtype, names):
    data = load_dataset(saved(**{names[0]: X.astype(dtype), names[1]: Y.astype(np.uint8)}), ONE)
    assert data.inputs["image"].dtype == dtype
    assert data.targets["scores"].dtype == np.int64
    np.testing.assert_array_equal(data.inputs["image"], X)
    np.testing.assert_array_equal(data.targets["scores"], Y)
    assert len(data) == 6


def test_classes_may_be_a_column(saved):
    data = load_dataset(saved(x=X, y=Y[:, None]), ONE)
    np.testing.assert_array_equal(data.targets["scores"], Y)


def test_other_arrays_are_ignored(saved):
    data = load_dataset(saved(x=X, y=Y, names=np.array(["a", None], dtype=object)), ONE)
    assert len(data) == 6


def test_fortran_order_is_supported(saved):
    data = load_dataset(saved(x=np.asfortranarray(X), y=Y), ONE)
    np.testing.assert_array_equal(data.inputs["image"], X)


def test_several_inputs_and_outputs_are_in_the_order_of_the_model(saved):
    data = load_dataset(saved(**dict(reversed(ARRAYS.items()))), SEVERAL)
    assert (list(data.inputs), list(data.targets)) == (
        ["image", "tokens"],
        ["scores", "tags", "spam", "price"],
    )
    for name, array in {**data.inputs, **data.targets}.items():
        np.testing.assert_allclose(array, ARRAYS[name])
    assert {name: array.dtype for name, array in data.targets.items()} == {
        "scores": np.int64,
        "tags": np.int64,
        "spam": np.int64,
        "price": np.float32,
    }


def test_large_arrays_are_kept_in_a_file_unchanged(saved, monkeypatch):
    source = saved(x=X, y=Y)
    monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 10)
    data = load_dataset(source, ONE)
    assert isinstance(data.inputs["image"], np.memmap)
    np.testing.assert_array_equal(data.inputs["image"], X)
    part = data.subset(np.array([5, 0, 0]))
    assert isinstance(part.inputs["image"], np.memmap)
    np.testing.assert_array_equal(part.inputs["image"], X[[5, 0, 0]])
    np.testing.assert_array_equal(part.targets["scores"], [2, 0, 0])


def test_fortran_order_is_supported_in_large_arrays(saved, monkeypatch):
    source = saved(x=np.asfortranarray(X), y=Y)
    monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 10)
    data = load_dataset(source, ONE)
    assert isinstance(data.inputs["image"], np.memmap)
    np.testing.assert_array_equal(data.inputs["image"], X)


def test_the_digits_are_split_without_overlap():
    signature = Signature((Input("image", (8, 8, 1), "float32"),), (Output("d", (10,), Activation.SOFTMAX),))
    train, test = (load_dataset(f"builtin:digits-{part}", signature) for part in ("train", "test"))
    x, y = train.inputs["image"], test.inputs["image"]
    assert (x.shape, y.shape) == ((1438, 8, 8, 1), (359, 8, 8, 1))
    assert (x.min(), x.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(np.unique(test.targets["d"]), np.arange(10))
    rows = {row.tobytes() for row in x}
    assert not any(row.tobytes() in rows for row in y)
    again = load_dataset("builtin:digits-test", signature)
    np.testing.assert_array_equal(again.inputs["image"], y)


def test_an_unknown_builtin_dataset_is_refused():
    (problem,) = problems_of("builtin:cifar")
    assert "one of digits-train, digits-test" in problem


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": X}, "no array scores, but x; expected image and scores (or x and y)"),
        ({"y": Y}, "no array image, but y"),
        ({"inputs": X}, "no array image and none scores, but inputs"),
        ({"x": X, "y": Y[:4]}, "x of shape (6, 2, 2) and y of shape (4,)"),
        (
            {"x": X, "y": np.eye(6)[:, :3].astype(int)},
            "y of shape (6, 3) and type int64; expected integer cl",
        ),
        ({"x": X[:0], "y": Y[:0]}, "x of shape (0, 2, 2)"),
        ({"x": np.float32(3), "y": Y}, "x of shape ()"),
        ({"x": X, "y": np.int64(3)}, "y of shape ()"),
        ({"x": X, "y": Y / 2}, "y of shape (6,) and type float64; expected integer classes [n]"),
        ({"x": X.astype(str), "y": Y}, "x of type <U"),
        ({"x": X, "y": Y.astype(str)}, "expected numbers; number the classes from 0"),
        ({"x": X.astype(complex), "y": Y}, "x of type complex128"),
        ({"x": X.astype(object), "y": Y}, "x.npy contains Python objects"),
        ({"x": np.where(X == 13, np.nan, X), "y": Y}, "NaN or infinity in x[3]"),
        ({"x": np.where(X == 23, -np.inf, X), "y": Y}, "NaN or infinity in x[5]"),
        (
            {"x": np.where(X == 13, np.float64(1e39), X), "y": Y},
            "a number outside the range of float32 in x[3]",
        ),
        ({"x": X.reshape(6, 4), "y": Y}, "x of shape (6, 4); expected [examples, 2, 2]"),
        ({"x": X[:, :1], "y": Y}, "x of shape (6, 1, 2); expected [examples, 2, 2]"),
        ({"x": X, "y": np.array([0, 1, 3, 0, 0, 9])}, "y[2] = 3; expected classes 0 to 2"),
        ({"x": X, "y": np.array([1, 2, 3, 1, 2, 3])}, "subtract 1 from all of them: classes begin at 0"),
        ({"x": X, "y": np.array([0, 1, 2, -1, 0, 0])}, "y[3] = -1; expected classes 0 to 2"),
    ],
)
def test_unusable_arrays_are_refused(saved, arrays, text):
    (problem,) = problems_of(saved(**arrays))
    assert text in problem


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("tokens", X.reshape(6, 4), "tokens of type float32; expected integers"),
        ("tags", np.full((6, 4), 5), "tags[0, 0] = 5; expected classes 0 to 4, or -1"),
        ("tags", np.full((6, 3), 1), "tags of shape (6, 3) and type int64; expected integer classes [n, 4]"),
        ("spam", np.arange(6), "spam[2] = 2; expected 0 or 1"),
        ("spam", np.arange(6.0), "spam[2] = 2; expected 0 or 1"),
        ("spam", np.arange(6) / 4, "spam[5] = 1.25; expected numbers from 0 to 1"),
        ("price", np.array([0, 1, np.nan, 0, 0, 0]), "NaN or infinity in price[2]"),
        ("price", np.zeros((6, 2)), "price of shape (6, 2) and type float64; expected floats [n, 1]"),
    ],
)
def test_each_of_several_arrays_is_reported(saved, name, array, text):
    (problem,) = problems_of(saved(**{**ARRAYS, name: array}), SEVERAL)
    assert text in problem


@pytest.mark.parametrize(
    ("spam", "dtype"),
    [(np.arange(6) % 2, "int64"), (np.arange(6.0) % 2, "int64"), (np.arange(6) / 5, "float32")],
)
def test_targets_of_a_sigmoid_are_between_0_and_1(saved, spam, dtype):
    loaded = load_dataset(str(saved(**{**ARRAYS, "spam": spam})), SEVERAL).targets["spam"]
    assert loaded.dtype == dtype
    np.testing.assert_allclose(loaded, spam, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize(("actual", "row"), [(9, 0), (-1, 4)])
def test_unknown_token_ids_are_reported(saved, actual, row, dtype):
    tokens = (np.arange(24).reshape(6, 4) % 9).astype(dtype)
    tokens[row, 2] = actual
    known = Signature((Input("tokens", (4,), dtype, 9),), (SCORES,))
    (problem,) = problems_of(saved(x=tokens, y=Y), known)
    assert f"{tokens[row, 2]} in x[{row}]; expected ids 0 to 8" in problem


def test_all_problems_are_reported_at_once(saved):
    problems = problems_of(saved(x=np.full((3, 2, 2), np.nan), y=np.ones(4)))
    assert [text in problem for text, problem in zip(("rows", "NaN", "type"), problems, strict=True)] == [
        True
    ] * 3


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert "a single array" in problems_of(str(tmp_path / "x.npy"))[0]


@pytest.mark.parametrize("name", ["none.npz", "none.mat"])
def test_missing_files_and_unknown_formats_are_refused(tmp_path, name):
    problems_of(str(tmp_path / name))
