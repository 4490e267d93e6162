"""Number of steps for which a network is tuned, by the loss that is left."""

from typing import Final

#: Mean loss of an answer, in nats, below which a source has little to learn from its data.
_LITTLE: Final = 0.1


def needed_steps(steps: int, loss: float | None, *, is_cut: bool) -> int:
    """Return how many steps of a round of tuning a network needs: all, or none if nothing is left to gain.

    A network from which nothing was cut has lost nothing, and gains no more than its loss.

    Args:
        steps: The steps of a round.
        loss: The mean loss of an answer on the validation data, in nats; None if it is unknown.
        is_cut: Whether the network is narrower or shallower than the tuned source.
    """
    return 0 if loss is not None and loss < _LITTLE and not is_cut else steps
