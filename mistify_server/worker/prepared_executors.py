"""Executors that keep a preparation loaded, for everything that needs no `init`."""

from typing import Final

from executors.contract.executor import AdaptationExecutor
from executors.contract.params import Params
from executors.contract.registry import executor_class
from mistify_server.tasks.recipe import TaughtRecipe

#: Number of executors in memory.
_KEPT: Final = 2

#: Algorithm, settings, teacher and preparation.
_Key = tuple[str, str, str, str | None]


class PreparedExecutors:
    """Makes executors, and keeps the latest ones.

    One serves all goals of a preparation, but only by the methods that need no `init`: each edge has an
    executor of its own, which may share what the kept one has compiled (`for_edge`).
    """

    def __init__(self) -> None:
        self._recent: dict[_Key, AdaptationExecutor] = {}

    def of(self, recipe: TaughtRecipe, params: Params) -> AdaptationExecutor:
        """Return the executor for the preparation of a recipe."""
        key = recipe.algorithm, params.model_dump_json(), recipe.teacher, recipe.prepared
        if key not in self._recent:
            made = executor_class(recipe.algorithm)(params)
            self._recent = dict([*self._recent.items(), (key, made)][-_KEPT:])
        return self._recent[key]
