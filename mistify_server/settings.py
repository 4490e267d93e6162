"""What tasks say in plain values, as executors take it."""

from pydantic import ValidationError

from executors.base import Params, executor_class
from mistify.errors import ErrorCode, MistifyError
from mistify.hardware import HardwareProfile
from mistify.validation import problems_of


def params_of(algorithm: str, config: dict[str, object]) -> Params:
    """The settings of an algorithm.

    Raises:
        MistifyError: INVALID_CONFIG with every problem, by its place in the config.
    """
    params_class = executor_class(algorithm).params_class
    try:
        return params_class.model_validate(config)
    except ValidationError as error:
        problems = problems_of(error, params_class, "algorithm.config")
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, "the algorithm's settings are wrong", problems
        ) from error


def profiles_of(hardware: dict[str, tuple[float, float]]) -> tuple[HardwareProfile, ...]:
    """Hardware from compute power (GFLOP/s) and memory bandwidth (GB/s) by name."""
    return tuple(HardwareProfile(name, power, bandwidth) for name, (power, bandwidth) in hardware.items())
