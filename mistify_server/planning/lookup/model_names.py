"""Model names with a scheme: `SCHEME/NAME?OPTION=VALUE&...`.

`keras.applications/MobileNetV2?classes=10&input=96&weights=mobilenet.h5` is a Keras architecture.
`keras_hub/bert_tiny?sequence=64` is the directory of a preset below a data root. `https://tfhub.dev/...` is a
TensorFlow Hub handle, which is read from the cache of tensorflow_hub or kagglehub. `net.onnx?image=3,224,224`
is an ONNX file with the sizes of an input; with `layout=channels_first`, its data have channels first.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

from executors.inspection.names import APPLICATIONS
from executors.inspection.onnx_file import is_onnx
from mistify.config.files import APPLICATION, LAYOUTS, PRESET, PathKind, external_data_of
from mistify.parsing.validation import InvalidValue, unknown_name
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.tasks.sources import ModelSource

_HANDLE = "https://"

#: Part of the name of a model version on Kaggle; no part begins with a dot.
_PART = r"([A-Za-z0-9_-][A-Za-z0-9_.-]*)"
_KAGGLE = re.compile(
    rf"https://www\.kaggle\.com/models/{_PART}/{_PART}/(?:frameworks/)?{_PART}/(?:variations/)?{_PART}/"
    r"(?:versions/)?(\d+)"
)

#: Inputs of an ONNX file with their sizes.
Sizes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]

_SIZES = re.compile(r"(?P<name>[^=]{1,200})=(?P<sizes>[1-9]\d{0,5}(,[1-9]\d{0,5}){0,7})", re.ASCII)

#: Option -> minimum and maximum.
_RANGES: Mapping[str, tuple[int, int]] = {
    "classes": (2, 100_000),
    "input": (8, 2_048),
    "sequence": (1, 4_096),
}


def parse_name(name: str, roots: DataRoots) -> ModelSource | None:
    """Return the model for a name with a scheme; None for a name without a scheme.

    Raises:
        InvalidValue: There is no such model, or an option is wrong.
    """
    for scheme, parse in _SCHEMES.items():
        if name.startswith(scheme):
            return parse(name, name.removeprefix(scheme), roots)
    return None


@dataclass(frozen=True)
class OnnxOptions:
    """The options behind the question mark in the name of an ONNX file.

    Attributes:
        sizes: The sizes of inputs, without the batch.
        channels_first: Whether data and apps may have channels first, as the file does.
    """

    sizes: Sizes = ()
    channels_first: bool = False


def onnx_options(name: str) -> tuple[str, OnnxOptions]:
    """Divide `net.onnx?image=3,224,224` into the model's name and options; names without any stay whole.

    Raises:
        InvalidValue: An option is wrong.
    """
    model, mark, query = name.rpartition("?")
    if not mark or "=" not in query:
        return name, OnnxOptions()
    sizes, channels_first = [], False
    for option in query.split("&"):
        if option in LAYOUTS:
            channels_first = LAYOUTS[option]
            continue
        match = _SIZES.fullmatch(unquote(option))
        if match is None:
            fix = f"write {model}?image=3,224,224 or {model}?layout=channels_first, for example"
            raise InvalidValue(name, "inputs with their sizes, without the batch, or a layout", fix)
        sizes.append((match["name"], tuple(map(int, match["sizes"].split(",")))))
    return model, OnnxOptions(tuple(sizes), channels_first)


def model_in(path: Path, name: str, options: OnnxOptions) -> ModelSource:
    """Return the model in a file or directory, with the options in its name in a config.

    Raises:
        InvalidValue: There are options, but it is not an ONNX file.
    """
    if options != OnnxOptions() and not is_onnx(path):
        raise InvalidValue(name, "options only for ONNX files", "remove the question mark and what follows")
    data = external_data_of(path)
    return ModelSource(
        path=str(path),
        external_data=None if data is None else str(data),
        sizes=options.sizes,
        channels_first=options.channels_first,
    )


def _application(name: str, rest: str, roots: DataRoots) -> ModelSource:
    architecture, options = _options(name, rest, ("classes", "input", "weights"))
    names = {name.casefold(): name for name in APPLICATIONS}
    if architecture.casefold() not in names:
        raise InvalidValue(name, *unknown_name(architecture, APPLICATIONS))
    weights = options.pop("weights", None)
    numbers = _numbers(name, options)
    return ModelSource(
        application=names[architecture.casefold()],
        classes=numbers.get("classes"),
        input=numbers.get("input"),
        weights=None if weights is None else str(roots.find(weights)),
    )


def _preset(name: str, rest: str, roots: DataRoots) -> ModelSource:
    directory, options = _options(name, rest, ("classes", "sequence"))
    numbers = _numbers(name, options)
    return ModelSource(
        path=str(roots.find(directory, PathKind.DIRECTORY)),
        classes=numbers.get("classes"),
        sequence=numbers.get("sequence"),
    )


def _handle(name: str, _rest: str, _roots: DataRoots) -> ModelSource:
    cache = Path(os.environ.get("TFHUB_CACHE_DIR") or Path(tempfile.gettempdir()) / "tfhub_modules")
    directory = cache / hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    if directory.is_dir():
        return ModelSource(path=str(directory.resolve()))
    cached = _in_kaggle_cache(name)
    if cached is None:
        raise InvalidValue(
            name,
            f"a handle in tensorflow_hub's cache, in the directory {directory}: nothing is downloaded",
            "set TFHUB_CACHE_DIR for the server, and fill it once with tensorflow_hub.resolve(HANDLE)",
        )
    return ModelSource(path=str(cached.resolve()))


def _in_kaggle_cache(name: str) -> Path | None:
    """Return the cached `https://www.kaggle.com/models/OWNER/MODEL/FRAMEWORK/VARIATION/VERSION`."""
    match = _KAGGLE.fullmatch(name)
    if match is None:
        return None
    cache = Path(os.environ.get("KAGGLEHUB_CACHE") or Path.home() / ".cache" / "kagglehub")
    directory = cache.joinpath("models", *match.groups())
    return directory if directory.is_dir() else None


_SCHEMES: Mapping[str, Callable[[str, str, DataRoots], ModelSource]] = {
    APPLICATION: _application,
    PRESET: _preset,
    _HANDLE: _handle,
}


def _options(full_name: str, rest: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Return the text before the question mark, and the options after it."""
    name, _, query = rest.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise InvalidValue(
            full_name, "options such as ?NAME=VALUE&NAME=VALUE", "write them in this form"
        ) from error
    options = dict(pairs)
    for option in options:
        if option not in known:
            raise InvalidValue(full_name, *unknown_name(option, known))
    if len(options) < len(pairs):
        raise InvalidValue(full_name, "every option at most once", "remove the duplicates")
    return name, options


def _numbers(name: str, options: Mapping[str, str]) -> dict[str, int]:
    numbers = {}
    for option, value in options.items():
        least, most = _RANGES[option]
        if not (value.isascii() and value.isdecimal() and len(value) < 10 and least <= int(value) <= most):
            raise InvalidValue(
                name, f"{option} from {least} to {most:,}", f"write {option}={least}, for example"
            )
        numbers[option] = int(value)
    return numbers
