"""Checks of the algorithms and settings in configs that need no worker."""

from dataclasses import replace
from difflib import get_close_matches

from executors.contract.algorithm import ENTRY_POINTS, built_in
from executors.contract.params import Params, parse_params
from mistify.config.algorithm import AUTO, AlgorithmConfig
from mistify.parsing.validation import InvalidValue, unknown_name
from mistify.plugins import plug_ins
from mistify_server.tasks.problems import ProblemCollector


def known_algorithms() -> frozenset[str]:
    """Return the names of the registered executors, without importing them."""
    return frozenset(plug_ins(ENTRY_POINTS))


def check_algorithm(algorithm: AlgorithmConfig, place: str, problems: ProblemCollector) -> None:
    """Check the name and settings of an algorithm; a worker checks the settings of plug-ins.

    For an unknown name, settings are checked against the algorithm with the most similar name, or else
    against the settings common to all algorithms.

    Args:
        place: JSON path of the config.
        problems: Collects the mistakes.
    """
    known = known_algorithms() | {AUTO}
    name, settings = algorithm.name, algorithm.config
    if name not in known:
        wrong = InvalidValue(name, *unknown_name(name, known))
        problems.add([wrong.problem(f"{place}.algorithm.name")])
        name = next(iter(get_close_matches(name, sorted(known), n=1, cutoff=0.5)), "")
        if not name:
            settings = {key: value for key, value in settings.items() if key in Params.model_fields}
    params_class = _params_classes().get(name)
    if params_class is not None:
        own_problems = ProblemCollector()
        own_problems.load("algorithm.config", lambda: parse_params(params_class, settings, _params_classes))
        problems.add(replace(problem, place=f"{place}.{problem.place}") for problem in own_problems.problems)


def _params_classes() -> dict[str, type[Params]]:
    """Return the settings of Mistify's own algorithms and the common settings, by name."""
    return {AUTO: Params, "": Params, **{name: known.params for name, known in built_in().items()}}
