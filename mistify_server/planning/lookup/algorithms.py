"""The algorithms that configs name, and their settings, as far as they can be checked without a worker."""

from dataclasses import replace
from difflib import get_close_matches

from executors.contract.algorithm import ENTRY_POINTS, built_in
from executors.contract.params import Params, parse_params
from mistify.config.porting import AUTO, AlgorithmConfig
from mistify.parsing.validation import InvalidValue, unknown_name
from mistify.plugins import plug_ins
from mistify_server.tasks.problems import ProblemCollector


def known_algorithms() -> frozenset[str]:
    """Return the names of the registered executors, without importing them."""
    return frozenset(plug_ins(ENTRY_POINTS))


def check_algorithm(algorithm: AlgorithmConfig, place: str, problems: ProblemCollector) -> None:
    """Check the name of an algorithm and its settings; those of plug-ins are left to a worker.

    Under an unknown name, settings are checked as those of the most similar algorithm, or else as those that
    all algorithms have.

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
        found = ProblemCollector()
        found.load("algorithm.config", lambda: parse_params(params_class, settings, _params_classes))
        problems.add(replace(problem, place=f"{place}.{problem.place}") for problem in found.problems)


def _params_classes() -> dict[str, type[Params]]:
    """Return the settings of Mistify's own algorithms, and those that all algorithms have, by name."""
    return {AUTO: Params, "": Params, **{name: known.params for name, known in built_in().items()}}
