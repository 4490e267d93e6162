"""Files of keras_hub models, which should be ported as presets: files do not fix the text length."""

import zipfile
from dataclasses import replace
from pathlib import Path

from executors.inspection.archive import CONFIG
from mistify.errors import MistifyError

_PRESET = (
    'save it with model.save_to_preset(DIR), and write "model": "keras_hub/DIR?sequence=N", where a text has '
    "N tokens"
)


def with_preset(path: Path, error: MistifyError) -> MistifyError:
    """Return the error for a file that cannot be ported; for a keras_hub model it recommends a preset.

    Args:
        path: The inspected file or directory.
        error: The reason why it cannot be ported.
    """
    if not _has_hub_classes(path):
        return error
    return MistifyError(error.code, error.message, [replace(one, fix=_PRESET) for one in error.problems])


def _has_hub_classes(path: Path) -> bool:
    if path.suffix != ".keras" or not path.is_file():
        return False
    with zipfile.ZipFile(path) as archive:
        config = archive.read(CONFIG)
    return b"keras_hub" in config or b"keras_nlp" in config
