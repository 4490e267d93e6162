"""Small models, arrays for them, and the problems found in data."""

import numpy as np
import pytest

from executors.readers.loading import load_dataset
from executors.structure.signature import Activation, Input, Output, Signature
from mistify.errors import ErrorCode, MistifyError

X = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2])

IMAGE = Input("image", (2, 2), "float32")
SCORES = Output("scores", (3,), Activation.SOFTMAX)
ONE = Signature((IMAGE,), (SCORES,))

PRICE = Output("price", (1,), Activation.NONE)

#: A model whose targets decide whether it does regression or classification.
FIGURES = Input("figures", (3,), "float32")
OPEN = Signature((FIGURES,), (PRICE,))


def problems_of(source, signature=ONE, train=None):
    with pytest.raises(MistifyError, match="cannot be used") as caught:
        load_dataset(source, signature, train)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert {problem.place for problem in caught.value.problems} == {source}
    return [str(problem) for problem in caught.value.problems]
