"""Data in files converted for a model, and all problems with it."""

import io
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from executors.data import storage
from executors.data.storage import Rows
from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output, Signature
from mistify.errors import ErrorCode, MistifyError
from tests.executors.readers.files import FORMATS, problem_of, write_images, write_labelled

X = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2])

IMAGE = Input("image", (2, 2), "float32")
SCORES = Output("scores", (3,), Activation.SOFTMAX)
ONE = Signature((IMAGE,), (SCORES,))

TOKENS = Input("tokens", (4,), "int32")
TAGS = Output("tags", (4, 5), Activation.NONE)
SPAM = Output("spam", (1,), Activation.SIGMOID)
PRICE = Output("price", (1,), Activation.NONE)
SEVERAL = Signature((IMAGE, TOKENS), (SCORES, TAGS, SPAM, PRICE))
ARRAYS = {
    "image": X,
    "tokens": np.arange(24).reshape(6, 4),
    "scores": Y,
    "tags": np.array([[0, 4, -1, -1]] * 6),
    "spam": np.array([0, 1, 1, 0, 1, 0]),
    "price": np.linspace(0, 1, 6),
}

#: A model whose targets decide whether it does regression or classification.
FIGURES = Input("figures", (3,), "float32")
OPEN = Signature((FIGURES,), (PRICE,))


@pytest.fixture
def saved(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return save


@pytest.fixture
def labelled(tmp_path):
    return lambda name, targets: str(write_labelled(tmp_path / name, targets))


def problems_of(source, signature=ONE, train=None):
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(source, signature, train)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert {problem.place for problem in caught.value.problems} == {source}
    return [str(problem) for problem in caught.value.problems]


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


def test_test_data_may_lack_classes(saved):
    source = saved(x=X, y=np.zeros(6, int))
    assert len(load_dataset(source, ONE, train=source)) == 6


@pytest.mark.parametrize("also", [{}, {"y": np.full(6, 99)}, {"scores": np.array(["?"] * 6)}])
def test_targets_of_unlabelled_inputs_are_ignored(saved, also):
    data = load_dataset(saved(x=X, **also), ONE, labelled=False)
    np.testing.assert_array_equal(data.inputs["image"], X)
    assert data.targets == {}


@pytest.mark.parametrize("suffix", FORMATS)
def test_unlabelled_inputs_are_read_in_every_format(labelled, suffix):
    path = labelled(f"data.{suffix}", [0.5, 1.5, 2.5])
    with_targets = load_dataset(path, OPEN)
    without = load_dataset(path, OPEN, labelled=False)
    np.testing.assert_array_equal(without.inputs["figures"], with_targets.inputs["figures"])
    assert without.targets == {}


@pytest.mark.parametrize("header", ["b,a,c", "b,a,c,y"])
def test_columns_of_unlabelled_inputs_are_in_the_order_of_the_training_data(tmp_path, header):
    (tmp_path / "train.csv").write_text("a,b,c,y\n1,2,3,0.5\n")
    (tmp_path / "more.csv").write_text(f"{header}\n{','.join('2132'[: header.count(',') + 1])}\n")
    train, more = (str(tmp_path / name) for name in ("train.csv", "more.csv"))
    data = load_dataset(more, OPEN, train, labelled=False)
    assert data.inputs["figures"].tolist() == [[1, 2, 3]]
    alone = load_dataset(more, OPEN, labelled=False)
    assert alone.inputs["figures"].tolist() == [[2, 1, 3]]


def test_unlabelled_images_may_be_in_folders_of_any_names(tmp_path):
    image = Signature((Input("image", (6, 5, 3), "float32"),), (SCORES,))
    names = ["2.png", "b/1.png", "b/3.png"]
    pictures = {name: np.full((6, 5, 3), number, np.uint8) for number, name in enumerate(names)}
    folder = write_images(tmp_path / "photos", pictures)
    data = load_dataset(str(folder), image, labelled=False)
    assert data.inputs["image"][:, 0, 0, 0].tolist() == [0, 1, 2]
    flat = write_images(tmp_path / "flat", {"1.png": pictures["2.png"]})
    reported = problem_of(flat, image)
    assert "images without classes" in reported
    assert '"unlabelled"' in reported


def test_unlabelled_inputs_are_checked_like_others(saved):
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(saved(x=np.full((3, 2, 2), np.nan)), ONE, labelled=False)
    assert "NaN or infinity in x[0]" in str(caught.value.problems[0])
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(saved(pixels=X), ONE, labelled=False)
    assert "no array image, but pixels; expected image (or x)" in str(caught.value.problems[0])
    (problem,) = problems_of(saved(x=X))
    assert 'give only inputs as "unlabelled"' in problem


def test_all_problems_are_reported_at_once(saved):
    problems = problems_of(saved(x=np.full((3, 2, 2), np.nan), y=np.ones(4)))
    assert [text in problem for text, problem in zip(("rows", "NaN", "type"), problems, strict=True)] == [
        True
    ] * 3


def header(shape, dtype="<f4"):
    """Return the header of an array in a file, which declares its shape."""
    content = io.BytesIO()
    np.lib.format.write_array_header_2_0(content, {"descr": dtype, "fortran_order": False, "shape": shape})
    return content.getvalue()


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.zeros((6, 2, 999)), "y": Y}, "x of shape (6, 2, 999); expected [examples, 2, 2]"),
        ({"x": np.zeros((6, 2)), "y": Y}, "x of shape (6, 2); expected [examples, 2, 2]"),
        ({"y": np.zeros((6, 999)), "x": X}, "y of shape (6, 999) and type float64; expected integer classes"),
    ],
)
def test_arrays_of_unsuitable_shapes_are_not_read(saved, monkeypatch, arrays, text):
    monkeypatch.setattr("executors.readers.npz.Rows", lambda: pytest.fail("it was read"))
    (problem,) = problems_of(saved(**arrays))
    assert text in problem


