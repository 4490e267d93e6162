"""The interface of policies, which choose the current option (paper 6), and the policy registry."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import ClassVar, Final

from pydantic import ValidationError

from mistify.errors import Problem, invalid_config
from mistify.package.option_kinds import OptionKind, option_id
from mistify.parsing.validation import Settings, problems_of, shown, unknown_name
from mistify.plugins import UnusablePlugInError, load_class, plug_ins
from mistify.wording import listed
from mistify_client.assembly.engine import Engine
from mistify_client.monitor.sensing.conditions import Conditions, Prediction
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option, OptionCosts, OptionScore

__all__ = ["Decision", "Policy", "Situation"]

ENTRY_POINTS = "mistify.policies"
DEFAULT = "predictive"

#: Lower bound on the share of free processor time, so that the predicted slowdown stays bounded.
_LEAST_CPU: Final = 0.05


@dataclass(frozen=True)
class Situation:
    """The input of a policy in one interval.

    Attributes:
        now: Seconds of the monotonic clock.
        option: Id of the chosen option; while its blocks are being loaded, another one runs.
        since: Time at which it was chosen, on the same clock.
        options: The options of the package, with latencies corrected by measurements on this device.
        ratio: Ratio of measured to expected latencies; 1 before the first measurement.
        idle: True if the last interval had too few inferences to measure the ratio, which is then older.
        reading: The device's current resources.
        measured_at: The resources when the ratio was measured.
        targets: The limits to meet.
        conditions: Memory, energies, and the part of latencies that is processor time.
    """

    now: float
    option: str
    since: float
    options: tuple[Option, ...]
    ratio: float
    idle: bool
    reading: SensorReading
    measured_at: SensorReading
    targets: Targets
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def chosen(self) -> Option:
        """The chosen option."""
        return next(option for option in self.options if option.id == self.option)

    def predicted(self, option: Option) -> Prediction:
        """Return the predicted cost of an inference of an option."""
        return self.conditions.predicted(option, self.slowdown)

    @property
    def slowdown(self) -> float:
        """The ratio of present to expected latencies: the measured one, and higher if free CPU time was lost.

        Without inferences, the change in free processor time is the only evidence. It is good enough to
        predict higher latencies, but too imprecise to predict lower ones.
        """
        then, now = self.measured_at.cpu_available, self.reading.cpu_available
        if then is None or now is None:
            return self.ratio
        return self.ratio * max(1.0, then / max(now, _LEAST_CPU))


@dataclass(frozen=True)
class CriterionScore:
    """The contribution of a criterion to a decision.

    Attributes:
        criterion: Its name, such as "accuracy".
        weight: Its share in the score, 0 to 1; all weights add up to 1.
        utility: How well the chosen option does by this criterion: 0 if it is the worst, 1 if the best.
    """

    criterion: str
    weight: float
    utility: float


@dataclass(frozen=True)
class Decision:
    """The decision of a policy.

    Attributes:
        option: Id of the option to run from now on.
        fits: True if that option meets all targets.
        reason: An explanation for the log.
        criteria: The score of the option by each criterion; empty for a policy without them.
    """

    option: str
    fits: bool
    reason: str
    criteria: tuple[CriterionScore, ...] = ()


class Policy(ABC):
    """The base class of policies, which choose the option once in each interval.

    A policy is used by one thread and may keep state between decisions. It must not block or read a clock:
    its decisions depend only on its settings and on past situations.

    Attributes:
        params_class: The settings allowed in the config's `policy` table in addition to `name`.
        weighs_helpers: Whether situations contain options with helpers, so that the policy decides whether
            helpers are asked. Otherwise apps decide.
    """

    params_class: ClassVar[type[Settings]]
    weighs_helpers: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, params: Settings) -> None:
        """Keep the settings, an instance of `params_class`, and do no other work."""

    @abstractmethod
    def decide(self, situation: Situation) -> Decision:
        """Choose the option to run from now on, which may be the current one.

        If no option fits, choose the best one. If that persists, the daemon requests a new package.
        """


def make_policy(settings: Mapping[str, object]) -> Policy:
    """Return the policy for a config, from the entry points `mistify.policies`.

    Args:
        settings: The policy's `name`, by default `DEFAULT`, and its own settings.

    Raises:
        MistifyError: INVALID_CONFIG: the name is unknown, the plug-in cannot be loaded, or the policy rejects
            its settings or fails in a made-up situation.
    """
    name = settings.get("name", DEFAULT)
    registered = plug_ins(ENTRY_POINTS)
    if not isinstance(name, str) or name not in registered:
        raise invalid_config(
            [Problem("policy.name", shown(name), *unknown_name(str(name), registered))], "the policy"
        )
    policy_class = _load(registered[name])
    try:
        own = {key: value for key, value in settings.items() if key != "name"}
        params = policy_class.params_class.model_validate(own)
    except ValidationError as error:
        problems = problems_of(error, policy_class.params_class, "policy", own)
        raise invalid_config(problems, "the policy") from error
    _try(policy_class(params), registered[name])
    return policy_class(params)


def _load(point: EntryPoint) -> type[Policy]:
    try:
        return load_class(point, Policy)
    except UnusablePlugInError as error:
        problem = Problem("policy.name", shown(point.name), "a policy that can be loaded", f"fix {error}")
        raise invalid_config([problem], "the policy") from error


def _try(policy: Policy, point: EntryPoint) -> None:
    """Let a policy decide once, so that a policy for another version of Mistify is rejected at once."""
    ids = [option_id(OptionKind.BRANCH, number) for number in range(2)]
    options = tuple(
        Option(OptionKind.BRANCH, each, Engine(), OptionCosts(latency_ms), OptionScore(accuracy))
        for each, latency_ms, accuracy in zip(ids, (1.0, 2.0), (0.5, 0.6), strict=True)
    )
    reading = SensorReading()
    try:
        decision = policy.decide(Situation(0.0, ids[0], 0.0, options, 1.0, True, reading, reading, Targets()))
        if decision.option not in ids:
            raise ValueError(f"it chose the option {decision.option!r} of {listed(ids)}")
    except Exception as error:  # a plug-in may raise anything
        expected = f"a policy that decides as {Policy.__module__}.{Policy.__name__} says"
        fix = f"fix {point.value}: {type(error).__name__}: {error}"
        problem = Problem("policy.name", shown(point.name), expected, fix)
        raise invalid_config([problem], "the policy") from error
