"""Versions with adapted statistics: installing them, and going back to the version that they were made of."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mistify.adaptation.observing import folded_norms
from mistify.adaptation.statistics import Statistics
from mistify.errors import ErrorCode, MistifyError
from mistify.package.adaptation import ADAPTATION, AdaptationStore
from mistify.package.manifest import MANIFEST, NETWORK
from mistify.package.opened import Package
from mistify.package.records import PackagedFile
from mistify.package.training import Training
from mistify.tflite.rescaling import rescaled
from mistify.tflite.stored import stored_constants
from mistify_client.adapting.fitting import unfitting
from mistify_client.adapting.storage import adaptation_directory
from mistify_client.files import staging
from mistify_client.runtime.versions import check_current, copy_package, current, install, previous, roll_back

__all__ = [
    "AdaptableVersion",
    "adaptable_version",
    "check_base",
    "install_adapted",
    "remove_adaptation",
    "restore",
    "unadapted_directory",
]


@dataclass(frozen=True)
class AdaptableVersion:
    """The current version of a package, and the network that it is made of.

    Attributes:
        directory: The directory of the current version.
        base: The version whose network is adapted: the current one, unless that is adapted.
        store: The description of the norms.
    """

    directory: Path
    base: Package
    store: AdaptationStore

    @property
    def adapted(self) -> bool:
        """True if the current version is adapted."""
        return self.directory != self.base.directory


def adaptable_version(package: Path) -> AdaptableVersion:
    """Return the current version of a package, with the one that it was adapted from if it is adapted.

    Args:
        package: The directory of the shipped package.

    Raises:
        MistifyError: NOT_FOUND, there is no package, it cannot be adapted, or the version that it was adapted
            from is gone; STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, a file of it is
            missing or damaged.
    """
    directory = current(package)
    opened = Package.open(directory)
    store = AdaptationStore.of(opened)
    if store.adapted_from is None:
        return AdaptableVersion(directory, opened, store)
    for candidate in (previous(package), package):
        base = Package.open(candidate)
        if base.manifest.files[NETWORK].sha256 == store.adapted_from:
            return AdaptableVersion(directory, base, store)
    raise MistifyError(
        ErrorCode.NOT_FOUND,
        f"the version that {directory} was adapted from is gone; mistify adaptation --reset removes it",
    )


def install_adapted(package: Path, version: AdaptableVersion, statistics: Statistics) -> AdaptableVersion:
    """Install a version with other statistics as the current one, in place of an earlier adapted version.

    Whenever the process ends, a complete version is current: the old or the new one.

    Args:
        package: The directory of the shipped package.
        version: The current version.
        statistics: The statistics that replace the shipped ones.

    Raises:
        MistifyError: CONFLICT, another version has become current; NOT_FOUND, the package is gone;
            STORE_VERSION, a newer version of Mistify has replaced it; CORRUPT_PACKAGE, a file of it, or of
            its state, is missing or damaged, or the network lacks norms or weights that the package
            describes.
        OSError: The version cannot be written.
    """
    check_current(package, version.directory)
    base, store = version.base, version.store
    norms = folded_norms(store.norms, store.read_statistics(base))
    places = [norm.operators for norm in store.norms]
    try:
        network = rescaled(base.read(NETWORK), places, *norms.changes(statistics))
    except (IndexError, ValueError) as error:
        raise unfitting(base, ADAPTATION, f"norms that do not fit ({error})", "folded norms") from error
    adapted = store.model_copy(update={"adapted_from": base.manifest.files[NETWORK].sha256})
    changed = {NETWORK: network, ADAPTATION: adapted.as_json()}
    with staging(adaptation_directory(package) / "installing") as new:
        copy_package(base.directory, new)
        for name, content in changed.items():
            (new / name).write_bytes(content)
        files = base.manifest.files | {name: PackagedFile.of(content) for name, content in changed.items()}
        described = {"files": files, "created": datetime.now(UTC), "training": _training_of(base, network)}
        base.manifest.model_copy(update=described).save(new)
        directory = install(package, new, expected=version.directory, derived_from=base.directory)
    return AdaptableVersion(directory, base, adapted)


def _training_of(base: Package, network: bytes) -> Training | None:
    """Return the description of training, with the places of weights in the file of an adapted network.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the network has no constant at the place of a weight.
    """
    training = base.manifest.training
    if training is None:
        return None
    before, after = stored_constants(base.read(NETWORK)), stored_constants(network)
    offsets = {before[place].offset: after[place].offset for place in before.keys() & after.keys()}
    try:
        return training.moved(offsets)
    except KeyError as error:
        raise unfitting(base, MANIFEST, f"a weight at byte {error}", "weights at constants") from error


def restore(package: Path, version: AdaptableVersion) -> AdaptableVersion:
    """Make the version that was adapted current again.

    Args:
        package: The directory of the shipped package.
        version: The current version, which is adapted.

    Raises:
        MistifyError: CONFLICT, another version has become current; NOT_FOUND, the package or its state is
            gone; STORE_VERSION, a newer version of Mistify has replaced it; CORRUPT_PACKAGE, a file of it, or
            of its state, is missing or damaged.
    """
    roll_back(package, expected=version.directory)
    return adaptable_version(package)


def unadapted_directory(package: Path) -> Path:
    """Return the current version of a package, or the one that it was adapted from.

    Args:
        package: The directory of the shipped package.

    Raises:
        MistifyError: NOT_FOUND, there is no package, or the version that it was adapted from is gone;
            STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, a file of it is missing or
            damaged.
    """
    directory = current(package)
    return adaptable_version(package).base.directory if _is_adapted(directory) else directory


def check_base(package: Path, base: Path) -> None:
    """Check that a version is still the current one, or the one that the current one was adapted from.

    Raises:
        MistifyError: CONFLICT, another one is current; NOT_FOUND, there is no package, or the version that it
            was adapted from is gone; STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, a
            file of it is missing or damaged.
    """
    if unadapted_directory(package) != base:
        check_current(package, base)


def remove_adaptation(package: Path) -> Path:
    """Roll a package back to a version that is not adapted, and return the directory of this version.

    Args:
        package: The directory of the shipped package.

    Raises:
        MistifyError: NOT_FOUND, there is no package; CONFLICT, another version has become current;
            STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, a file of it, or of its
            state, is missing or damaged.
    """
    while _is_adapted(directory := current(package)):
        roll_back(package, expected=directory)
    return directory


def _is_adapted(directory: Path) -> bool:
    package = Package.open(directory)
    return ADAPTATION in package.manifest.files and AdaptationStore.of(package).adapted_from is not None
