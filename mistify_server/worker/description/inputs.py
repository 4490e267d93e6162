"""The preparation of inputs, as declared or as the training data were read, and vocabularies in packages."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from executors.data.dataset import Origin
from executors.structure.signature import Input
from mistify.config.data.dataset import TextSettings
from mistify.config.data.preparation import ImagePreparation, Preparation, TokenPreparation
from mistify.package.manifest import MANIFEST, NETWORK
from mistify.package.records import FileName
from mistify.package.source import SOURCE
from mistify.package.training import TRAIN
from mistify.parsing.validation import InvalidValue, json_path, unknown_name
from mistify_server.tasks.problems import ProblemCollector

#: File names that a vocabulary in a package must not have.
_TAKEN: Final = frozenset({MANIFEST, NETWORK, SOURCE, TRAIN, "saved_model.zip"})
_FILE_NAME: Final[TypeAdapter[str]] = TypeAdapter(FileName)


def preparation_of(
    declared: Mapping[str, Preparation], inputs: tuple[Input, ...], problems: ProblemCollector
) -> dict[str, Preparation]:
    """Return the declared preparation of inputs by name, completed from their shapes.

    Args:
        declared: Input -> preparation in the config.
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


def preparation_as_read(
    origins: Mapping[str, Origin],
    text: TextSettings | None,
    inputs: tuple[Input, ...],
    vocabularies: Mapping[str, Path],
) -> dict[str, Preparation]:
    """Return the preparation with which the training data were read from images, or from text.

    Inputs of any size and images with four channels have none; neither have hashed tokens.

    Args:
        origins: Input -> what its values in the training data were made of.
        text: How text was converted to token ids.
        inputs: The network's inputs.
        vocabularies: Vocabularies in the package by file name, to which the one of the text is added.
    """
    made: dict[str, Preparation] = {}
    shapes = {tensor.name: tensor.shape for tensor in inputs}
    for name, origin in origins.items():
        shape = shapes[name]
        with suppress(InvalidValue):
            if origin == "image":
                made[name] = Preparation(image=ImagePreparation()).of(shape)
            elif text is not None and text.vocabulary is not None:
                _add(Path(text.vocabulary), dict(vocabularies))
                length = text.length if shape[:1] == (None,) else None
                tokens = TokenPreparation(vocabulary=text.vocabulary, length=length)
                made[name] = Preparation(tokens=tokens).of(shape)
    return made


def vocabularies_of(preparation: Mapping[str, Preparation], problems: ProblemCollector) -> dict[str, Path]:
    """Return the vocabularies of inputs by their file names in the package.

    Args:
        preparation: Input -> preparation with the path of its vocabulary.
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
