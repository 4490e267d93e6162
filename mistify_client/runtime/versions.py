"""The versions of a package on a device: the one that was shipped, and those that came after (paper 6).

Beside a package `P` lies `P.state/`, shared by every process that uses the package:

    switchboard         which branch runs
    current, previous   symlinks to versions; where there is none it is P itself
    versions/NAME/      complete packages
    runtimes/PID-N      what each loaded model has lately taken
    execution.json      threads and delegate that were found best

P is never changed. Should P be replaced, the versions that came after the old one no longer count.
"""

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files import locked
from mistify.package.manifest import MANIFEST, Manifest, TensorInfo, verify
from mistify_client.runtime.switchboard import Switchboard

_VERSIONS = "versions"
_CURRENT, _PREVIOUS = "current", "previous"


def state_directory(package: Path) -> Path:
    """Where the state of a package lies; it need not be there."""
    package = package.resolve()
    return package.with_name(f"{package.name}.state")


def current(package: Path) -> Path:
    """The directory of the version that is current: the package itself, or one installed after it."""
    return _target(package, _CURRENT) or package


def previous(package: Path) -> Path:
    """The directory of the version that `roll_back` makes current."""
    return _target(package, _PREVIOUS) or package


def install(
    package: str | os.PathLike[str], new: str | os.PathLike[str], *, expected: Path | None = None
) -> Path:
    """Make a copy of another package the current version; the one before stays as the previous one.

    Whatever fails, and whenever the process ends: the version that was current stays so.

    Args:
        package: the directory of the package that was shipped.
        new: the directory of a package with the same inputs and outputs. It is copied.
        expected: the version that has to be current, as `check_current`; None for whichever is.

    Returns:
        The directory of the new version.

    Raises:
        MistifyError: as `mistify.manifest.verify`, of either package; INVALID_MODEL, the new one takes or
            gives something else; as `check_current`.
        OSError: the copy cannot be written, for example on a full disk.
    """
    package, new = Path(package), Path(new)
    shipped = Manifest.load(package)
    check_interchangeable(shipped, Manifest.load(new), new)
    state = state_directory(package)
    (state / _VERSIONS).mkdir(parents=True, exist_ok=True)
    with locked(state):
        if expected is not None:
            check_current(package, expected)
        _remove_others(package)
        directory = _copied(new, state / _VERSIONS, f"{_base(package)}-")
        if (before := _target(package, _CURRENT)) is not None:
            _link(state / _PREVIOUS, before)
        else:
            (state / _PREVIOUS).unlink(missing_ok=True)
        _link(state / _CURRENT, directory)
        Switchboard.open(state).bump()
        _remove_others(package)
    return directory


def check_current(package: Path, expected: Path) -> None:
    """Make sure that a version is still the current one.

    Raises:
        MistifyError: CONFLICT, it is not.
    """
    if current(package) != expected:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"{package} has got another version than {expected} meanwhile; nothing was installed: begin "
            "again with the current one",
        )


def roll_back(package: str | os.PathLike[str]) -> None:
    """Make the previous version current again; the next time, the package that was shipped.

    Raises:
        MistifyError: NOT_FOUND, the package that was shipped is current.
    """
    package = Path(package)
    state = state_directory(package)
    if not state.is_dir():
        raise _nothing_installed(package)
    with locked(state):
        if _target(package, _CURRENT) is None:
            raise _nothing_installed(package)
        before = _target(package, _PREVIOUS)
        if before is None:
            (state / _CURRENT).unlink()
        else:
            os.replace(state / _PREVIOUS, state / _CURRENT)
        _sync(state)
        Switchboard.open(state).bump()


def announce(package: Path) -> None:
    """Let running models load the version that is current.

    Whoever installed or rolled it back may have ended before they were told; where they were, they load the
    same once more.
    """
    state = state_directory(package)
    with locked(state):
        Switchboard.open(state).bump()


def _target(package: Path, link: str) -> Path | None:
    """Where a link leads; None where there is no such version, or it came after another package than this."""
    state = state_directory(package)
    with suppress(FileNotFoundError, NotADirectoryError):
        directory = state / _VERSIONS / Path(os.readlink(state / link)).name
        if directory.name.startswith(_base(package)) and directory.is_dir():
            return directory
    return None


def _base(package: Path) -> str:
    """Tells shipped packages apart: the names of the versions that came after one begin with it."""
    return hashlib.sha256((package / MANIFEST).read_bytes()).hexdigest()[:16]


def check_interchangeable(shipped: Manifest, new: Manifest, directory: Path) -> None:
    """Make sure that a package, in some directory, takes and gives what the shipped one does.

    Raises:
        MistifyError: INVALID_MODEL, it does not.
    """
    sides = (("inputs", shipped.inputs, new.inputs), ("outputs", shipped.outputs, new.outputs))
    problems = [
        Problem(
            f"{directory / MANIFEST}: {side}", _signature(found), _signature(wanted), "install another one"
        )
        for side, wanted, found in sides
        if _signature(found) != _signature(wanted)
    ]
    if problems:
        message = f"{directory} cannot take the place of the package"
        raise MistifyError(ErrorCode.INVALID_MODEL, message, problems)


def _signature(tensors: tuple[TensorInfo, ...]) -> str:
    """Names, types and shapes; the scales of integers may differ, a caller reads them from the model."""
    return ", ".join(f"{info.name} {info.dtype}{list(info.shape)}" for info in tensors)


def _copied(new: Path, versions: Path, prefix: str) -> Path:
    """A complete copy of a package that lasts; nothing is left of one that is not."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=versions))
    try:
        directory.chmod(0o755)  # other users run the package as well
        for name in (*Manifest.load(new).files, MANIFEST):
            shutil.copyfile(new / name, directory / name)
            _sync(directory / name)
        _sync(directory)
        _sync(versions)
        verify(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return directory


def _remove_others(package: Path) -> None:
    """Remove the versions that no link leads to, which are older ones and incomplete copies."""
    kept = (_target(package, _CURRENT), _target(package, _PREVIOUS))
    for directory in (state_directory(package) / _VERSIONS).iterdir():
        if directory not in kept:
            shutil.rmtree(directory, ignore_errors=True)


def _link(link: Path, directory: Path) -> None:
    """Let a link lead to a version: to the old or the new one, at any moment."""
    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(Path(_VERSIONS) / directory.name)
    os.replace(new, link)
    _sync(link.parent)


def _sync(path: Path) -> None:
    """Wait until a file or directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _nothing_installed(package: Path) -> MistifyError:
    return MistifyError(ErrorCode.NOT_FOUND, f"{package} has no version before the one that is current")
