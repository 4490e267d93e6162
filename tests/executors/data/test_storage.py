"""Arrays that grow."""

import numpy as np
import pytest

from executors.data.storage import Rows


@pytest.mark.parametrize(
    ("first", "then"), [("int64", "float32"), ("uint8", "int64"), ("float32", "float64")]
)
def test_rows_of_a_wider_type_are_refused(first, then):
    rows = Rows()
    rows.append(np.zeros((2, 3), first))
    with pytest.raises(ValueError, match=f"rows of type {then} among rows of {first}"):
        rows.append(np.zeros((2, 3), then))


def test_rows_of_a_narrower_type_are_taken():
    rows = Rows()
    rows.append(np.array([0.5], "float32"))
    rows.append(np.array([255], "uint8"))
    assert (rows.array().tolist(), rows.array().dtype) == ([0.5, 255.0], np.float32)
