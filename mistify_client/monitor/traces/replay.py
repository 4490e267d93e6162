"""Replaying a trace: the decisions of a policy under the conditions that a device has recorded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from mistify.errors import ErrorCode, MistifyError
from mistify.wording import listed
from mistify_client.monitor.policies.base import Decision, Policy, Situation
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.monitor.traces.lines import Line, Moment, Options, Run
from mistify_client.runtime.options import Option


@dataclass(frozen=True)
class Replayed:
    """A moment of a trace with the decision of another policy.

    Attributes:
        seconds: Seconds since the moment before; 0 for the first of a run.
        situation: The recorded conditions; the option and the targets are those of the replay.
        decision: The decision of the other policy.
        recorded: Id of the option that ran on the device.
    """

    run: Run
    seconds: float
    situation: Situation
    decision: Decision
    recorded: str

    @property
    def switched(self) -> bool:
        """True if the option has changed."""
        return self.decision.option != self.situation.option


def replayed(
    lines: Iterable[Line], make_policy: Callable[[], Policy], targets: Targets
) -> Iterator[Replayed]:
    """Yield each moment of a trace with the decision of a policy.

    The chosen option counts as running from the next moment on, as if apps followed at once and slices had
    been cut.

    Args:
        lines: The lines of a trace, as `read_trace` yields them.
        make_policy: Returns the policy; called at the beginning of every run.
        targets: The limits to meet.

    Raises:
        MistifyError: NOT_FOUND, the policy chose an option that the package does not have.
    """
    device: _Device | None = None
    for line in lines:
        match line:
            case Run():
                device = _Device(line, make_policy())
            case Options() if device is not None:
                device.offer(line)
            case Moment() if device is not None:
                yield device.decide(line, targets)


class _Device:
    """The replayed device in one run of the monitor."""

    def __init__(self, run: Run, policy: Policy) -> None:
        self._run, self._policy = run, policy
        self._options: tuple[Option, ...] = ()
        self._option = self._recorded = ""
        self._since = -inf  # as after the start of a monitor
        self._changed = False
        self._before: float | None = None
        self._measured_at = SensorReading()

    def offer(self, line: Options) -> None:
        """Replace the options; those of another version start with the option that ran on the device."""
        self._options = line.options
        if line.option is not None:
            self._recorded = line.option
        # Otherwise a slice may be missing that could not be cut.
        if line.option is not None or self._option not in self._ids:
            self._option, self._changed = self._recorded, True

    def decide(self, moment: Moment, targets: Targets) -> Replayed:
        """Let the policy decide under the conditions of a moment."""
        before, now = self._before, moment.now
        if self._changed and before is not None:
            self._since = now
        if not moment.idle:
            self._measured_at = moment.reading
        situation = Situation(
            now=now,
            option=self._option,
            since=self._since,
            options=self._options,
            ratio=moment.ratio,
            idle=moment.idle,
            reading=moment.reading,
            measured_at=self._measured_at,
            targets=targets,
            conditions=moment.conditions,
        )
        decision = self._policy.decide(situation)
        if decision.option not in self._ids:
            message = f'the policy chose "{decision.option}" of {listed(self._ids)}'
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        seconds = 0.0 if before is None else now - before
        step = Replayed(self._run, seconds, situation, decision, self._recorded)
        if step.switched:
            self._option, self._since = decision.option, now
        self._recorded, self._before, self._changed = moment.option, now, False
        return step

    @property
    def _ids(self) -> list[str]:
        return [option.id for option in self._options]
