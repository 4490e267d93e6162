"""The conditions on a device that determine the costs of its options (CrowdHMTware III-D1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mistify.costs.energy import Energy
from mistify_client.runtime.options import Option


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of one inference.

    Attributes:
        computing_ms: Milliseconds in which the network uses the processor.
        waiting_ms: Milliseconds in which it waits for the processor or for memory.
        energy: The energy of the inference; None if unknown.
    """

    computing_ms: float
    waiting_ms: float
    energy: Energy | None

    @property
    def ms(self) -> float:
        """The latency: the sum of its parts."""
        return self.computing_ms + self.waiting_ms


@dataclass(frozen=True)
class Conditions:
    """Conditions in one interval; absent sources are None, or missing from a mapping.

    Attributes:
        computing_share: Share of an inference's latency during which the network used the processor; 1 before
            the first measurement.
        memory_bytes: Bytes that the current option may occupy: those that are available, and those that the
            running one occupies already.
        energies: Option id -> energy of one inference.
        helped_ms: Id of each option with helpers -> milliseconds of one inference.
    """

    computing_share: float = 1.0
    memory_bytes: float | None = None
    energies: Mapping[str, Energy] = field(default_factory=dict)
    helped_ms: Mapping[str, float] = field(default_factory=dict)

    def predicted(self, option: Option, ratio: float) -> Prediction:
        """Return the predicted cost of an option.

        Args:
            ratio: Ratio of the present latency to the option's.
        """
        latency_ms = self.helped_ms.get(option.id, option.costs.latency_ms * ratio)
        computing_ms = latency_ms * self.computing_share
        return Prediction(computing_ms, latency_ms - computing_ms, self.energies.get(option.id))
