"""Installation of a new version with tuned weights, to which running models switch."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.adaptation import ADAPTATION, STATISTICS
from mistify.package.exits import EXIT_STAGES, EXITS
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.records import PackagedFile, describe_file
from mistify_client.adapting.installing import check_base
from mistify_client.runtime.versions import copy_package, current, install
from mistify_client.tuning.storage import tuning_directory
from mistify_client.tuning.trainer import Weights, write_weights
from mistify_client.tuning.training_loop import Score

_OF_SHIPPED_NETWORK: Final = (ADAPTATION, STATISTICS, EXITS, EXIT_STAGES)


def install_tuned(package: Path, tuned: Path, weights: Weights, score: Score, examples: int) -> Path:
    """Install a package with tuned weights as the current version, unless another one has become current.

    If it is adapted to its data at the time, the adapted version is replaced; `roll_back` makes the one that
    was tuned current.

    Args:
        package: The directory of the shipped package.
        tuned: The directory of the version that was tuned.
        weights: Weight name -> tuned values.
        score: The score on held-out examples.
        examples: The number of held-out examples.

    Returns:
        The directory of the new version.

    Raises:
        MistifyError: CONFLICT, the tuned version is not the current one; NOT_FOUND, it is gone, or cannot be
            trained; STORE_VERSION, a newer version of Mistify has replaced it; INVALID_DATASET, the weights
            do not fit; CORRUPT_PACKAGE, a file of it, or of the state of the package, is missing or damaged.
        OSError: The version cannot be written, for example on a full disk.
    """
    check_base(package, tuned)  # otherwise the tuned version may have been removed
    with _staging(package) as new:
        copy_package(tuned, new)
        write_weights(tuned, weights, new / NETWORK)
        _describe(Manifest.load(tuned), new, score, examples).save(new)
        return _install(package, new, tuned)


def _install(package: Path, new: Path, tuned: Path) -> Path:
    while True:
        check_base(package, tuned)
        running = current(package)
        try:
            return install(package, new, expected=running, derived_from=tuned)
        except MistifyError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise  # else it was adapted once more, which happens once a minute, or another one is current


@contextmanager
def _staging(package: Path) -> Iterator[Path]:
    """Yield a temporary empty directory next to a package, because `/tmp` may be in memory."""
    directory = tuning_directory(package) / "installing"
    shutil.rmtree(directory, ignore_errors=True)  # left by a killed process
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _describe(manifest: Manifest, new: Path, score: Score, examples: int) -> Manifest:
    """Return the manifest of a tuned package; its accuracy is measured on the device's own data."""
    accuracies = dict.fromkeys(("accuracy", "validation_accuracy"), score.accuracy)
    scored = {**accuracies, "accuracy_examples": examples}
    return manifest.model_copy(
        update={
            **(scored if manifest.metric is Metric.ACCURACY else {}),  # a tuner measures no other metric
            "tuned_from": manifest.tuned_from or manifest.files[NETWORK].sha256,
            "files": {**_still_valid(manifest), NETWORK: describe_file(new / NETWORK)},
            "created": datetime.now(UTC),
        }
    )


def _still_valid(manifest: Manifest) -> dict[str, PackagedFile]:
    """Return the files of a package without those that describe its network as it was before tuning.

    These are the statistics of its batch norms, and its exits.
    """
    return {name: file for name, file in manifest.files.items() if name not in _OF_SHIPPED_NETWORK}
