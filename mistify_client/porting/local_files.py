"""Upload of models and data on this machine that a config for a remote server names."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from mistify.config.files import FileField, external_data_of, with_files
from mistify.config.porting import PortingConfig
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.records import describe_file
from mistify.parsing.jsonc import JsonError, read_json
from mistify.parsing.quantities import format_bytes
from mistify.parsing.validation import Keys
from mistify.uploads import FileDigest, UploadName, listing_text
from mistify_client.rpc.files import FilesClient


@dataclass(frozen=True)
class LocalFiles:
    """A config in which local files are identified by their content, and these files.

    Attributes:
        text: JSON of the config.
        paths: Digest -> path of a local file that the config needs.
        listings: Digest -> listing of a directory.
    """

    text: str
    paths: Mapping[FileDigest, Path] = field(default_factory=dict)
    listings: Mapping[FileDigest, bytes] = field(default_factory=dict)

    def send(self, client: FilesClient, show_line: Callable[[str], object], *, for_job: bool = False) -> None:
        """Upload the files that the server lacks, and report them.

        Args:
            client: Sends them.
            show_line: Shows which ones are sent.
            for_job: Whether they are for a new job, and not needed if the caller may not have one.

        Raises:
            MistifyError: NO_ROOM or QUOTA_EXCEEDED, the upload exceeds a limit, or there may be no further
                job; NOT_FOUND, a file cannot be read.
        """
        with TemporaryDirectory() as directory:
            paths = dict(self.paths)
            for listing, content in self.listings.items():
                paths[listing] = Path(directory) / listing.sha256
                paths[listing].write_bytes(content)
            missing = {file: paths[file] for file in client.missing(list(paths), for_job=for_job)}
            if missing:
                size = format_bytes(sum(file.size for file in missing), 3)
                names = [path.name for file, path in missing.items() if file not in self.listings]
                show_line(f"sending {_in_short(names)}, {size}")
            with _readable():
                client.send(missing)


def local_files(text: str, roots: Sequence[Path]) -> LocalFiles:
    """Return a config with its files below some directories; names of missing files stay unchanged.

    Args:
        text: JSON of the config.
        roots: Directories in which relative paths are looked up, in order. Other files are never uploaded, so
            that a config from somebody else cannot leak files of this machine.

    Raises:
        MistifyError: NOT_FOUND, a file or directory cannot be read; INVALID_DATASET, a link in a directory
            points outside, or to another directory.
    """
    try:
        value, _ = read_json(text)
    except JsonError:  # the server reports where it is
        return LocalFiles(text)
    collector = _Collector(roots)
    with _readable():
        for goal in _goals(value):
            collector.replace_in(goal)
    if not collector.names:
        return LocalFiles(text)
    return LocalFiles(json.dumps(value, indent=1), collector.paths, collector.listings)


class _Collector:
    """Files below some directories, and their names in configs."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self.names: dict[Path, UploadName] = {}
        self.paths: dict[FileDigest, Path] = {}
        self.listings: dict[FileDigest, bytes] = {}

    def replace_in(self, goal: dict[str, Any]) -> None:
        """Replace the file names in a goal, or in the defaults of goals, by names of uploads."""
        goal.update(with_files(PortingConfig, goal, self._renamed))

    def _renamed(self, _place: Keys, field: FileField, text: str) -> str:
        return field.renamed(text, self._name)

    def _name(self, name: str) -> str:
        """Return the upload's name for a local file or directory, and other names unchanged."""
        for root in self._roots:
            path = _resolved(root, name)
            if path is not None and self._may_be_sent(path) and (path.is_file() or path.is_dir()):
                return str(self._added(path))
        return name

    def _may_be_sent(self, path: Path) -> bool:
        """Check whether a path, with all symbolic links resolved, is below one of the directories."""
        return any(root in path.parents for root in self._roots)

    def _added(self, path: Path) -> UploadName:
        if path not in self.names:
            data = external_data_of(path)
            if data is not None:
                digest = self._add_directory(path.parent, [path, data])
            else:
                digest = self._add_file(path) if path.is_file() else self._add_directory(path, _below(path))
            self.names[path] = UploadName(digest.sha256, path.name, path.is_dir() or data is not None)
        return self.names[path]

    def _add_file(self, path: Path) -> FileDigest:
        described = describe_file(path)
        file = FileDigest(described.sha256, described.size)
        self.paths[file] = path
        return file

    def _add_directory(self, directory: Path, paths: Iterable[Path]) -> FileDigest:
        """Add all or some of the files in a directory."""
        paths = list(paths)
        for path in paths:
            if path.is_dir():
                raise _unsent(directory, path, "files, or directories that are not links", "copy it")
            if not self._may_be_sent(path.resolve()):
                roots = " or ".join(map(str, self._roots))
                raise _unsent(directory, path, f"files below {roots}", "copy it, or name its --data-root")
        files = {path.relative_to(directory).as_posix(): self._add_file(path) for path in paths}
        content = listing_text(files)
        listing = FileDigest(sha256(content).hexdigest(), len(content))
        self.listings[listing] = content
        return listing


def _resolved(root: Path, name: str) -> Path | None:
    """Return the path of a name below a directory; None for names that cannot be paths."""
    try:
        return (root / name).resolve()
    except (OSError, ValueError):
        return None


def _below(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory, and links to directories, in a deterministic order.

    Raises:
        OSError: A directory cannot be read.
    """
    for parent, directories, names in os.walk(directory, onerror=_raise):
        directories.sort()
        links = [name for name in directories if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in sorted([*names, *links]))


def _raise(error: OSError) -> NoReturn:
    raise error


def _unsent(directory: Path, link: Path, expected: str, fix: str) -> MistifyError:
    problem = Problem(str(link), f"a link to {link.resolve()}", expected, fix)
    return MistifyError(ErrorCode.INVALID_DATASET, f"{directory} is not sent", [problem])


def _goals(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects in a config that can name files: goals and their defaults."""
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            yield part
            inner = part.get("goals")
            for goal in (part.get("defaults"), *(inner if isinstance(inner, list) else ())):
                if isinstance(goal, dict):
                    yield goal


def _in_short(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names) or "a directory"
    return f"{len(names):,} files"


@contextmanager
def _readable() -> Iterator[None]:
    """Report errors while reading local files as advice."""
    try:
        yield
    except OSError as error:
        message = f"{error.filename} cannot be read ({error.strerror}); check its permissions"
        raise MistifyError(ErrorCode.NOT_FOUND, message) from error
