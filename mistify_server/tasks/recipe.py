"""The recipe of networks: model, data, algorithm and hardware."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Self

from mistify.config.data.dataset import DataSettings
from mistify.costs.profiles import Profile
from mistify_server.tasks.base import Message
from mistify_server.tasks.sources import DataSource, ModelSource

#: Number of derived seeds that are remembered: most submissions need the same ones.
_SEEDS: Final = 256

#: Represents the source in place of a node when seeds are derived.
SOURCE: Final = -1


class Recipe(Message):
    """Everything that determines the networks of a batch.

    Attributes:
        model: The source before tuning.
        data: The data for training, validation and tests.
        algorithm: Name of the algorithm; `auto` if each node of the batch has its own.
        settings: Settings of the algorithm from the config; each algorithm checks its own.
        hardware: Profile name -> the profile for predicting costs.
        seed: Seed for all random numbers.
        pace: Factor of all numbers of training steps in the settings, chosen for the time that they name.
        source_pace: The factor of the steps that tune the source.
    """

    model: ModelSource
    data: DataSource
    algorithm: str
    settings: dict[str, object]
    hardware: dict[str, Profile]
    seed: int
    pace: float = 1.0
    source_pace: float = 1.0

    def taught_by(self, teacher: str, **changes: Any) -> "TaughtRecipe":
        """Return the recipe with a teacher, and with changes to some fields."""
        return TaughtRecipe(**{**dict(self), "teacher": teacher, **changes})

    def with_settings(self, settings: DataSettings) -> Self:
        """Return the recipe with other settings of its data."""
        return self.model_copy(update={"data": self.data.model_copy(update={"settings": settings})})

    @property
    def paths(self) -> frozenset[str]:
        """The absolute paths of the model and the data, and of other files that they need."""
        return frozenset(absolute_paths(self.model_dump(include={"model", "data"})))

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of the hardware."""
        return tuple(self.hardware.values())


class TaughtRecipe(Recipe):
    """A recipe with a tuned source as the teacher.

    Attributes:
        teacher: The artifact of the tuned source.
        prepared: The artifact of the algorithm's preparation; None if it prepares nothing.
    """

    teacher: str
    prepared: str | None = None


def absolute_paths(value: object) -> Iterator[str]:
    """Yield the absolute paths in the values of a task or recipe."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from absolute_paths(each)
    elif isinstance(value, str) and value.startswith("/"):
        yield value


def derived_seed(settings: Mapping[str, object], node: int) -> int:
    """Return the seed of a node, or of the `SOURCE`, derived from the `seed` setting (0 by default)."""
    return _derived_seed(f"{settings.get('seed', 0)}/{node}")


@lru_cache(_SEEDS)
def _derived_seed(name: str) -> int:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
