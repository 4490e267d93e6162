import numpy as np
import pytest

from executors.data import Dataset
from executors.outputs.empty_classes import check_balanced, empty_classes
from executors.structure.signature import Activation, Output, Signature
from mistify.parsing.validation import InvalidValue

NONE = Activation.NONE


@pytest.mark.parametrize(("classes", "empty"), [([0, 1, 2, 3], []), ([0, 3, 3], [1, 2]), ([2], [0, 1, 3])])
def test_classes_without_examples_are_found_and_cannot_be_balanced(classes, empty):
    signature = Signature((), (Output("kind", (4,), NONE),))
    data = Dataset({}, {"kind": np.array(classes)})
    assert empty_classes(signature, data) == empty
    check_balanced(signature, data, (1.0, 2.0, 1.0, 1.0))
    if not empty:
        check_balanced(signature, data, "balanced")
        return
    with pytest.raises(
        InvalidValue, match=f"there are none of class {empty[0]} and of {len(empty) - 1} more"
    ):
        check_balanced(signature, data, "balanced")


def test_empty_classes_are_not_reported_at_positions():
    signature = Signature((), (Output("tags", (2, 4), NONE),))
    assert empty_classes(signature, Dataset({}, {"tags": np.zeros((3, 2), int)})) == []
