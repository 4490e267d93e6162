"""The summary of a replay: changes of the option, and figures next to those of the device."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mistify.config.data.metric import Metric
from mistify.parsing.quantities import format_energy, format_time
from mistify_client.monitor.policies.base import Situation
from mistify_client.monitor.traces.replay import Replayed

_DIGITS = 3


@dataclass
class Tally:
    """Figures of the options that ran, weighted by the time for which they ran.

    A moment shows the conditions since the moment before, for the option that ran in between.

    Attributes:
        seconds: Time for which any option ran.
        within: Seconds within all targets, and within the memory that was available.
        switches: Number of changes of the option.
        by_option: Option id -> seconds.
    """

    seconds: float = 0.0
    within: float = 0.0
    switches: int = 0
    by_option: dict[str, float] = field(default_factory=dict)
    _score: float = 0.0
    _ms: float = 0.0
    _mj: float | None = 0.0
    _option: str = ""

    def add(self, situation: Situation, seconds: float) -> None:
        """Count the option of a situation for the seconds before it; 0 at the beginning of a run."""
        option, predicted = situation.chosen, situation.predicted(situation.chosen)
        self.seconds += seconds
        self.within += seconds if within_limits(situation) else 0.0
        self.switches += seconds > 0 and option.id != self._option
        self.by_option[option.id] = self.by_option.get(option.id, 0.0) + seconds
        self._score += seconds * option.score.value
        self._ms += seconds * predicted.ms
        if self._mj is not None:
            self._mj = None if predicted.energy is None else self._mj + seconds * predicted.energy.mj
        self._option = option.id

    @property
    def share_within(self) -> float:
        """The share of the time within all targets."""
        return self.within / self.seconds

    @property
    def score(self) -> float:
        """The mean quality, by the metric of the options."""
        return self._score / self.seconds

    @property
    def ms(self) -> float:
        """The mean predicted latency."""
        return self._ms / self.seconds

    @property
    def mj(self) -> float | None:
        """The mean predicted energy of an inference; None if it was unknown for a while."""
        return None if self._mj is None else self._mj / self.seconds


class Comparison:
    """A replay next to what the device did, both judged by the targets of the replay.

    Attributes:
        device: The options that ran on the device.
        replay: The options that the policy of the replay chose.
    """

    def __init__(self) -> None:
        self.device, self.replay = Tally(), Tally()
        self._metric = Metric.ACCURACY
        self._began = 0.0

    def lines(self, steps: Iterable[Replayed]) -> Iterator[str]:
        """Yield a line for each change of the option, and then the figures."""
        for step in steps:
            yield from self._changes(step)
            self._metric = step.situation.chosen.score.metric
            self.replay.add(step.situation, step.seconds)
            self.device.add(replace(step.situation, option=step.recorded), step.seconds)
        if self.replay.seconds:
            yield from self._figures()

    def _changes(self, step: Replayed) -> Iterator[str]:
        if step.seconds == 0:
            self._began = step.situation.now
            yield f"recorded from {step.run.started or 'the beginning'}"
        if step.seconds == 0 or step.switched:
            passed = timedelta(seconds=round(step.situation.now - self._began))
            yield f"{passed} {step.decision.option}: {step.decision.reason}"

    def _figures(self) -> Iterator[str]:
        yield _row(str(timedelta(seconds=round(self.replay.seconds))), "on the device", "replayed")
        both = self.device, self.replay
        yield _row("time within the targets", *(f"{each.share_within:.1%}" for each in both))
        yield _row(f"mean {self._metric}", *(f"{each.score:.4g}" for each in both))
        yield _row("mean latency", *(format_time(each.ms, _DIGITS) for each in both))
        energies = [each.mj for each in both]
        if None not in energies:
            yield _row("mean energy", *(format_energy(mj or 0.0, _DIGITS) for mj in energies))
        yield _row("switches", *(str(each.switches) for each in both))
        for option in sorted(set(self.device.by_option) | set(self.replay.by_option)):
            yield _row(
                f"time with {option}",
                *(f"{each.by_option.get(option, 0.0) / each.seconds:.1%}" for each in both),
            )


def _row(name: str, device: str, replay: str) -> str:
    return f"{name:<30}{device:>15}{replay:>15}"


def within_limits(situation: Situation) -> bool:
    """Return True if the chosen option meets all targets, and fits into the available memory."""
    option, targets = situation.chosen, situation.targets
    predicted, memory = situation.predicted(option), option.costs.memory_bytes
    amounts = (
        (predicted.ms, targets.latency),
        (None if predicted.energy is None else predicted.energy.mj, targets.energy),
        (memory, targets.memory),
        (memory, situation.conditions.memory_bytes),
    )
    within = all(amount is None or limit is None or amount <= limit for amount, limit in amounts)
    return within and option.score.metric.reaches(option.score.value, targets.accuracy)
