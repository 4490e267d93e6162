"""The reference of all settings, generated from the models that validate them."""

import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

import griffe
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.models import OptionInfo

from executors.contract.algorithm import built_in
from executors.contract.params import Params
from mistify.config.porting import PortingConfig
from mistify.costs.axes import known_axes
from mistify.parsing.quantities import format_time
from mistify.peers.hints import Hints
from mistify_client.monitor.config import MonitorConfig
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.criteria import ContextualParams
from mistify_client.monitor.policies.predictive import PredictiveParams
from mistify_client.tuning.config import TuningFile
from mistify_server.config import ServeConfig

_KINDS: Final[Mapping[object, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}

#: The annotations of a duration.
_SECONDS: Final = get_args(Seconds)[1:]


@dataclass(frozen=True)
class Setting:
    """One key of a config.

    Attributes:
        key: Path in the config, such as `dataset.scale.factor`.
        expected: Description of valid values.
        default: Default as written in a config; empty if an optional key has no default value.
        meaning: Description, as a sentence.
    """

    key: str
    expected: str
    default: str
    meaning: str
    required: bool


@dataclass(frozen=True)
class Section:
    """One table of the reference."""

    title: str
    introduction: str
    settings: tuple[Setting, ...]


def sections() -> Iterator[Section]:
    """Yield the tables of all configs, each setting once."""
    yield Section(
        "Goals",
        "A goal in the config of `mistify port`, `plan` and `add`, as explained in [Configs](../config.md). "
        "Objects in a goal have separate tables; `*` stands for a name of your choice.",
        tuple(settings_of(PortingConfig)),
    )
    yield Section(
        "Algorithms",
        "`algorithm.config` of every [algorithm](config.md#algorithms).",
        tuple(settings_of(Params)),
    )
    for name, algorithm in built_in().items():
        yield Section(
            f"Algorithm {name}",
            f'Additional keys of `algorithm.config` if `algorithm.name` is "{name}".',
            tuple(_own(algorithm.params, Params)),
        )
    yield Section(
        "The monitor",
        "`monitor.toml`, the config of [`mistify monitor`](../monitor.md).",
        tuple(settings_of(MonitorConfig)),
    )
    yield Section(
        "The policy predictive",
        '`[policy]` in `monitor.toml` if its `name` is "predictive", the default.',
        tuple(settings_of(PredictiveParams)),
    )
    yield Section(
        "The policy contextual",
        '`[policy]` in `monitor.toml` if its `name` is "contextual": [weighing criteria]'
        "(../monitor.md#weighing-accuracy-latency-energy-and-memory).",
        tuple(settings_of(ContextualParams)),
    )
    yield Section(
        "Tuning with peers",
        "`tuning.toml`, the config of [`mistify tune`](../tuning.md#the-config).",
        tuple(settings_of(TuningFile)),
    )
    yield Section("Hints", "`[hints]` in `tuning.toml`.", tuple(settings_of(Hints)))
    yield Section(
        "The server",
        "`server.toml`, the config of [`mistify-server serve`](../server.md#settings-in-a-file). Each key is "
        "also a flag, with hyphens.",
        tuple(settings_of(ServeConfig)),
    )


def page() -> str:
    """Return the reference as Markdown."""
    text = [
        "# Settings",
        "All keys of all config files. **Bold** keys are required.",
    ]
    for section in sections():
        text += [f"## {section.title}", section.introduction]
        for place, settings in groupby(sorted(section.settings, key=_place), key=_place):
            header = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
            text += [f"### `{place}`"] * bool(place) + ["\n".join([*header, *map(_row, settings)])]
    return "\n\n".join(text) + "\n"


def settings_of(model: type[BaseModel], place: str = "") -> Iterator[Setting]:
    """Yield the settings of a model and of its nested models, with their full keys.

    Args:
        place: Path of the model followed by a dot; empty at the top level.
    """
    meanings = _meanings(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield _setting(place + key, field, meanings.get(name))
        for inner, below in _models(field.annotation):
            yield from settings_of(inner, f"{place}{key}{below}.")


def _own(model: type[BaseModel], base: type[BaseModel]) -> Iterator[Setting]:
    """Yield the settings of a model that are not in its base, or have another default there."""
    common = {setting.key: setting for setting in settings_of(base)}
    return (setting for setting in settings_of(model) if setting != common.get(setting.key))


def _setting(key: str, field: FieldInfo, meaning: str | None) -> Setting:
    axes = {f"adaptation_goal.{axis.key}": axis for axis in known_axes()}
    if key in axes:
        axis = axes[key]
        depends = [" at the package's precision"] * axis.by_precision + [
            " on the `hardware`"
        ] * axis.by_hardware
        limit = "Lower" if axis.higher_is_better else "Upper"
        meaning = f"{limit} limit on {axis.label}{''.join(depends)}."
        return Setting(key, axis.kind.expected, "", meaning, False)
    flag = next((option for option in field.metadata if isinstance(option, OptionInfo)), None)
    meaning = meaning or (flag and flag.help) or None
    expected = _expected(field.annotation) if meaning is None else field.description
    return Setting(
        key,
        _choices(field.annotation) or expected or _expected(field.annotation) + _bounds(field),
        _default(field, flag),
        _sentence(meaning or field.description or ""),
        field.is_required(),
    )


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the attribute descriptions in the docstrings of a model and its bases."""
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        for section in griffe.Docstring(base.__doc__ or "").parse("google", warnings=False):
            if section.kind is griffe.DocstringSectionKind.attributes:
                meanings |= {one.name: " ".join(one.description.split()) for one in section.value}
    return meanings


def _models(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the models in an annotation with the path to them: empty, or `.*` for the values of a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
    elif get_origin(annotation) is dict:
        yield from ((inner, f".*{below}") for inner, below in _models(get_args(annotation)[1]))
    elif get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _models(part)


def _choices(annotation: Any) -> str:
    """Return the allowed names of a value; empty if other values are allowed."""
    parts = [part for part in _parts(annotation) if part is not types.NoneType]
    names: list[str] = []
    for part in parts:
        if get_origin(part) is Literal:
            names += map(str, get_args(part))
        elif isinstance(part, type) and issubclass(part, Enum):
            names += [str(member.value) for member in part]
        else:
            return ""
    return _listed(f'"{name}"' for name in names)


def _expected(annotation: Any) -> str:
    """Return the description of the values of a type."""
    return _listed(dict.fromkeys(_kind(part) for part in _parts(annotation) if part is not types.NoneType))


def _bounds(field: FieldInfo) -> str:
    """Return the bounds of a number; empty without any."""
    low = [f"from {mark.ge:g}" for mark in field.metadata if isinstance(mark, Ge)]
    low += [f"above {mark.gt:g}" for mark in field.metadata if isinstance(mark, Gt)]
    high = [f"to {mark.le:g}" for mark in field.metadata if isinstance(mark, Le)]
    high += [f"below {mark.lt:g}" for mark in field.metadata if isinstance(mark, Lt)]
    return "".join(f" {bound}" for bound in (*low, *high))


def _kind(part: Any) -> str:
    if get_origin(part) is Literal:
        return _listed(f'"{name}"' for name in get_args(part))
    if get_origin(part) is tuple:
        return "a list of numbers"
    if get_origin(part) is dict or (isinstance(part, type) and issubclass(part, BaseModel)):
        return "an object"
    return _KINDS.get(part, "a text")


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a type, without annotations."""
    if hasattr(annotation, "__metadata__"):
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(part for one in get_args(annotation) for part in _parts(one))
    return (annotation,)


def _default(field: FieldInfo, flag: OptionInfo | None) -> str:
    value = None if field.default is PydanticUndefined else field.default
    if isinstance(value, bool):
        return str(value).lower()
    if flag is not None and isinstance(flag.show_default, str):
        return flag.show_default
    if value in (None, [], {}):
        return ""
    if any(part in field.metadata for part in _SECONDS):
        return format_time(1000 * value)
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _place(setting: Setting) -> str:
    """Return the key of the object that contains a setting; empty at the top level."""
    return setting.key.rpartition(".")[0]


def _row(setting: Setting) -> str:
    name = setting.key.rpartition(".")[2]
    key = f"**`{name}`**" if setting.required else f"`{name}`"
    default = f"`{setting.default}`" if setting.default else ""
    return f"| {key} | {_cell(setting.expected)} | {default} | {_cell(setting.meaning)} |"


def _cell(text: str) -> str:
    """Return a table cell with bars and stars escaped."""
    return text.replace("|", "\\|").replace("*", "\\*")
