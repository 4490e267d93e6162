"""The versions of a package on a device: the shipped one, and later ones (paper 6).

Next to a package `P` is `P.state/`, shared by every process that uses the package:

    switchboard         the current option
    pool.json           the best subnets of blocks on this device
    stitched/           the most recent subnets, each stitched into one network
    slices/             latencies of slices, by which networks for other tasks are chosen; the ladder of those
                        that a monitor may switch to, and the most recent ones of them
    engines/            engines measured on this device, and files that several processes map
    origin.json         the token files of the servers from which blocks are downloaded
    current, previous   symlinks to versions; a missing link stands for P itself
    versions/NAME/      complete packages; `derived_from` in one is a symlink to its base
    runtimes/PID-N      the last inferences of each loaded model

P is never changed. If P is replaced, versions installed on top of the old one are ignored.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.files.writing import sync_path
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.opened import Package
from mistify.package.signature import SIGNATURE_FILE
from mistify.package.verification import verify
from mistify_client.files import damage_reported
from mistify_client.origin import ORIGIN
from mistify_client.runtime.derived_versions import base_of, note_base, with_bases
from mistify_client.runtime.interchangeable import check_interchangeable
from mistify_client.runtime.links import link_target, set_link
from mistify_client.runtime.switchboard import Switchboard

__all__ = ["current", "install", "previous", "roll_back"]

_STATE: Final = ".state"
_VERSIONS: Final = "versions"
_CURRENT: Final = "current"
_PREVIOUS: Final = "previous"

#: Digits of a shipped package's digest in the prefix of the names of its later versions.
_BASE_DIGITS: Final = 16


def state_directory(package: Path) -> Path:
    """Return the state directory of a package, which need not exist."""
    package = Path(os.path.realpath(package))
    return package.with_name(f"{package.name}{_STATE}")


def shipped_package(state: Path) -> Path:
    """Return the package of a state directory."""
    return state.with_name(state.name.removesuffix(_STATE))


def is_version(directory: Path) -> bool:
    """Check whether a directory is that of a version installed later, rather than of a shipped package."""
    return directory.parent.name == _VERSIONS and directory.parent.parent.name.endswith(_STATE)


def shipped_of(version: Path) -> Path:
    """Return the directory of the shipped package of an installed version."""
    return shipped_package(version.parent.parent)


def current(package: Path) -> Path:
    """Return the directory of the current version: the package itself, or a version installed later.

    Raises:
        MistifyError: CORRUPT_PACKAGE, this process may not read the manifest of the shipped package.
    """
    return _target(package, _CURRENT) or package


def open_current(package: Path, shipped: Package | None = None) -> Package:
    """Open the current version of a package.

    Args:
        package: The directory of the shipped package.
        shipped: The shipped package, if it is already open.

    Raises:
        MistifyError: NOT_FOUND, there is no package; STORE_VERSION, a newer version of Mistify wrote it;
            CORRUPT_PACKAGE, with every problem in its manifest or its signature.
    """
    directory = _target_in(state_directory(package), _CURRENT, package, shipped) or package
    return shipped if shipped is not None and directory == package else Package.open(directory)


def lost_current(state: Path, shipped: Package) -> str | None:
    """Return why a package runs as it was shipped although another version was current; None if none was.

    Versions of another package that was in its place do not count.

    Args:
        state: The state directory of the package.
    """
    link = state / _CURRENT
    if not os.path.islink(link):
        return f"{link} is not a link to a version; remove it" if os.path.lexists(link) else None
    version = state / _VERSIONS / link.readlink().name
    if not version.name.startswith(shipped.digest[:_BASE_DIGITS]) or version.is_dir():
        return None
    return f"{version}, the version that was current, is missing; install it again"


def previous(package: Path) -> Path:
    """Return the directory of the version that `roll_back` makes current."""
    version = _target(package, _CURRENT)
    base = None if version is None else base_of(version)
    return base or _target(package, _PREVIOUS) or package


def install(
    package: str | os.PathLike[str],
    new: str | os.PathLike[str],
    *,
    expected: Path | None = None,
    derived_from: Path | None = None,
) -> Path:
    """Make a copy of another package the current version; the old one becomes the previous version.

    If the new one is derived from another version, that one becomes the previous version instead, and the one
    before that stays behind it.

    Whatever fails, and whenever the process ends, a complete version is current: the old or the new one.

    Args:
        package: The directory of the shipped package.
        new: The directory of a package with the same inputs and outputs, which is copied.
        expected: The version that has to be current, as for `check_current`; None for any.
        derived_from: The version that the new one was adapted or tuned from, which is the current one, or
            which the current one was derived from; None if it is another package.

    Returns:
        The directory of the new version.

    Raises:
        MistifyError: NOT_FOUND, a package does not exist; STORE_VERSION, a newer Mistify wrote one;
            INVALID_MODEL, the new one has other inputs or outputs; CONFLICT, another version than the
            expected one is current; CORRUPT_PACKAGE, one of the packages, or the state, is damaged.
        OSError: The copy cannot be written, for example on a full disk.
    """
    package, new = Path(package), Path(new)
    shipped = Manifest.load(package)
    check_interchangeable(shipped, Manifest.load(new), new)
    state = state_directory(package)
    with damage_reported(state):
        (state / _VERSIONS).mkdir(parents=True, exist_ok=True)
        with locked(state):
            if expected is not None:
                check_current(package, expected)
            _remove_others(package)
            directory = _copied(new, state / _VERSIONS, f"{_base(package)}-")
            if derived_from is None:
                _remember(package, state)
            elif is_version(derived_from):
                note_base(directory, derived_from)
            _point(state / _CURRENT, directory)
            Switchboard.open(state).bump()
            _remove_others(package)
    return directory


def _remember(package: Path, state: Path) -> None:
    """Make the current version the previous one."""
    if (before := _target(package, _CURRENT)) is not None:
        _point(state / _PREVIOUS, before)
    else:
        (state / _PREVIOUS).unlink(missing_ok=True)


def copy_package(package: Path, directory: Path) -> None:
    """Copy the existing files of a package: blocks may be absent, and `verify` reports other missing files.

    Args:
        package: The package's directory.
        directory: The directory for the copies.
    """
    for name in (*Manifest.load(package).files, MANIFEST, SIGNATURE_FILE, ORIGIN):
        if (package / name).exists():
            shutil.copyfile(package / name, directory / name)
            sync_path(directory / name)


def check_current(package: Path, expected: Path) -> None:
    """Check that a version is still the current one.

    Raises:
        MistifyError: CONFLICT, another one is current.
    """
    if current(package) != expected:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"{package} has another version than {expected} by now; nothing was installed: "
            "start again from the current one",
        )


def roll_back(package: str | os.PathLike[str], *, expected: Path | None = None) -> None:
    """Make the previous version current again; further calls, those before, down to the shipped package.

    Args:
        package: The directory of the shipped package.
        expected: The version that has to be current, as for `check_current`; None for any.

    Raises:
        MistifyError: NOT_FOUND, the shipped package is current; CONFLICT, another version than the expected
            one is current; CORRUPT_PACKAGE, the state of the package is damaged.
    """
    package = Path(package)
    state = state_directory(package)
    if not state.is_dir():
        raise _nothing_installed(package)
    with damage_reported(state), locked(state):
        if expected is not None:
            check_current(package, expected)
        version = _target(package, _CURRENT)
        if version is None:
            raise _nothing_installed(package)
        if (base := base_of(version)) is not None:
            _point(state / _CURRENT, base)
        elif _target(package, _PREVIOUS) is None:
            (state / _CURRENT).unlink()
        else:
            (state / _PREVIOUS).replace(state / _CURRENT)
        sync_path(state)
        Switchboard.open(state).bump()


def announce(package: Path) -> None:
    """Make running models load the current version.

    A process that installed or rolled back may have ended before it announced the version; if it did announce
    it, models load the same version once more.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the state of the package is damaged.
    """
    state = state_directory(package)
    with damage_reported(state), locked(state):
        Switchboard.open(state).bump()


def _target(package: Path, link: str) -> Path | None:
    """Return the version that a link points to; None if there is none, or it belongs to another package.

    Anything else in place of a link or a version is ignored; errors name it if it has to be replaced.

    Args:
        package: The directory of the shipped package.
    """
    return _target_in(state_directory(package), link, package)


def _target_in(state: Path, link: str, package: Path, shipped: Package | None = None) -> Path | None:
    """Return the version that a link in a state directory points to, like `_target`.

    Args:
        package: The directory of the shipped package.
        shipped: The shipped package, if it is already open.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        content = link_target(state / link)
        directory = state / _VERSIONS / Path(content).name
        base = _base(package) if shipped is None else shipped.digest[:_BASE_DIGITS]
        if directory.name.startswith(base) and directory.is_dir():
            return directory
    return None


