"""Packages of goals as versions of a monitored package: whether one is installed, and how it comes and goes.

Each function may be repeated after a crash.
"""

import shutil
from pathlib import Path

from mistify.package.manifest import Manifest
from mistify_client.runtime.versions import announce, current, install, roll_back


def is_installed(package: Path, job: str | None, goal: str) -> bool:
    """Return True if the current version is the package of a goal, or was tuned from it.

    The shipped package itself does not count.

    Args:
        package: The directory of the shipped package.
        job: The job of the goal.
    """
    version = current(package)
    return version != package and runs(package, job, goal)


def runs(package: Path, job: str | None, goal: str) -> bool:
    """Return True if the current version, shipped or installed, is of a goal."""
    manifest = Manifest.load(current(package))
    return (manifest.job, manifest.goal) == (job, goal)


def install_candidate(package: Path, candidate: Path, job: str | None, goal: str) -> None:
    """Make a downloaded package of a goal the current version, and remove the download.

    Args:
        package: The directory of the shipped package.
        candidate: The directory of the download.
        job: The job of the goal.

    Raises:
        MistifyError: NOT_FOUND, one of the packages is gone; STORE_VERSION, a newer version of Mistify wrote
            one; INVALID_MODEL, the download has other inputs or outputs; CORRUPT_PACKAGE, a file of a
            package, or of the state, is missing or damaged.
        OSError: The version cannot be written, for example on a full disk.
    """
    if is_installed(package, job, goal):  # a crash occurred before that was recorded
        announce(package)
    else:
        install(package, candidate)
    shutil.rmtree(candidate, ignore_errors=True)


def take_back(package: Path, job: str | None, goal: str) -> None:
    """Return from the package of a goal to the version before it.

    Args:
        package: The directory of the shipped package.
        job: The job of the goal.

    Raises:
        MistifyError: NOT_FOUND, the package is gone, or another process rolls it back as well; STORE_VERSION,
            a newer version of Mistify wrote it; CORRUPT_PACKAGE, its manifest, or its state, is damaged.
    """
    if not is_installed(package, job, goal):  # already rolled back, as above
        announce(package)
    while is_installed(package, job, goal):  # repeated if it was tuned in the meantime
        roll_back(package)
