"""The lines of a trace, each a JSON object: a run of the monitor, its options, and its decisions."""

from typing import Literal, TypeAlias

from pydantic import Field

from mistify.costs.energy import Energy
from mistify.parsing.validation import Settings
from mistify_client.monitor.sensing.conditions import Conditions
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option

__all__ = ["Moment", "Options", "Run"]


class Run(Settings):
    """The beginning of a run of the monitor; there is another one for each restart.

    Attributes:
        format: The version of the format.
        started: Date and time.
    """

    format: Literal[1] = Field(description="the version 1 of the format", examples=[1])
    started: str


class Options(Settings):
    """The options of the moments that follow.

    Attributes:
        options: Options with latencies corrected by measurements; at least one.
        option: Id of the option that runs, if another version of the package has become current; None if
            only the options have changed.
        goal: The goal that the version was made for.
    """

    options: tuple[Option, ...] = Field(min_length=1)
    option: str | None = None
    goal: str | None = None


class Moment(Settings):
    """The conditions in one interval, and the decision.

    Attributes:
        now: Seconds of a clock that never goes back.
        ratio: Ratio of measured to expected latencies.
        idle: True if the interval had too few inferences to measure the ratio.
        reading: The device's resources.
        computing_share: Share of the latency during which the network used the processor.
        memory_bytes: Bytes that an option may occupy; None if unknown.
        energies: Option id -> energy of an inference; None if they are those of the moment before.
        helped_ms: Id of each option with helpers -> milliseconds of an inference.
        targets: The limits in force.
        measured_ms: Latency of an inference; None before the first measurement.
        measured_mj: Energy of an inference; None without a meter.
        option: Id of the option that the policy chose.
        fits: True if it meets all targets.
        reason: Why it was chosen, when it has changed.
    """

    now: float
    ratio: float = Field(gt=0)
    idle: bool = False
    reading: SensorReading = SensorReading()
    computing_share: float = 1.0
    memory_bytes: float | None = None
    energies: dict[str, Energy] | None = None
    helped_ms: dict[str, float] = Field(default_factory=dict)
    targets: Targets = Targets()
    measured_ms: float | None = None
    measured_mj: float | None = None
    option: str
    fits: bool
    reason: str | None = None

    @property
    def conditions(self) -> Conditions:
        """The conditions for the policy."""
        return Conditions(self.computing_share, self.memory_bytes, self.energies or {}, self.helped_ms)


Line: TypeAlias = Run | Options | Moment


def kind_of(content: dict[str, object]) -> type[Line]:
    """Return the kind of line that has these keys."""
    if "format" in content:
        return Run
    return Options if "options" in content else Moment
