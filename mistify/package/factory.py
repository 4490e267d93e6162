"""The factory of a package: a network, and an assembler that selects its units for a task (NN-Factory 3).

Devices cut slices out of the network for tasks and limits of their own. Three files of a package are its
factory: `supernet.tflite` has all units, `assembler.tflite` returns the gates of a task within a limit, and
`factory.json` describes both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.package.cut_places import CutPlaces
from mistify.package.manifest import TensorInfo
from mistify.package.opened import Package
from mistify.package.records import (
    PackagedFile,
    Record,
    corrupt_package,
    describe_file,
    digest_of,
    parse_record,
)
from mistify.package.training import OutputEncoding
from mistify.parsing.validation import InvalidValue
from mistify.scenarios.classes import class_numbers, class_texts, classes_in
from mistify.scenarios.quality import Quality
from mistify.scenarios.space import THE_TASK, TaskSpace

__all__ = ["FACTORY", "AskedTask", "FactoryStore", "SlicedGroup"]

FACTORY_FORMAT: Final = 1

FACTORY: Final = "factory.json"
SUPERNET: Final = "supernet.tflite"
ASSEMBLER: Final = "assembler.tflite"

#: The inputs of the assembler, [requests, properties] and [requests, 1].
TASK_INPUT: Final = "task"
LIMIT_INPUT: Final = "limit"

#: Its outputs [requests, units of all groups]: gates are open above 0. The last two are optional.
LOGITS: Final = "logits"
SCALES: Final = "scales"
SHIFTS: Final = "shifts"


class SlicedGroup(Record):
    """A group of units from which slices select.

    Attributes:
        units: Number of units.
        least: Units that every slice has at least.
    """

    name: str
    units: Annotated[int, Field(ge=1)]
    least: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _has_its_least(self) -> "SlicedGroup":
        if self.least > self.units:
            raise ValueError(f"{self.least} of {self.units} units of {self.name} have to stay open")
        return self


@dataclass(frozen=True, eq=False)
class AskedTask:
    """A task that a factory makes networks for.

    Attributes:
        config: The task in canonical form.
        encoded: The input of the assembler [properties].
        classes: Numbers of its classes, ascending; none for a task with properties.
        trained: Whether the network was trained for it, or for all sets of classes alike.
        nearest: The trained tasks that share most with it, if it was not trained itself.
    """

    config: TaskConfig
    encoded: npt.NDArray[np.float32]
    classes: tuple[int, ...] = ()
    trained: bool = True
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the task for people."""
        return str(self.config)


class FactoryStore(Record):
    """The content of `factory.json`.

    Attributes:
        format_version: The version of this file's format.
        space: The tasks that can be asked for.
        quality: The scores of trained tasks within each limit.
        classes: Names of the classes of the network's only output, where a task is some of them; none for
            tasks with properties.
        groups: The groups of units, in the order of the assembler's outputs.
        places: Where their units are in the network; classes are one more group, the last.
        kinds: Output -> the kind of its values. Outputs not listed are classes, before the softmax.
        supernet: Size and digest of the network's file.
        assembler: Size and digest of the assembler's file.
    """

    format_version: Literal[1] = FACTORY_FORMAT
    space: TaskSpace
    classes: tuple[str, ...] = ()
    quality: Quality
    groups: Annotated[tuple[SlicedGroup, ...], Field(min_length=1)]
    places: CutPlaces
    kinds: dict[str, OutputEncoding] = Field(default_factory=dict)
    supernet: PackagedFile
    assembler: PackagedFile

    @model_validator(mode="after")
    def _is_complete(self) -> "FactoryStore":
        rows = (len(self.classes),) if self.classes else ()
        if self.places.units != (*(group.units for group in self.groups), *rows):
            raise ValueError(f"the places are of groups of {self.places.units} units")
        if not self.quality.limits or not self.quality.tasks:
            raise ValueError("no quality was measured")
        return self

    def asked(self, task: Sequence[str] | str, place: str = "task") -> "AskedTask":
        """Return the task that a user has written.

        Args:
            task: Properties, or the name of a listed task; or names or numbers of classes.
            place: Where it was written, for errors.

        Raises:
            MistifyError: INVALID_CONFIG, there is no such property or class.
        """
        if not self.classes:
            known = self.space.parse(task, place)
            trained = self.space.is_trained(known)
            return AskedTask(
                TaskConfig(properties=known.properties),
                self.space.encode(known),
                trained=trained,
                nearest=() if trained else tuple(map(str, self.space.nearest(known))),
            )
        words = classes_in(task, self.classes) if isinstance(task, str) else [*task]
        try:
            if len(words) < 2:
                raise InvalidValue(task, "at least two classes to tell apart", "add another one")
            numbers = class_numbers(words, self.classes, len(self.classes))
        except InvalidValue as error:
            raise invalid_config([error.problem(place)], THE_TASK) from error
        encoded = np.isin(np.arange(len(self.classes)), numbers).astype(np.float32)
        return AskedTask(TaskConfig(classes=class_texts(numbers, self.classes)), encoded, numbers)

    def listed_as(self, task: AskedTask) -> str:
        """Return the name of a task in `quality`, where classes without usable names have their numbers."""
        if not task.classes:
            return str(task)
        (values,) = self.space.axes.values()
        return str(self.space.parse([values[number] for number in task.classes]))

    def kind_of(self, output: TensorInfo) -> OutputEncoding:
        """Return the kind of an output's values."""
        return self.kinds.get(output.name, OutputEncoding.LOGITS)

    def as_json(self) -> bytes:
        """Return the content of `factory.json`."""
        return (self.model_dump_json(by_alias=True) + "\n").encode()

    @classmethod
    def of(cls, package: Package) -> "FactoryStore":
        """Return the description of a package's factory.

        Raises:
            MistifyError: NOT_FOUND, the package has none; STORE_VERSION, a newer version of Mistify wrote it;
                CORRUPT_PACKAGE, it is damaged, with every problem in it.
        """
        if FACTORY not in package.manifest.files:
            note = f" ({package.manifest.note})" if package.manifest.note else ""
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f"the package {package.directory} has no assembler of networks for other tasks{note}; "
                'algorithms that train one put it into a package with "inside": true',
            )
        return parse_record(package.directory / FACTORY, package.read(FACTORY), cls, FACTORY_FORMAT)

    def map_supernet(self, directory: Path) -> mmap:
        """Return the content of the network's file, memory-mapped because slices need only parts of it.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file is missing or has changed since the package was made.
        """
        with _undamaged(directory / SUPERNET, self.supernet).open("rb") as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)

    def read_assembler(self, directory: Path) -> bytes:
        """Return the content of the assembler's file.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file is missing or has changed since the package was made.
        """
        return _undamaged(directory / ASSEMBLER, self.assembler).read_bytes()


def _undamaged(path: Path, expected: PackagedFile) -> Path:
    """Return the path of a packaged file, after comparing its content with the description."""
    actual = describe_file(path) if path.is_file() else None
    if actual != expected:
        value = "no such file" if actual is None else digest_of(actual)
        problem = Problem(str(path), value, digest_of(expected), "fetch the package again")
        raise corrupt_package(path.parent, [problem])
    return path
