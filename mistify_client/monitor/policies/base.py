"""The contract of a policy, which decides what branch runs (paper 6), and the registry of policies."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import ClassVar

from pydantic import ValidationError

from mistify.errors import Problem, invalid_config
from mistify.parsing.validation import Settings, problems_of, shown, unknown_name
from mistify.plugins import UnusablePlugInError, load_class, plug_ins
from mistify_client.monitor.sensing.costs import BranchCosts
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets

ENTRY_POINTS = "mistify.policies"
DEFAULT = "predictive"


@dataclass(frozen=True)
class Situation:
    """What a policy is told at each interval.

    Attributes:
        now: seconds of the monotonic clock.
        branch: that runs.
        since: when it was chosen, on the same clock.
        branches: what is expected of each branch, its latency corrected by what it took on this device.
        ratio: how many times longer than expected inferences take; 1 before any was measured.
        idle: whether no inference of the last interval stands behind the ratio, which is then an older one.
        reading: the device's resources.
        measured_at: the resources when the ratio was measured.
        targets: the limits to keep to.
    """

    now: float
    branch: int
    since: float
    branches: tuple[BranchCosts, ...]
    ratio: float
    idle: bool
    reading: SensorReading
    measured_at: SensorReading
    targets: Targets


@dataclass(frozen=True)
class Decision:
    """Which branch runs from now on, whether it keeps to all targets, and why, in words for a log."""

    branch: int
    fits: bool
    reason: str


class Policy(ABC):
    """Decides, once in each interval, which branch runs. One thread uses a policy; it may remember.

    A policy never waits and reads no clock of its own: what it decides follows from what it was told.

    Attributes:
        params_class: what it can be told in the config's `policy`, beside its name.
    """

    params_class: ClassVar[type[Settings]]

    @abstractmethod
    def __init__(self, params: Settings) -> None:
        """Remember the settings, an instance of `params_class`; no work is done here."""

    @abstractmethod
    def decide(self, situation: Situation) -> Decision:
        """Stay with the branch that runs, or choose another one.

        A decision that does not fit is the best that can be done; when it lasts, a new package is asked for.
        """


def make_policy(settings: Mapping[str, object]) -> Policy:
    """The policy of a config, from the entry points `mistify.policies`.

    Args:
        settings: its `name`, `DEFAULT` where there is none, and its own settings.

    Raises:
        MistifyError: INVALID_CONFIG: an unknown name, a plug-in that cannot be loaded, or settings that it
            refuses.
    """
    name = settings.get("name", DEFAULT)
    found = plug_ins(ENTRY_POINTS)
    if name not in found:
        raise invalid_config(
            [Problem("policy.name", shown(name), *unknown_name(str(name), found))], "the policy"
        )
    policy_class = _loaded(found[str(name)])
    try:
        own = {key: value for key, value in settings.items() if key != "name"}
        params = policy_class.params_class.model_validate(own)
    except ValidationError as error:
        raise invalid_config(problems_of(error, policy_class.params_class, "policy"), "the policy") from error
    return policy_class(params)


def _loaded(point: EntryPoint) -> type[Policy]:
    try:
        return load_class(point, Policy)
    except UnusablePlugInError as error:
        problem = Problem("policy.name", shown(point.name), "a policy that can be loaded", f"mend {error}")
        raise invalid_config([problem], "the policy") from error
