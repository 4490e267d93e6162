"""Files in configs: the annotation of settings that name a file, and a traversal of these settings.

A setting names a file if its type is annotated: `Annotated[str, FileField()]`. Clients upload the file, and
servers look it up below their data roots; both find these settings with `with_files`.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mistify.parsing.validation import Keys

#: Prefix of names of models that contain a path: a preset's directory, or weights among their options.
PRESET: Final = "keras_hub/"
APPLICATION: Final = "keras.applications/"

#: Suffix of ONNX files, and what PyTorch's exporter adds to the name of such a file for its external data.
ONNX: Final = ".onnx"
_EXTERNAL: Final = ".data"

#: A path, then the name of a metric or a loss.
_FILE_AND_NAME: Final = re.compile(r"(?P<path>.+\.py):(?P<name>[a-z][a-z0-9_]{0,63})")

#: Options of a model, and whether data may then have channels first.
LAYOUTS: Final[Mapping[str, bool]] = {"layout=channels_last": False, "layout=channels_first": True}

#: A Python file, a function that returns a PyTorch network, and options.
_CALL: Final = re.compile(r"(?P<path>.+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]{0,63})(\?(?P<options>.+))?")
_WEIGHTS: Final = re.compile(r"weights=(.+)")

Rename: TypeAlias = Callable[[str], str]


class PathKind(Enum):
    """Kinds of paths."""

    FILE = "a file"
    DIRECTORY = "a directory"
    EITHER = "a file or directory"


class FileForm(Enum):
    """Forms in which a text names a file.

    Attributes:
        PATH: A path.
        DATA: A path, or data that a server generates.
        MODEL: A path, the name of a model that a server has, or such a name that contains a path.
        CODE: `FILE.py:NAME`; other texts name no file.
    """

    PATH = "path"
    DATA = "data"
    MODEL = "model"
    CODE = "code"


@dataclass(frozen=True)
class FileField:
    """The annotation of a setting that names a file.

    Attributes:
        kind: The kind of path that is allowed.
    """

    form: FileForm = FileForm.PATH
    kind: PathKind = PathKind.FILE

    def renamed(self, text: str, rename: Rename) -> str:
        """Return a text of this form with the file in it renamed."""
        return _RENAMED[self.form](text, rename)


#: Returns the replacement of a text, given its keys, its annotation and the text.
Change: TypeAlias = Callable[[Keys, FileField, str], str]


def named_in_file(text: object) -> tuple[str, str] | None:
    """Return the file and the name in `FILE.py:NAME`; None for other values."""
    match = _FILE_AND_NAME.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (match["path"], match["name"])


@dataclass(frozen=True)
class ModelCall:
    """A function in a Python file that returns a PyTorch network, and the file that it takes, if any.

    Attributes:
        channels_first: Whether data and apps may have channels first, as the network does.
    """

    path: str
    function: str
    weights: str | None
    channels_first: bool = False

    @classmethod
    def parse(cls, text: str) -> "ModelCall | None":
        """Parse `FILE.py:FUNCTION` or `FILE.py:FUNCTION?weights=FILE&layout=LAYOUT`; None for other texts."""
        match = _CALL.fullmatch(text)
        if match is None:
            return None
        call = cls(match["path"], match["function"], None)
        for option in filter(None, (match["options"] or "").split("&")):
            weights = _WEIGHTS.fullmatch(option)
            if weights is not None:
                call = replace(call, weights=weights[1])
            elif option in LAYOUTS:
                call = replace(call, channels_first=LAYOUTS[option])
            else:
                return None
        return call

    def __str__(self) -> str:
        weights = "" if self.weights is None else f"weights={self.weights}"
        options = "&".join(filter(None, (weights, "layout=channels_first" if self.channels_first else "")))
        return f"{self.path}:{self.function}{options and '?'}{options}"


def external_data_of(model: Path) -> Path | None:
    """Return the file with the external data of an ONNX file: `net.onnx.data`; None if there is none."""
    data = model.with_name(f"{model.name}{_EXTERNAL}")
    return data if model.suffix == ONNX and data.is_file() else None


def with_files(kind: Any, value: Any, change: Change, place: Keys = ()) -> Any:
    """Return a value with its file names replaced.

    Args:
        kind: The type of the value, such as a model of settings.
        value: Read from JSON and possibly invalid, or validated.
        change: Called with each text that names a file or may do so.
        place: Keys that lead to the value.
    """
    kind, field = _split_annotations(kind)
    return _changed(kind, field, value, change, place)


def _changed(kind: Any, field: FileField | None, value: Any, change: Change, place: Keys) -> Any:
    if isinstance(value, str):
        if field is not None:
            return change(place, field, value)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        return _with_files_of_model(kind, value, change, place)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for part in parts:
            if (changed := with_files(part, value, change, place)) != value:
                return changed
    elif origin is dict and isinstance(value, Mapping):
        return {
            key: with_files(parts[1], each, change, (*place, *_named(key))) for key, each in value.items()
        }
    elif origin in (list, tuple) and isinstance(value, list | tuple):
        return type(value)(
            with_files(parts[0], each, change, (*place, number)) for number, each in enumerate(value)
        )
    return value


def _with_files_of_model(model: type[BaseModel], value: Any, change: Change, place: Keys) -> Any:
    if isinstance(value, BaseModel):
        changed = {
            name: _changed(kind, field, getattr(value, name), change, (*place, key))
            for key, (name, kind, field) in _file_fields(type(value)).items()
        }
        return value.model_copy(update=changed)
    if not isinstance(value, Mapping):
        return value
    own = _file_fields(model)
    return {
        key: _changed(*own[key][1:], each, change, (*place, key)) if key in own else each
        for key, each in value.items()
    }


@cache
def _file_fields(model: type[BaseModel]) -> Mapping[str, tuple[str, Any, FileField | None]]:
    """Return the fields of a model that name files or contain such fields, by their keys in JSON."""
    return {
        info.alias or name: (name, info.annotation, _mark(info.metadata))
        for name, info in model.model_fields.items()
        if _names_files(info)
    }


def _names_files(kind: Any) -> bool:
    if isinstance(kind, FieldInfo):
        return _mark(kind.metadata) is not None or _names_files(kind.annotation)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return any(map(_names_files, kind.model_fields.values()))
    return isinstance(kind, FileField) or any(map(_names_files, get_args(kind)))


def _split_annotations(kind: Any) -> tuple[Any, FileField | None]:
    """Return a type without its annotations, and the `FileField` among them."""
    if get_origin(kind) is not Annotated:
        return kind, None
    inner, *annotations = get_args(kind)
    return inner, _mark(annotations)


def _mark(annotations: list[Any]) -> FileField | None:
    return next((each for each in annotations if isinstance(each, FileField)), None)


def _named(key: str) -> Keys:
    """Return the key of an output or input, unless it stands for the only one, which users do not name."""
    return (key,) if key else ()


def _path(text: str, rename: Rename) -> str:
    return rename(text)


def _model(text: str, rename: Rename) -> str:
    if text.startswith(PRESET):
        directory, mark, options = text.removeprefix(PRESET).partition("?")
        return f"{PRESET}{rename(directory)}{mark}{options}"
    if text.startswith(APPLICATION) and "weights=" in text:
        architecture, _, query = text.partition("?")
        with suppress(ValueError):
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
            named = [(key, rename(value) if key == "weights" else value) for key, value in pairs]
            return f"{architecture}?{urlencode(named, safe='/:')}"
    call = ModelCall.parse(text)
    if call is not None:
        weights = None if call.weights is None else rename(call.weights)
        return str(replace(call, path=rename(call.path), weights=weights))
    path, mark, sizes = text.rpartition("?")
    if mark and "=" in sizes:  # an ONNX file with the sizes of its inputs
        return f"{rename(path)}{mark}{sizes}"
    return rename(text)


def _code(text: str, rename: Rename) -> str:
    file_and_name = named_in_file(text)
    if file_and_name is None:
        return text
    path, name = file_and_name
    return f"{rename(path)}:{name}"


_RENAMED: Final[Mapping[FileForm, Callable[[str, Rename], str]]] = {
    FileForm.PATH: _path,
    FileForm.DATA: _path,
    FileForm.MODEL: _model,
    FileForm.CODE: _code,
}
