"""Parsing of algorithm settings from the plain values in tasks."""

from executors.contract.params import Params, parse_params
from executors.contract.registry import algorithm, algorithms
from mistify.config.algorithm import AUTO
from mistify_server.tasks.recipe import Recipe


def params_of(recipe: Recipe) -> Params:
    """Return the settings of a recipe's algorithm; for `auto`, the settings common to all algorithms.

    They have the numbers of training steps at the pace of the recipe.

    Raises:
        MistifyError: INVALID_CONFIG with all problems and their places in the config.
    """
    params_class = Params if recipe.algorithm == AUTO else algorithm(recipe.algorithm).params
    return parse_params(params_class, recipe.settings, _params_classes).paced(recipe.pace, recipe.source_pace)


def _params_classes() -> dict[str, type[Params]]:
    return {name: known.params for name, known in algorithms().items()}
