"""The algorithms that configs name, and their settings, as far as they can be checked without a worker."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from executors.params import BUILT_IN, Params, parse_params
from mistify.config.porting import AUTO, AlgorithmConfig
from mistify.parsing.validation import InvalidValue, unknown_name
from mistify.plugins import plug_ins
from mistify_server.tasks.problems import ProblemCollector


def known_algorithms() -> frozenset[str]:
    """Return the names of the registered executors, without importing them."""
    return frozenset(plug_ins("mistify.executors"))


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
    params_class = _CLASSES.get(name)
    if params_class is not None:
        found = ProblemCollector()
        found.load("algorithm.config", lambda: parse_params(params_class, settings))
        problems.add(replace(problem, place=f"{place}.{problem.place}") for problem in found.problems)


_CLASSES: Mapping[str, type[Params]] = {AUTO: Params, "": Params, **BUILT_IN}
