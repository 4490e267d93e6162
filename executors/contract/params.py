"""Settings of algorithms (`algorithm.config` in a config), defined without TensorFlow."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, ValidationError

from executors.training.params import TrainingParams
from mistify.config.algorithm import AUTO
from mistify.config.layers import LayerRules
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.pace import paced_steps
from mistify.parsing.quantities import parse_duration
from mistify.parsing.validation import problems_of

__all__ = ["Params"]

_PLACE: Final = "algorithm.config"

#: The setting for the steps that tune the source.
_SOURCE_STEPS: Final = "source_steps"


class Params(TrainingParams):
    """Settings that every algorithm accepts in `algorithm.config`, including those for training.

    Attributes:
        source_steps: Steps that tune the source on the data before anything is cut.
        adapt_steps: Maximum number of steps from a goal's parent to a network that meets its budget. If this
            and `tune_steps` are 0, nothing is trained: the remaining layers are fitted to their previous
            outputs.
        tune_steps: Steps that tune a network once it meets its budget; none if nothing is left to gain
            (`mistify.jobs.tuning_steps`).
        max_steps: Maximum number of steps for one goal. Until then, tuning is repeated while the accuracy is
            too low, or while a network larger than the source improves.
        schedule_interval: Steps between two updates of the structure losses' strengths (4.3: k).
        seed: Seed for all randomness.
        time: The seconds in which all goals with the same model, data and algorithm should be done; all
            numbers of steps are multiplied by a common factor for it. None to train as many steps as given.
        layers: Rules for layers that must not change, or must keep some channels, by patterns of their names.
    """

    source_steps: int = Field(default=2400, ge=0)
    adapt_steps: int = Field(default=400, ge=0)
    tune_steps: int = Field(default=600, ge=0)
    max_steps: int = Field(default=3000, ge=1)
    schedule_interval: int = Field(default=200, ge=1)
    seed: int = Field(default=0, ge=0)
    time: Annotated[float, BeforeValidator(parse_duration)] | None = Field(
        default=None, description='a time such as "10min"', examples=["10min"]
    )
    layers: LayerRules = Field(
        default_factory=dict, description="rules by patterns of layers' names", examples=[{"stem*": "keep"}]
    )

    def paced(self, pace: float, source_pace: float) -> Self:
        """Return the settings with all numbers of training steps multiplied by a factor, and without a time.

        Numbers above 0 stay at least 1.

        Args:
            pace: The factor of steps other than those that tune the source.
            source_pace: The factor of the steps that tune the source.
        """
        steps = {
            name: paced_steps(value, source_pace if name == _SOURCE_STEPS else pace)
            for name, value in self
            if name.endswith("_steps")
        }
        paced = self.model_copy(update={**steps, "time": None})
        paced.model_fields_set.intersection_update(self.model_fields_set)  # those of the config
        return paced


def parse_params(
    params_class: type[Params],
    config: Mapping[str, object],
    classes: Callable[[], Mapping[str, type[Params]]] = dict,
) -> Params:
    """Validate and return the settings of an algorithm.

    Args:
        params_class: The class of the settings; `Params` for the settings common to all algorithms.
        config: The value of `algorithm.config`.
        classes: Returns the settings of the known algorithms by name, so that an error can say which
            algorithm has a setting that is not common to all.

    Raises:
        MistifyError: INVALID_CONFIG with all problems and their places in the config.
    """
    try:
        return params_class.model_validate(config)
    except ValidationError as error:
        problems = problems_of(error, params_class, _PLACE, config)
        if params_class is Params:
            problems = [_with_owner(problem, classes()) for problem in problems]
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, "the algorithm's settings are wrong", problems
        ) from error


def _with_owner(problem: Problem, classes: Mapping[str, type[Params]]) -> Problem:
    """Return a problem of `auto`; for a setting of certain algorithms only, it names these."""
    setting = problem.place.removeprefix(f"{_PLACE}.")
    common = Params.model_fields.keys()
    owners = [name for name, own in classes.items() if setting in own.model_fields.keys() - common]
    if not owners:
        return problem
    return replace(
        problem,
        expected=f'with "{AUTO}", only settings of all algorithms; it belongs to {" and ".join(owners)}',
        fix=f'leave it out, or name the algorithm: "name": "{owners[0]}"',
    )
