"""What a network loses if one of its channel groups is cut to some width.

As in ZipLM (Kurtic et al., 2023), each group is cut alone, and the losses of several groups are added up.
Between the measured widths, losses are interpolated over the halvings of a group's width.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from executors.structure import ChannelGroup

Array = npt.NDArray[np.float64]

#: Shares of a group's units with which its losses are measured.
_SHARES: Final = (1 / 2, 1 / 4, 1 / 8)

#: Bounds on the power of the halvings with which the loss grows up to the first measured width, and the power
#: if only one width was measured.
_POWERS: Final = (1.0, 2.0)
_USUAL_POWER: Final = 1.5


def measured_widths(group: ChannelGroup) -> list[int]:
    """Return the widths at which a group is measured, in descending order; none if it cannot be cut."""
    widths = {max(group.least, round(share * group.size)) for share in _SHARES}
    return sorted(widths - {group.size}, reverse=True)


@dataclass(frozen=True)
class LossTable:
    """The losses of a network's groups.

    Attributes:
        sizes: Group -> number of units in the network.
        losses: Group -> measured width -> loss, in descending order of the widths.
    """

    sizes: Mapping[str, int]
    losses: Mapping[str, Mapping[int, float]]

    def saved(self) -> bytes:
        """Return the table, serialized."""
        return json.dumps({"sizes": dict(self.sizes), "losses": dict(self.losses)}).encode()

    @classmethod
    def loaded(cls, content: bytes) -> Self:
        """Load a table serialized by `saved`; an empty one for empty content."""
        parts = json.loads(content or b'{"sizes": {}, "losses": {}}')
        losses = {
            name: {int(width): loss for width, loss in own.items()} for name, own in parts["losses"].items()
        }
        return cls(parts["sizes"], losses)

    def covers(self, widths: Mapping[str, int]) -> bool:
        """Check whether groups of these widths are known, and no wider than in the network."""
        return bool(widths) and all(width <= self.sizes.get(name, 0) for name, width in widths.items())

    def of(self, group: str, widths: Sequence[int]) -> Array:
        """Return the losses of a group at some widths [widths], up to that in the network."""
        size, measured = self.sizes[group], self.losses[group]
        halvings = np.log2(size / np.asarray(widths, np.float64))
        if not measured:
            return np.where(halvings > 0, np.inf, 0.0)
        known = np.log2(size / np.array(list(measured), np.float64))
        losses = _convex(known, np.array(list(measured.values()), np.float64))
        slope = (
            (losses[-1] - losses[-2]) / (known[-1] - known[-2]) if len(known) > 1 else losses[0] / known[0]
        )
        beyond = losses[-1] + slope * (halvings - known[-1])
        first = losses[0] * (halvings / known[0]) ** _power(known, losses)
        between = np.interp(halvings, known, losses)
        return np.select([halvings <= known[0], halvings <= known[-1]], [first, between], beyond)


def _convex(halvings: Array, measured: Array) -> Array:
    """Return losses that grow at least as much with each halving as with the one before.

    A layer that is cut to almost nothing loses little more, because the network hardly uses it any more; but
    training cannot restore what it could compute.
    """
    losses, slope = np.zeros(len(measured)), 0.0
    before, at = 0.0, 0.0
    for place, (halving, loss) in enumerate(zip(halvings, measured, strict=True)):
        slope = max(slope, (loss - before) / (halving - at))
        before, at = before + slope * (halving - at), halving
        losses[place] = before
    return losses


def _power(halvings: Array, losses: Array) -> float:
    """Return the power of the halvings with which the loss grows up to the first measured width."""
    if len(losses) < 2 or losses[0] <= 0:
        return _USUAL_POWER
    return float(np.clip(np.log(losses[1] / losses[0]) / np.log(halvings[1] / halvings[0]), *_POWERS))
