"""`.npz` files that are damaged, or whose arrays are not read because they cannot fit."""

import io
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from executors.data.storage import Rows
from executors.structure.signature import Input, Signature
from tests.executors.readers.arrays import IMAGE, SCORES, X, Y, problems_of


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
