"""The score of a slice on the examples of a device."""

from typing import Any

import numpy as np
import numpy.typing as npt

from mistify.errors import Problem
from mistify.package.factory import FactoryStore
from mistify.package.manifest import TensorInfo
from mistify.package.training import OutputEncoding
from mistify.tflite.session import Session
from mistify_client.examples import YES_OR_NO, Examples, invalid_data
from mistify_client.runtime.inputs import bind

#: Examples that are run at once.
_BATCH = 64

Answers = npt.NDArray[np.int64]


class SliceScorer:
    """Scores slices by balanced accuracy: the mean recall over the answers.

    Raises:
        MistifyError: INVALID_DATASET, fewer than two different answers are known, which every slice could
            give, or they are fractions.
    """

    def __init__(self, store: FactoryStore, output: TensorInfo, examples: Examples) -> None:
        self._kind = store.kind_of(output)
        self._output, self._examples = output.name, examples
        self._right = _whole(examples.targets[output.name]).ravel()
        self._answers = np.unique(self._right[self._right >= 0])
        if self._answers.size < 2:
            answers = f"the answer {self._answers[0]} alone" if self._answers.size else "none that is known"
            raise invalid_data(Problem("the labels", answers, "at least two different answers", "add some"))

    def __call__(
        self, network: bytes, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]
    ) -> float:
        """Return the score of a network.

        Args:
            network: Content of its `.tflite` for any batch size.
        """
        session = Session(network, threads=1)
        (output,) = (info for info in outputs if info.name == self._output)
        predicted = np.concatenate(
            [
                self._predicted(output.dequantized(session(bind(inputs, (batch.inputs,), {}))[self._output]))
                for batch in self._examples.chunks(_BATCH)
            ]
        )
        shares = [np.mean(predicted[self._right == answer] == answer) for answer in self._answers]
        return float(np.mean(shares))

    def _predicted(self, output: npt.NDArray[np.float32]) -> Answers:
        """Return the predicted answer to each example [examples]."""
        if self._kind in YES_OR_NO:
            least = 0.5 if self._kind is OutputEncoding.SIGMOID else 0.0
            return (output > least).astype(np.int64).ravel()
        return np.asarray(output.argmax(axis=-1)).ravel()


def _whole(labels: npt.NDArray[Any]) -> Answers:
    """Return labels as integers."""
    if (labels % 1).any():
        raise invalid_data(Problem("the labels", "fractions", "numbers of answers, or -1", "round them"))
    return labels.astype(np.int64)