def _base(package: Path) -> str:
    """Return a digest of a shipped package, the prefix of the names of its later versions."""
    if not (package / MANIFEST).exists():
        raise FileNotFoundError(errno.ENOENT, "no package", str(package))
    with damage_reported(package):
        content = (package / MANIFEST).read_bytes()
    return hashlib.sha256(content).hexdigest()[:_BASE_DIGITS]


def _copied(new: Path, versions: Path, prefix: str) -> Path:
    """Copy a package and return the directory of the copy; remove incomplete copies."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=versions))
    try:
        directory.chmod(0o755)  # other users run the package as well
        copy_package(new, directory)
        sync_path(directory)
        sync_path(versions)
        verify(directory)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return directory


def _remove_others(package: Path) -> None:
    """Remove versions without a link: older ones and incomplete copies."""
    linked = (_target(package, _CURRENT), _target(package, _PREVIOUS))
    kept = {version for target in linked if target is not None for version in with_bases(target)}
    for directory in (state_directory(package) / _VERSIONS).iterdir():
        if directory not in kept:
            shutil.rmtree(directory, ignore_errors=True)


def _point(link: Path, version: Path) -> None:
    """Make a link in a state directory point to a version."""
    set_link(link, Path(_VERSIONS) / version.name)


def _nothing_installed(package: Path) -> MistifyError:
    return MistifyError(ErrorCode.NOT_FOUND, f"{package} has no version before the current one")
