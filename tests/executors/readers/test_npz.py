"""`.npz` files with other byte orders, damaged headers, or arrays far larger than the file."""

import io
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from mistify.errors import MistifyError
from tests.executors.readers.files import problem_of, signature

MODEL = signature([Input("x", (3,), "float32")], [Output("y", (2,), Activation.SOFTMAX)])
X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 1, 0])


def member(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def written(path, *members):
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("kind", [">f4", ">f8", "<f2", "longdouble", ">i2", ">u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_are_converted_to_native_byte_order_and_tensorflow_types(tmp_path, kind, order):
    np.savez(tmp_path / "d.npz", x=np.array(X, kind, order=order), y=Y.astype(">i4"))
    data = load_dataset(str(tmp_path / "d.npz"), MODEL)
    np.testing.assert_array_equal(data.inputs["x"], X)
    assert data.inputs["x"].dtype.isnative
    assert data.inputs["x"].dtype.itemsize <= 8
    assert data.targets["y"].tolist() == Y.tolist()


@pytest.mark.parametrize(
    "x",
    [
        np.array(1.0),
        X.astype(complex),
        X.astype(object),
        X.astype("U9"),
        np.zeros(4, [("a", "f4"), ("b", "i4")]),
        np.zeros((4, 3), "datetime64[s]"),
        np.zeros((0, 3)),
        np.full((4, 3), np.inf),
    ],
    ids=lambda x: f"{x.dtype.kind}{x.ndim}",
)
@pytest.mark.parametrize("name", ["x", "y"])
def test_non_numeric_arrays_are_refused(tmp_path, name, x):
    np.savez(tmp_path / "d.npz", **{"x": X, "y": Y, name: x})
    problem_of(tmp_path / "d.npz", MODEL)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.one_of(
        st.binary(max_size=80),
        st.text("{}()[]'\",:\\ \n\t0123456789truefalsedescrshape<f4LNone", max_size=80).map(str.encode),
    ),
    version=st.sampled_from([b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"]),
    declared=st.sampled_from([None, 0, 1, 2**16 - 1]),
)
def test_any_header_is_either_read_or_refused(tmp_path, header, version, declared):
    width = 2 if version == b"\x01\x00" else 4
    length = (len(header) if declared is None else declared).to_bytes(width, "little")
    content = b"\x93NUMPY" + version + length + header + bytes(64)
    path = written(tmp_path / "d.npz", ("x.npy", content), ("y.npy", member(Y)))
    with pytest.raises(MistifyError, match=r"d\.npz cannot be used"):
        load_dataset(str(path), MODEL)


def test_two_arrays_with_the_same_name_are_refused(tmp_path):
    path = written(tmp_path / "d.npz", ("x.npy", member(X)), ("y.npy", member(Y)), ("x", member(X + 1)))
    assert "two arrays in it have the same name" in problem_of(path, MODEL)


def test_an_array_far_larger_than_its_file_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("executors.readers.npz.IN_MEMORY_BYTES", 100_000)
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros((100_000, 3), np.float32), y=np.zeros(100_000, int))
    assert "x.npy has 1.2MB in 1." in problem_of(tmp_path / "d.npz", MODEL)
    np.savez(tmp_path / "d.npz", x=np.zeros((100_000, 3), np.float32), y=np.zeros(100_000, int))
    assert len(load_dataset(str(tmp_path / "d.npz"), MODEL)) == 100_000
    np.savez_compressed(tmp_path / "d.npz", x=np.zeros((1_000, 3), np.float32), y=np.zeros(1_000, int))
    assert len(load_dataset(str(tmp_path / "d.npz"), MODEL)) == 1_000


def test_the_error_for_an_unreadable_file_does_not_contain_its_path(tmp_path):
    (tmp_path / "d.npz").mkdir()
    reported = problem_of(tmp_path / "d.npz", MODEL).removeprefix(str(tmp_path / "d.npz"))
    assert "Is a directory" in reported
    assert str(tmp_path) not in reported
