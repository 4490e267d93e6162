"""What a store of named models is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class NamedModel:
    """A model of the repository: its name as it was given, its artifact, the file it was added from."""

    name: str
    artifact: str
    file_name: str


class ModelStore(ABC):
    """Keeps which name means which model; names differ by more than upper and lower case."""

    @abstractmethod
    def add(self, model: NamedModel) -> None:
        """Keep a name.

        Raises:
            MistifyError: CONFLICT, the name is taken.
        """

    @abstractmethod
    def find(self, name: str) -> NamedModel | None:
        """The model of a name, None if there is none."""

    @abstractmethod
    def all(self) -> list[NamedModel]:
        """All models, by name."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Forget a name.

        Raises:
            MistifyError: NOT_FOUND, no model has the name.
        """
