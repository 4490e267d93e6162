"""The files of an image folder: images to read, and files to skip."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from executors.data.errors import invalid
from executors.readers.decoding import SUFFIXES
from mistify.errors import Problem
from mistify.files.suffixes import suffix_of
from mistify.wording import listed

#: Maximum number of directories for which a message lists skipped files.
_MOST_DIRECTORIES: Final = 10


def is_image(path: Path) -> bool:
    """Check whether a file name has the suffix of a readable image."""
    return suffix_of(path) in SUFFIXES and _is_shown(path)


def directories(path: Path) -> list[Path]:
    """Return the visible directories in a folder, sorted by name."""
    return [entry for entry in shown(path) if entry.is_dir()]


def shown(directory: Path) -> list[Path]:
    """Return the visible entries of a directory, sorted by name."""
    return sorted(filter(_is_shown, directory.iterdir()))


def images(directory: Path, root: Path) -> Iterator[Path]:
    """Yield every image below a directory, sorted by name.

    Raises:
        MistifyError: INVALID_DATASET if a link leads out of the root, or to a directory.
    """
    return filter(is_image, _files(directory, root))


def without_images(directory: Path, root: Path) -> str:
    """Describe the contents of a directory with files but no images; empty for others.

    Raises:
        MistifyError: INVALID_DATASET, a link leads out of the root, or to a directory.
    """
    files = list(_files(directory, root))
    return "" if any(map(is_image, files)) else counts_by_suffix(files)


def left_out(root: Path, *, by_class: bool) -> str:
    """Describe the number, kinds and places of a folder's skipped files; empty if there are none.

    Args:
        root: The folder with all images.
        by_class: Whether images must be in class directories.

    Raises:
        MistifyError: INVALID_DATASET, a link leads out of the root, or to a directory.
    """
    unread: dict[str, list[Path]] = {}
    for file in _files(root, root):
        place = file.relative_to(root).parts[0] if file.parent != root else ""
        if not is_image(file) or (by_class and not place):
            unread.setdefault(place, []).append(file)
    counts = [
        f"{counts_by_suffix(files)} in {place or 'the folder itself'}" for place, files in unread.items()
    ]
    return "; ".join(counts[:_MOST_DIRECTORIES]) + (", and more" if len(counts) > _MOST_DIRECTORIES else "")


def counts_by_suffix(files: list[Path]) -> str:
    """Return the number of files with each suffix: "12 .heic and 1 .txt"."""
    kinds = Counter(suffix_of(file) or "without a suffix" for file in files)
    return listed([f"{count:,} {kind}" for kind, count in kinds.most_common()]) if kinds else ""


def _files(directory: Path, root: Path) -> Iterator[Path]:
    """Yield all visible files below a directory, at any depth."""
    waiting = [directory]
    while waiting:
        entry = waiting.pop()
        if entry.is_symlink():
            _check_link(entry, root)
        if entry.is_dir():
            waiting += reversed(shown(entry))
        else:
            yield entry


def _check_link(link: Path, root: Path) -> None:
    outside = not link.resolve().is_relative_to(root.resolve())
    if outside or link.is_dir():
        leads = "leads out of the folder" if outside else "leads to a directory"
        actual = f"{link.relative_to(root)}, a link that {leads}"
        raise invalid(Problem(str(root), actual, "files", "copy the target of the link"))


def _is_shown(path: Path) -> bool:
    return not path.name.startswith(".")
