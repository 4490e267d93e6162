"""Writing JSON files that are never half written."""

import json
import os
from pathlib import Path


def write_json(path: Path, value: object) -> None:
    """Write a JSON file so that a reader finds the old or the new content, nothing between.

    A power cut may leave nothing of either: this waits for no disk. `write_durably` does.
    """
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)


def write_durably(path: Path, value: object) -> None:
    """Write a JSON file that a crash at any moment leaves with the old or the new content.

    Once this returns no power cut brings the old one back.
    """
    partial = path.with_name(f"{path.name}.part")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
