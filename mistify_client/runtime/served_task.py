"""The task that an app needs a package for: another network would answer another question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError, invalid_config
from mistify.package.manifest import Manifest
from mistify.package.opened import Package
from mistify.parsing.validation import problems_of
from mistify.scenarios.classes import classes_in
from mistify.scenarios.space import THE_TASK, TaskSpace

#: Properties or classes: a list, or a text with commas; or `{"classes": [...]}`.
TaskLike = str | Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ServedTask:
    """The task that every version of a package that runs has to serve.

    Attributes:
        package: The directory of the package that was shipped.
        space: The tasks that slices of the package can serve; None without a factory for properties.
    """

    package: Path
    task: TaskConfig
    space: TaskSpace | None

    @classmethod
    def of(cls, shipped: Package, task: TaskLike) -> "ServedTask":
        """Return the task that an app asks for.

        Raises:
            MistifyError: INVALID_CONFIG, it is no task, or none of the package's factory; STORE_VERSION, a
                newer version of Mistify wrote the factory; CORRUPT_PACKAGE, its description is missing or
                damaged, with every problem in it.
        """
        from mistify.package.factory import FACTORY, FactoryStore  # noqa: PLC0415 - for apps with a task alone

        store = FactoryStore.of(shipped) if FACTORY in shipped.manifest.files else None
        written = _with_classes(task, _classes_of(shipped.manifest) if store is None else store.classes)
        try:
            config = TaskConfig.model_validate(written)
        except ValidationError as error:
            raise invalid_config(
                problems_of(error, TaskConfig, value=written, place="task"), THE_TASK
            ) from error
        if store is not None and (store.classes or config.properties):
            config = store.asked(config.properties or config.classes).config
        return cls(shipped.directory, config, None if store is None or store.classes else store.space)

    def require_in(self, manifest: Manifest) -> None:
        """Check that a version serves the task.

        Raises:
            MistifyError: NOT_FOUND, it serves another one; INVALID_CONFIG, it serves one that the factory of
                the shipped package does not have.
        """
        served = None if manifest.task is None else _canonical(manifest.task, self.space)
        if served is None or _parts(served) != _parts(self.task):
            made = (
                f'; mistify customize --task "{self.task}" makes a network for it'
                if self.space and self.task.properties
                else ""
            )
            message = f"{self.package} serves {served or 'no single task'}, not {self.task}{made}"
            raise MistifyError(ErrorCode.NOT_FOUND, message)


def _classes_of(manifest: Manifest) -> tuple[str, ...]:
    return () if manifest.task is None else manifest.task.classes


def _with_classes(task: TaskLike, classes: Sequence[str]) -> TaskLike:
    """Return a task as an object if the package tells classes apart: a list or a text names some of them."""
    if not classes or isinstance(task, Mapping):
        return task
    return {"classes": classes_in(task, classes) if isinstance(task, str) else task}


def _canonical(task: TaskConfig, space: TaskSpace | None) -> TaskConfig:
    if space is None or not task.properties:
        return task
    return TaskConfig(properties=space.parse(task.properties).properties)


def _parts(task: TaskConfig) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(task.properties), frozenset(task.classes)
