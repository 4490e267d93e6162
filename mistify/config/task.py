"""The `task` of a config: requested properties, or some of a classifier's classes."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, model_serializer, model_validator

from mistify.parsing.validation import InvalidValue, Keys, Settings, mistake_of, together
from mistify.scenarios.words import SEPARATOR, Word, as_word, number_as_text

#: Unlike a property, it may have commas in it.
ClassName = Annotated[str, BeforeValidator(number_as_text), StringConstraints(min_length=1, max_length=1024)]

_EXAMPLE = 'for example ["exactly:2", "odd"], or {"classes": ["cat", "dog"]}'


class TaskConfig(Settings):
    """A task: either properties or classes. A list, or a text with commas, is read as properties.

    Attributes:
        properties: Properties of the task space in `dataset.tasks`, or the name of one of its tasks.
        classes: Names or numbers of classes of the model's only output; the network tells them apart, and no
            others.
    """

    properties: tuple[Word, ...] = Field(
        default=(), description="a list of properties", examples=[["exactly:2", "odd"]]
    )
    classes: tuple[ClassName, ...] = Field(
        default=(), description="a list of classes", examples=[["cat", "dog"]]
    )

    @model_validator(mode="before")
    @classmethod
    def _from_properties(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            return {"properties": [part.strip() for part in raw.split(SEPARATOR)]}
        if isinstance(raw, Mapping | TaskConfig):
            return raw
        if not isinstance(raw, list | tuple):
            raise InvalidValue(
                raw, "a list of properties, a text with commas between them, or an object", _EXAMPLE
            )
        mistakes = ((index, mistake_of(partial(as_word, each))) for index, each in enumerate(raw))
        if mistaken := [((index,), mistake) for index, mistake in mistakes if mistake is not None]:
            raise together(cls.__name__, mistaken)
        return {"properties": raw}

    @model_validator(mode="after")
    def _one_kind(self) -> "TaskConfig":
        if bool(self.properties) == bool(self.classes):
            raise InvalidValue(self._parts() or [], 'either properties or "classes"', _EXAMPLE)
        if mistakes := list(self._mistakes()):
            raise together(type(self).__name__, mistakes)
        return self

    @model_serializer(mode="plain")
    def _as_written(self) -> list[str] | dict[str, list[str]]:
        return [*self.properties] or {"classes": [*self.classes]}

    def __str__(self) -> str:
        """Return the task for people: `exactly:2, odd`, or `classes cat, dog`."""
        return f"{SEPARATOR} ".join(self.properties) or f"classes {f'{SEPARATOR} '.join(self.classes)}"

    def _mistakes(self) -> Iterator[tuple[Keys, InvalidValue]]:
        """Yield the mistakes in the classes, each with its place."""
        if len(self.classes) == 1:
            expected = "at least two classes to tell apart"
            yield ("classes",), InvalidValue([*self.classes], expected, "add another one")
        seen = set[str]()
        for index, each in enumerate(self.classes):
            if each in seen:
                yield ("classes", index), InvalidValue(each, "each class once", "leave it out")
            seen.add(each)

    def _parts(self) -> Mapping[str, list[str]]:
        parts = {"properties": [*self.properties], "classes": [*self.classes]}
        return {name: words for name, words in parts.items() if words}
