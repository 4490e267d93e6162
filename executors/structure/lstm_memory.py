"""An LSTM that returns its memory, as a layer with one result."""

from typing import Any, Final

import keras
from keras import ops
from typing_extensions import override

#: The package under which Keras finds the layer in the config of a model.
_PACKAGE: Final = "mistify"


@keras.saving.register_keras_serializable(_PACKAGE)
class LSTMWithMemory(keras.layers.LSTM):  # type: ignore[misc]  # Keras has no types
    """An LSTM whose memory follows its outputs as a further step.

    The result is [n, steps + 1, units], or [n, 2, units] for the last output alone. Channel c of all steps
    belongs to unit c, so that units are cut as those of other recurrent layers.
    """

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(units, **{**options, "return_state": True})

    @override
    def call(
        self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        output, _, memory = super().call(sequences, initial_state, mask, training)
        steps = output if self.return_sequences else output[:, None]
        return ops.concatenate([steps, memory[:, None]], axis=1)

    @override
    def compute_output_shape(self, sequences_shape: Any, initial_state_shape: Any = None) -> Any:
        steps = sequences_shape[1] if self.return_sequences else 1
        return (sequences_shape[0], steps + 1, self.units)

    @override
    def compute_mask(self, _: Any, mask: Any) -> None:
        """Return no mask: layers that read the result are given masks of their own."""
