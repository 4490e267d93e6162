"""Number of steps for which a network is tuned, by what is left to learn."""

from typing import Final

#: Mean loss of an answer, in nats, below which a source has little to learn from its data.
_LITTLE: Final = 0.1


def needed_steps(steps: int, loss: float | None, source_steps: int, *, is_cut: bool) -> int:
    """Return how many steps of a round of tuning a network needs: all, or none if nothing is left to gain.

    A network from which nothing was cut has lost nothing: it gains no more than its loss, and hardly anything
    if its source has learned the same data for as many steps.

    Args:
        steps: The steps of a round.
        loss: The mean loss of an answer on the validation data, in nats; None if it is unknown.
        source_steps: The steps for which the source was tuned on the same data.
        is_cut: Whether the network is narrower or shallower than the tuned source.
    """
    has_learned = source_steps >= steps or (loss is not None and loss < _LITTLE)
    return 0 if has_learned and not is_cut else steps
