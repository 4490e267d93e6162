"""The descriptor of an adaptation algorithm, used by all other code; needs no TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from executors.contract.params import Params
from mistify.costs.budget import Budget
from mistify.plugins import load_instance, plug_ins

__all__ = ["Algorithm"]

#: The entry-point group of algorithms; each entry point names an `Algorithm`.
ENTRY_POINTS: Final = "mistify.algorithms"

#: The package of Mistify's own algorithms.
_OWN: Final = "executors.algorithms"


@dataclass(frozen=True)
class Algorithm:
    """An adaptation algorithm: its settings, its executor, and its profile for planning.

    The executor and the profile are named as `module:object` and imported only by workers, because they may
    need TensorFlow.

    Attributes:
        executor: A subclass of `executors.contract.executor.AdaptationExecutor`.
        params: The class of the settings in `algorithm.config`.
        profile: A function of the settings and the structure of a source; returns an
            `executors.contract.profile.AlgorithmProfile`.
        automatic: Whether `auto` may choose it; otherwise a config has to name it.
        edge_settings: Names of settings that do not affect `prepare`.
        prepares_for_limits: Whether `prepare` depends on the tightest limits of the goals.
        serves_tasks: Whether its executor handles `Assignment.task` itself, with one `prepare` for all tasks;
            every goal then needs a task. Other algorithms get a source with outputs and data restricted to
            the task.
    """

    executor: str
    params: type[Params] = Params
    profile: str = "executors.contract.profile:unprepared"
    automatic: bool = False
    edge_settings: frozenset[str] = frozenset()
    prepares_for_limits: bool = True
    serves_tasks: bool = False

    def prepared_from(self, params: Params, least: Budget) -> tuple[dict[str, object], Budget]:
        """Return the settings, as JSON values, and the limits that affect a preparation.

        Preparations with equal settings and limits have the same result.

        Args:
            params: Settings of the algorithm in the config.
            least: The tightest limits of all edges.
        """
        settings = params.model_dump(mode="json", exclude=set(self.edge_settings))
        return settings, least if self.prepares_for_limits else {}


def built_in() -> Mapping[str, Algorithm]:
    """Return Mistify's own algorithms by name, without importing plug-ins."""
    return {
        name: load_instance(point, Algorithm)
        for name, point in plug_ins(ENTRY_POINTS).items()
        if point.module.startswith(f"{_OWN}.")
    }