def test_long_texts_instead_of_numbers_are_not_read(saved, monkeypatch):
    monkeypatch.setattr(Rows, "append", lambda _rows, array: array.dtype.kind != "S" or pytest.fail("read"))
    (problem,) = problems_of(saved(x=np.zeros((6, 2, 2), "S999"), y=Y), Signature((IMAGE,), ()))
    assert "x of type |S999; expected integers or floats" in problem


def test_an_absurdly_large_shape_is_refused(tmp_path):
    with ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", header((10**200, 10**200)))
        archive.writestr("y.npy", header((6,), "<i8"))
    (problem,) = problems_of(str(tmp_path / "data.npz"))
    assert "a file that cannot be read" in problem


def test_empty_rows_are_refused(saved):
    free = Signature((Input("image", (None,), "float32"),), (SCORES,))
    (problem,) = problems_of(saved(x=np.empty((6, 0), np.float32), y=Y), free)
    assert "x.npy has empty rows" in problem


def test_an_array_shorter_than_its_header_says_is_refused(tmp_path):
    with ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", header((10**12, 2, 2)) + bytes(100))
        archive.writestr("y.npy", header((10**12,), "<i8") + bytes(100))
    (problem,) = problems_of(str(tmp_path / "data.npz"))
    assert "x.npy is truncated" in problem


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", b"text, not arrays" * 10])
def test_an_invalid_archive_is_refused(tmp_path, content):
    (tmp_path / "data.npz").write_bytes(content)
    (problem,) = problems_of(str(tmp_path / "data.npz"))
    assert "an .npz file" in problem


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.99])
def test_a_truncated_archive_is_refused(saved, tmp_path, kept):
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


@pytest.mark.parametrize("name", ["none.npz", "none.mat"])
def test_missing_files_and_unknown_formats_are_refused(tmp_path, name):
    problems_of(str(tmp_path / name))


@pytest.mark.parametrize("train", FORMATS)
@pytest.mark.parametrize("test", FORMATS)
def test_integers_are_regression_targets_if_the_training_data_has_fractions(labelled, train, test):
    known = labelled(f"train.{train}", [2.5, 4.0])
    target = load_dataset(labelled(f"test.{test}", [1, 0, 3]), OPEN, known).targets["price"]
    assert (target.tolist(), target.dtype) == ([1, 0, 3], np.float32)


@pytest.mark.parametrize("train", FORMATS)
@pytest.mark.parametrize("test", FORMATS)
def test_classes_in_the_test_data_may_have_any_numeric_type(labelled, train, test):
    known = labelled(f"train.{train}", [1, 0])
    target = load_dataset(labelled(f"test.{test}", [1.0, 0.0]), OPEN, known).targets["price"]
    assert (target.tolist(), target.dtype) == ([1, 0], np.int64)
    reported = problem_of(labelled(f"test.{test}", [1.0, 0.5]), OPEN, train=known)
    assert "0.5" in reported
    assert "expected whole numbers, as in the training data" in reported


def test_problems_of_the_training_data_are_not_reported_for_the_test_data(saved, tmp_path, labelled):
    test = labelled("test.npz", [0, 2])
    sig = Signature((FIGURES,), (SCORES,))
    assert len(load_dataset(test, sig, labelled("train.npz", [0.5, 2]))) == 2
    (tmp_path / "train.npz").write_bytes(b"noise")
    assert len(load_dataset(test, sig, str(tmp_path / "train.npz"))) == 2
    assert len(load_dataset(test, sig, saved(labels=Y))) == 2


@pytest.mark.parametrize("train", ["train.npz", "builtin:digits-train"])
def test_class_names_in_test_data_are_refused_if_the_training_data_has_none(labelled, tmp_path, train):
    known = labelled(train, [0, 1, 2]) if train == "train.npz" else train
    sig = Signature((FIGURES,), (SCORES,))
    names = ["cat", "dog", "eel"]
    assert "row 2: scores = 'cat'; expected numbers" in problem_of(labelled("t.csv", names), sig, train=known)
    reported = problem_of(labelled("t.tfrecord", names), sig, train=known)
    assert (
        "record 0: y is 'cat'; expected numbers of classes, because the training data have no class names"
        in reported
    )
    image = Signature((Input("image", (6, 5, 3), "float32"),), (SCORES,))
    pets = write_images(tmp_path / "pets", {f"{name}/1.png": np.zeros((6, 5, 3), np.uint8) for name in names})
    reported = problem_of(pets, image, train=known)
    assert (
        "a class cat; expected numbers of classes, because the training data have no class names" in reported
    )
