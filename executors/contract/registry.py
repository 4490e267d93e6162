"""The registry of adaptation algorithms: all entry points in the group `mistify.algorithms`."""

import logging
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import TypeAlias, cast

from executors.contract.algorithm import ENTRY_POINTS, Algorithm
from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.contract.profile import AlgorithmProfile
from executors.structure import Structure
from mistify.errors import ErrorCode, MistifyError
from mistify.plugins import UnusablePlugInError, load_class, load_instance, load_plug_in, plug_ins

Profiler: TypeAlias = Callable[[Params, Structure], AlgorithmProfile]

_log = logging.getLogger(__name__)


def algorithm(name: str) -> Algorithm:
    """Return the algorithm with a name.

    Raises:
        MistifyError: INVALID_CONFIG, with the available names, or the reason why its plug-in cannot be used.
    """
    points = plug_ins(ENTRY_POINTS)
    if name not in points:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"algorithm {name!r} is unknown; expected one of {', '.join(points)}",
        )
    try:
        return _loaded(points[name])
    except UnusablePlugInError as error:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"algorithm {name!r} cannot be used: {error}; fix or remove the plug-in that defines it",
        ) from error


def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms by name, without plug-ins that cannot be used."""
    usable = {}
    for name, point in plug_ins(ENTRY_POINTS).items():
        try:
            usable[name] = _loaded(point)
        except UnusablePlugInError as error:
            _log.warning("the algorithm %s is left out: %s", name, error)
    return usable


def executor_class(name: str) -> type[AdaptationExecutor]:
    """Return the executor class of an algorithm.

    Raises:
        MistifyError: See `algorithm`.
    """
    return _executor_class(algorithm(name))


def profile_of(name: str, params: Params, source: Structure) -> AlgorithmProfile:
    """Return the profile of an algorithm with its settings, for one source.

    Raises:
        MistifyError: See `algorithm`.
    """
    known = algorithm(name)
    return _profiler(known)(params, source).model_copy(update={"serves_tasks": known.serves_tasks})


def _loaded(point: EntryPoint) -> Algorithm:
    """Return the algorithm that an entry point names, after checking that its executor and profile load."""
    loaded = load_instance(point, Algorithm)
    _executor_class(loaded)
    _profiler(loaded)
    return loaded


def _executor_class(loaded: Algorithm) -> type[AdaptationExecutor]:
    return load_class(_entry_point(loaded.executor), AdaptationExecutor)


def _profiler(loaded: Algorithm) -> Profiler:
    return cast(Profiler, load_plug_in(_entry_point(loaded.profile)))


def _entry_point(value: str) -> EntryPoint:
    return EntryPoint("", value, ENTRY_POINTS)
