"""Correct predictions counted by a training network."""

import numpy as np
import pytest

from executors.outputs.objectives import IGNORED, Binary
from executors.structure.signature import Activation
from mistify_server.worker.packaging.training.entropy import correct


@pytest.mark.parametrize(("activation", "middle"), [(Activation.SIGMOID, 0.5), (Activation.NONE, 0.0)])
def test_unknown_binary_labels_do_not_count(activation, middle):
    output = middle + np.float32([[0.3], [0.3], [-0.3], [-0.3], [0.3], [-0.3]])
    target = np.int32([[1], [0], [0], [1], [IGNORED], [IGNORED]])
    right, counted = correct(Binary(activation), output, target)
    assert (float(right), float(counted)) == (2, 4)
