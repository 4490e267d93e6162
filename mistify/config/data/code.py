"""Metrics and losses from a user's own file, written as `FILE.py:NAME`."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from mistify.config.data.metric import Metric
from mistify.config.files import FileField, FileForm, named_in_file, with_files
from mistify.parsing.validation import InvalidValue, Keys, Settings, together


class CodeFile(Settings):
    """A Python file with metrics or losses.

    Attributes:
        path: The file.
        sha256: In hex, once a server has found the file; None in a user's config.
    """

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="the name of a Python file", examples=["losses.py"]
    )
    sha256: str | None = None


def with_code_apart(model: type[Settings], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with a name in place of each `FILE.py:NAME`, and the files by name in `code`.

    Args:
        model: The model of the settings, which marks the settings that may name a file.

    Raises:
        ValidationError: Two files have the same name, or one has the name of a metric of Mistify's own.
    """
    code = dict(settings.get("code") or {})
    mistakes: list[tuple[Keys, InvalidValue]] = []

    def name_of(place: Keys, field: FileField, text: str) -> str:
        file_and_name = named_in_file(text) if field.form is FileForm.CODE else None
        if file_and_name is None:
            return text
        path, name = file_and_name
        if name in Metric.__members__.values():
            expected = f"a name other than {name}, which is a built-in metric"
            mistakes.append((place, InvalidValue(text, expected, "rename it")))
        elif code.setdefault(name, {"path": path}) != {"path": path}:
            mistakes.append((place, InvalidValue(text, f"a single file for {name}", "rename one of the two")))
        return name

    apart: dict[str, Any] = with_files(model, settings, name_of)
    if mistakes:
        raise together("DataSettings", mistakes)
    return {**apart, "code": code} if code else apart
