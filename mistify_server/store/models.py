"""Interface of the store of named models."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class NamedModel:
    """A model of the repository: its name, its artifact, and the file that it was added from."""

    name: str
    artifact: str
    file_name: str


class ModelStore(ABC):
    """Store of models by name; names differ by more than upper and lower case."""

    @abstractmethod
    def add(self, model: NamedModel) -> None:
        """Keep a name.

        Raises:
            MistifyError: CONFLICT, the name is taken.
        """

    @abstractmethod
    def find(self, name: str) -> NamedModel | None:
        """Return the model of a name, None if there is none."""

    @abstractmethod
    def all(self) -> list[NamedModel]:
        """Return all models, by name."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a name.

        Raises:
            MistifyError: NOT_FOUND, no model has the name.
        """
