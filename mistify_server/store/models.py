"""Interface of the model store."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class NamedModel:
    """A model in the repository: its name, its artifact, and the name of its original file."""

    name: str
    artifact: str
    file_name: str


class ModelStore(ABC):
    """Store of models by case-insensitive names."""

    @abstractmethod
    def add(self, model: NamedModel) -> None:
        """Add a model under its name.

        Raises:
            MistifyError: CONFLICT, the name is taken.
        """

    @abstractmethod
    def find(self, name: str) -> NamedModel | None:
        """Return the model with a name; None if there is none."""

    @abstractmethod
    def all(self) -> list[NamedModel]:
        """Return all models, by name."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove the model with a name.

        Raises:
            MistifyError: NOT_FOUND, no model has the name.
        """
