"""The recipe of networks: from which model and data, by which algorithm, and for which hardware."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Self

from mistify.config.data.dataset import DataSettings
from mistify.costs.profiles import Profile
from mistify_server.tasks.base import Message
from mistify_server.tasks.sources import DataSource, ModelSource

#: Stands for the source among the nodes that seeds are derived for.
SOURCE: Final = -1


class Recipe(Message):
    """Everything that the networks of a batch are made from.

    Attributes:
        model: The source before tuning.
        data: The data for training, choices and tests.
        algorithm: Name of the algorithm; `auto` in a batch whose nodes have algorithms of their own.
        settings: Settings of the algorithm from the config; each algorithm checks its own.
        hardware: Profile name -> the profile by which costs are predicted.
        seed: Seed for everything random.
    """

    model: ModelSource
    data: DataSource
    algorithm: str
    settings: dict[str, object]
    hardware: dict[str, Profile]
    seed: int

    def taught_by(self, teacher: str, **changes: Any) -> "TaughtRecipe":
        """Return the recipe with a teacher, and with other values of some fields."""
        return TaughtRecipe(**{**dict(self), "teacher": teacher, **changes})

    def with_settings(self, settings: DataSettings) -> Self:
        """Return the recipe with other settings of its data."""
        return self.model_copy(update={"data": self.data.model_copy(update={"settings": settings})})

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of the hardware."""
        return tuple(self.hardware.values())


class TaughtRecipe(Recipe):
    """A recipe whose source is tuned, so that it can teach.

    Attributes:
        teacher: The artifact of the tuned source.
        prepared: The artifact of what the algorithm has prepared; None where it prepares nothing.
    """

    teacher: str
    prepared: str | None = None


def derived_seed(settings: Mapping[str, object], node: int) -> int:
    """Return the seed of a node, or of the `SOURCE`, by the `seed` of the settings (0 by default)."""
    digest = hashlib.sha256(f"{settings.get('seed', 0)}/{node}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
