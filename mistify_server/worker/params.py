"""Settings of algorithms, parsed from the plain values of tasks."""

from dataclasses import replace

from pydantic import ValidationError

from executors.base import Params, executor_class, executor_classes
from mistify.config.porting import AUTO
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import problems_of

_PLACE = "algorithm.config"


def params_of(algorithm: str, config: dict[str, object]) -> Params:
    """Return the settings of an algorithm; for `auto` those that all algorithms have.

    Raises:
        MistifyError: INVALID_CONFIG with all problems, by their places in the config.
    """
    params_class = Params if algorithm == AUTO else executor_class(algorithm).params_class
    try:
        return params_class.model_validate(config)
    except ValidationError as error:
        problems = problems_of(error, params_class, _PLACE)
        if algorithm == AUTO:
            problems = [_with_owner(problem) for problem in problems]
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, "the algorithm's settings are wrong", problems
        ) from error


def _with_owner(problem: Problem) -> Problem:
    """Return a problem of `auto`; of a setting that only certain algorithms have, it names these."""
    setting = problem.place.removeprefix(f"{_PLACE}.")
    owners = [
        name
        for name, executor in executor_classes().items()
        if setting in executor.params_class.model_fields.keys() - Params.model_fields.keys()
    ]
    if not owners:
        return problem
    return replace(
        problem,
        expected=f'with "{AUTO}" a setting of all algorithms; this one is of {" and ".join(owners)}',
        fix=f'leave it out, or name the algorithm: "name": "{owners[0]}"',
    )
