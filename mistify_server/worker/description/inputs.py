"""The preprocessing of inputs, and its vocabularies in packages."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from executors.structure.signature import Input
from mistify.config.data.preparation import Preparation
from mistify.package.manifest import MANIFEST, NETWORK
from mistify.package.records import FileName
from mistify.package.training import TRAIN
from mistify.parsing.validation import InvalidValue, json_path, unknown_name
from mistify_server.tasks.problems import ProblemCollector

#: File names that a vocabulary in a package must not have.
_TAKEN: Final = frozenset({MANIFEST, NETWORK, TRAIN, "saved_model.zip"})
_FILE_NAME: Final[TypeAdapter[str]] = TypeAdapter(FileName)


def preparation_of(
    declared: Mapping[str, Preparation], inputs: tuple[Input, ...], problems: ProblemCollector
) -> dict[str, Preparation]:
    """Return the preprocessing of inputs by name, completed from their shapes.

    Args:
        declared: Input -> preprocessing in the config.
        inputs: The network's inputs.
        problems: Collects declarations that do not fit the inputs.
    """
    by_name = {tensor.name: tensor for tensor in inputs}
    made = {
        name: problems.check(
            json_path([name], "dataset.preparation"), partial(_fitted, name, preparation, by_name)
        )
        for name, preparation in declared.items()
    }
    return {name: preparation for name, preparation in made.items() if preparation is not None}


def vocabularies_of(preparation: Mapping[str, Preparation], problems: ProblemCollector) -> dict[str, Path]:
    """Return the vocabularies of inputs by their file names in the package.

    Args:
        preparation: Input -> preprocessing with the path of its vocabulary.
        problems: Collects names that package files cannot have.
    """
    files: dict[str, Path] = {}
    for name, prepared in preparation.items():
        if prepared.tokens is not None:
            place = json_path([name, "tokens", "vocabulary"], "dataset.preparation")
            problems.check(place, partial(_add, Path(prepared.tokens.vocabulary), files))
    return files


def _fitted(name: str, preparation: Preparation, inputs: Mapping[str, Input]) -> Preparation:
    if name not in inputs:
        raise InvalidValue(name, *unknown_name(name, inputs))
    return preparation.of(inputs[name].shape)


def _add(path: Path, files: dict[str, Path]) -> None:
    """Add a file under its name.

    Raises:
        InvalidValue: The name is not allowed in a package.
    """
    try:
        _FILE_NAME.validate_python(path.name)
    except ValidationError as error:
        expected = 'a file named in letters, digits, ".", "_" and "-"'
        raise InvalidValue(path.name, expected, "rename it") from error
    if path.name in _TAKEN or files.setdefault(path.name, path) != path:
        raise InvalidValue(path.name, "a name that no other file of the package has", "rename it")
