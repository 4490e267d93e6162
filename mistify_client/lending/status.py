"""What an app can learn about the help that a loaded package gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:  # at run time, only apps with helpers need it
    from mistify_client.lending.placement import Placement

#: The problem of a helper until the first session has begun.
NOT_CONNECTED: Final = "not connected yet"


@dataclass(frozen=True)
class LendingStatus:
    """The state of a network that helpers may help with.

    Attributes:
        placement: Where the last inference ran, and why.
        measured_ms: Milliseconds of the last inference.
        problems: Address of a helper -> why it is not used; empty for a helper that is.
        counts: Number of inferences by kind: "local", "offloaded", "checked" (computed on both) and "failed"
            (computed here because the helper gave no right answer in time).
    """

    placement: "Placement"
    measured_ms: float
    problems: Mapping[str, str]
    counts: Mapping[str, int]


@runtime_checkable
class Helped(Protocol):
    """A network that helpers may help with."""

    @property
    def lending(self) -> LendingStatus | None:
        """The state of the lending; None while helpers cannot help."""
