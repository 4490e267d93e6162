"""Growing arrays in memory and in files."""

import errno
import os
import shutil
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest

from executors.data import storage
from executors.data.storage import Rows, StorageError
from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output
from tests.executors.readers.files import FORMATS, signature, write_labelled

GIB = 2**30

PRICED = signature([Input("figures", (3,), "float32")], [Output("price", (1,), Activation.NONE)])


@pytest.mark.parametrize(
    ("first", "then"), [("int64", "float32"), ("uint8", "int64"), ("float32", "float64")]
)
def test_rows_of_a_wider_type_are_refused(first, then):
    rows = Rows()
    rows.append(np.zeros((2, 3), first))
    with pytest.raises(ValueError, match=f"rows of type {then} among rows of {first}"):
        rows.append(np.zeros((2, 3), then))


def test_rows_of_a_narrower_type_are_accepted():
    rows = Rows()
    rows.append(np.array([0.5], "float32"))
    rows.append(np.array([255], "uint8"))
    assert (rows.array().tolist(), rows.array().dtype) == ([0.5, 255.0], np.float32)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_full_disk_is_not_reported_as_a_problem_of_the_data(tmp_path, monkeypatch, number, suffix):
    source = write_labelled(tmp_path / f"data.{suffix}", [0.5, 1.5])

    def refuse(**_options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 10)
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        load_dataset(str(source), PRICED)
    assert raised.value.errno == number


@pytest.mark.parametrize(
    ("total", "free", "room"),
    [(100 * GIB, 2 * GIB + 100, True), (100 * GIB, 2 * GIB + 99, False), (GIB, GIB // 20 + 100, True)],
)
def test_large_arrays_leave_free_space_on_the_disk(tmp_path, monkeypatch, total, free, room):
    def usage(path):
        assert path == tmp_path / "mistify"
        return SimpleNamespace(total=total, free=free)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 10)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    rows = Rows()
    rows.append(np.zeros(50, np.uint8))
    if room:
        rows.append(np.zeros(100, np.uint8))
        assert rows.array().shape == (150,)
        return
    with pytest.raises(StorageError, match="No space left") as raised:
        rows.append(np.zeros(100, np.uint8))
    assert raised.value.errno == errno.ENOSPC


def test_the_first_rows_in_a_file_leave_free_space_as_well(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(total=100 * GIB, free=2 * GIB))
    with pytest.raises(StorageError, match="No space left"):
        Rows().append(np.zeros(50, np.uint8))
