from pathlib import Path

import numpy as np
import pytest

from executors.data import Dataset, check_dataset, load_dataset
from mistify.errors import ErrorCode, MistifyError

X = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture
def saved(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return save


def problems_of(source):
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(source)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert {problem.place for problem in caught.value.problems} == {source}
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int16])
def test_x_keeps_its_type_and_y_becomes_int64(saved, dtype):
    data = load_dataset(saved(x=X.astype(dtype), y=Y.astype(np.uint8)))
    assert data.x.dtype == dtype
    assert data.y.dtype == np.int64
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.y, Y)
    assert len(data) == 6


def test_a_column_of_classes_will_do(saved):
    np.testing.assert_array_equal(load_dataset(saved(x=X, y=Y[:, None])).y, Y)


def test_other_arrays_are_left_out(saved):
    data = load_dataset(saved(x=X, y=Y, names=np.array(["a", None], dtype=object)))
    assert len(data) == 6


def test_a_subset_has_the_examples_of_its_indices():
    part = Dataset(X, Y).subset(np.array([4, 1]))
    np.testing.assert_array_equal(part.x, X[[4, 1]])
    np.testing.assert_array_equal(part.y, [1, 1])


def test_the_digits_are_split_without_overlap():
    train, test = load_dataset("builtin:digits-train"), load_dataset("builtin:digits-test")
    assert (train.x.shape, test.x.shape) == ((1438, 8, 8, 1), (359, 8, 8, 1))
    assert train.x.min() == 0.0
    assert train.x.max() == 1.0
    np.testing.assert_array_equal(np.unique(test.y), np.arange(10))
    rows = {row.tobytes() for row in train.x}
    assert not any(row.tobytes() in rows for row in test.x)
    np.testing.assert_array_equal(load_dataset("builtin:digits-test").x, test.x)


def test_an_unknown_builtin_dataset_is_refused():
    (problem,) = problems_of("builtin:cifar")
    assert "one of digits-train, digits-test" in problem


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": X}, "no array y, but x"),
        ({"y": Y}, "no array x, but y"),
        ({"inputs": X}, "no array x and none y, but inputs"),
        ({"x": X, "y": Y[:4]}, "x of shape (6, 2, 2) and y of shape (4,)"),
        ({"x": X, "y": np.eye(6)[:, :3].astype(int)}, "y of shape (6, 3)"),
        ({"x": X[:0], "y": Y[:0]}, "x of shape (0, 2, 2)"),
        ({"x": np.float32(3), "y": Y}, "x of shape ()"),
        ({"x": X, "y": np.int64(3)}, "y of shape ()"),
        ({"x": X, "y": Y / 2}, "y of type float64; expected integer classes"),
        ({"x": X, "y": Y > 0}, "y of type bool"),
        ({"x": X.astype(str), "y": Y}, "x of type <U"),
        ({"x": X.astype(complex), "y": Y}, "x of type complex128"),
        ({"x": X.astype(object), "y": Y}, "no arrays, or pickled objects in them"),
        ({"x": np.where(X == 13, np.nan, X), "y": Y}, "NaN or infinity in x[3]"),
        ({"x": np.where(X == 23, -np.inf, X), "y": Y}, "NaN or infinity in x[5]"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(saved, arrays, text):
    (problem,) = problems_of(saved(**arrays))
    assert text in problem


def test_all_problems_are_told_at_once(saved):
    problems = problems_of(saved(x=np.full((3, 2), np.nan), y=np.ones(4)))
    assert [text in problem for text, problem in zip(("shape", "type", "NaN"), problems, strict=True)] == [
        True
    ] * 3


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", b"text, not arrays" * 10])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "data.npz").write_bytes(content)
    (problem,) = problems_of(str(tmp_path / "data.npz"))
    assert "an .npz file" in problem
    assert "allow_pickle" not in problem


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.99])
def test_an_archive_that_was_cut_short_is_refused(saved, tmp_path, kept):
    content = Path(saved(x=X, y=Y)).read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: int(kept * len(content))])
    problems_of(str(tmp_path / "cut.npz"))


def test_an_archive_with_flipped_bits_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", x=X, y=Y)
    content = bytearray((tmp_path / "data.npz").read_bytes())
    content[60:90] = bytes(255 - byte for byte in content[60:90])
    (tmp_path / "data.npz").write_bytes(content)
    problems_of(str(tmp_path / "data.npz"))


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert "a single array" in problems_of(str(tmp_path / "x.npy"))[0]


def test_a_file_that_is_not_there_is_refused(tmp_path):
    problems_of(str(tmp_path / "none.npz"))


@pytest.mark.parametrize("shape", [(None, 2, 2), (None, None, 2), (None, 2, None)])
def test_data_that_fit_have_no_problems(shape):
    assert check_dataset(Dataset(X, Y), "data", shape, 3) == []


@pytest.mark.parametrize("shape", [(None, 2, 3), (None, 2), (None, 2, 2, 1), (None, 4)])
def test_data_of_the_wrong_shape_are_told(shape):
    (problem,) = check_dataset(Dataset(X, Y), "data", shape, 3)
    assert problem.given == "x of shape (6, 2, 2)"
    assert problem.expected == f"[examples, {', '.join(map(str, shape[1:]))}]"


@pytest.mark.parametrize(
    ("y", "given"), [([0, 1, 3, 0, 0, 9], "y[2] = 3"), ([0, 0, 0, -1, 0, 0], "y[3] = -1")]
)
def test_classes_out_of_range_are_told(y, given):
    (problem,) = check_dataset(Dataset(X, np.array(y)), "data", (None, 2, 2), 3)
    assert (problem.given, problem.expected) == (given, "classes 0 to 2")


def test_shape_and_classes_are_told_together():
    assert len(check_dataset(Dataset(X, Y), "data", (None, 4), 2)) == 2
