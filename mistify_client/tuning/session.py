"""Tuning of a package from start to end: its files, its peers, and the new version."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.writing import write_bytes
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.records import describe_file
from mistify.peers.membership import SECRET_BYTES, PackageReference
from mistify_client.adapting.installing import check_base, unadapted_directory
from mistify_client.examples import Examples
from mistify_client.files import damage_reported, held_alone
from mistify_client.porting.progress import Display, LineDisplay
from mistify_client.rpc.connection import Traffic
from mistify_client.runtime.trust import require_trusted
from mistify_client.runtime.versions import current, state_directory
from mistify_client.tuning.examples import Split, split
from mistify_client.tuning.forgetting import Knowledge, knowledge
from mistify_client.tuning.installing import install_tuned
from mistify_client.tuning.peers.exchange import Exchange, Peering
from mistify_client.tuning.peers.models import PeerModels, PeerOutputs
from mistify_client.tuning.peers.teachers import Teachers
from mistify_client.tuning.progress import ProgressFile, TuningProgress
from mistify_client.tuning.rehearsal import rehearsal_of
from mistify_client.tuning.release import Privacy, check_takes_noise, noisy_examples
from mistify_client.tuning.storage import tuning_directory
from mistify_client.tuning.suitability import suitable_augmentation
from mistify_client.tuning.trainer import PackageTrainer, load_trainer, start_from_current
from mistify_client.tuning.training_loop import Score, TrainingSettings
from mistify_client.tuning.tuner import VALIDATION, Tuner

#: The file in a tuner's directory that identifies the device as a member of its group.
_SECRET = "secret"  # noqa: S105 (a file's name)


@dataclass(frozen=True)
class TuningOutcome:
    """The result of a tuning.

    Attributes:
        began: The score before the tuning, on held-out examples.
        ended: The score after the tuning on the same examples, never worse in accuracy or in loss.
        rounds: The number of rounds with peers.
        version: The directory of the new version; None if nothing was gained and nothing installed.
        notes: Messages for the user, such as excluded peers, or an unreachable server.
        traffic: Bytes of all messages to and from the server.
        kept_before: Performance before the tuning on the examples to keep; None if there are none.
        kept_after: Performance after the tuning, on the same examples.
    """

    began: Score
    ended: Score
    rounds: int
    version: Path | None
    notes: tuple[str, ...]
    traffic: Traffic
    kept_before: Knowledge | None = None
    kept_after: Knowledge | None = None

    @property
    def forgotten(self) -> str:
        """A description of what was forgotten on the examples to keep; empty if nothing was."""
        return (
            ""
            if self.kept_before is None or self.kept_after is None
            else self.kept_before.forgotten(self.kept_after)
        )


def tune(
    package: str | os.PathLike[str],
    examples: Examples,
    peering: Peering | None = None,
    privacy: Privacy | None = None,
    *,
    settings: TrainingSettings | None = None,
    keep: Examples | None = None,
    threads: int | None = None,
    display: Display | None = None,
) -> TuningOutcome:
    """Tune a package on a device's data, which never leave it, and make the result its current version.

    If a call was interrupted, even by a crash, the same call with the same package, examples and settings
    continues after the last pass through the data. The tuner's files are in `PACKAGE.state/tuning/`.

    Args:
        package: The directory of the shipped package; its current version is tuned, also if it was adapted
            to its data without labels.
        examples: The device's examples (`examples.read_examples`).
        peering: The group to tune with; None to tune alone. If the server is unreachable, the device tunes
            alone.
        privacy: Trains the published model on noisy data; None publishes the model tuned on the true data.
        keep: Other examples, not used for training, on which the network is measured before and after.
        threads: The number of threads of LiteRT; None for LiteRT's default.
        display: Shows progress.

    Raises:
        MistifyError: NOT_FOUND, there is no package, it cannot be trained, or there is no such group;
            INVALID_DATASET, the examples do not fit, or are too few; INVALID_CONFIG, the file of trusted keys
            cannot be used, or a model is to be published with privacy, and its network does not take one
            float32 input and give one class for each example; INVALID_PUBLICATION, the group requires other
            hints; CONFLICT, the package is already being tuned, or got another version in the meantime, or
            was adapted in layers that are not trained; STORE_VERSION, a newer version of Mistify wrote it;
            CORRUPT_PACKAGE, a file of the package, or of its state, cannot be used; UNTRUSTED, no trusted key
            has signed the package; UNAVAILABLE, the library for signatures is not installed; UNAUTHENTICATED
            or PERMISSION_DENIED, the server refuses the token.
        OSError: A file cannot be written, for example on a full disk.
    """
    shipped = Path(package)
    require_trusted(shipped)
    version = unadapted_directory(shipped)
    trainer = load_trainer(version, threads)
    if privacy is not None and peering is not None:
        check_takes_noise(examples, trainer)
    data = split(examples, VALIDATION, trainer.training.batch_size)
    settings = settings or TrainingSettings()
    with _tuning_directory(shipped) as directory, ExitStack() as stack:
        check_base(shipped, version)  # another process may have tuned it in the meantime
        start_from_current(trainer, version, current(shipped))
        kept_before = None if keep is None else knowledge(trainer, keep)
        exchange = stack.enter_context(_exchange(peering, directory, trainer.manifest)) if peering else None
        group = peering and peering.group
        file = _progress_file(directory, version, (examples.digest, group, privacy, settings))
        rehearsal = rehearsal_of(trainer, examples, settings)
        display = display or LineDisplay(lambda line: None)
        settings = replace(settings, augmentation=suitable_augmentation(trainer, data.held_out))
        if settings.augmentation is not None:
            display.show_line(f"images are {settings.augmentation}")
        tuner = Tuner(trainer, data, settings, file, rehearsal=rehearsal, exchange=exchange, display=display)
        noisy = partial(noisy_examples, examples, trainer, privacy, directory) if privacy else None
        progress = tuner.run(_teachers(trainer, data, directory, exchange), noisy)
        installed = _install_if_better(shipped, version, progress, len(data.validation))
        file.remove()
        traffic = exchange.traffic if exchange else Traffic()
    trainer.restore(progress.state.best_weights)
    kept_after = None if keep is None else knowledge(trainer, keep)
    began, best, notes = progress.began, progress.state.best, tuple(tuner.notes)
    return TuningOutcome(began, best, progress.round, installed, notes, traffic, kept_before, kept_after)


def _progress_file(directory: Path, version: Path, inputs: tuple[object, ...]) -> ProgressFile:
    """Return the file for the progress of tuning a version with these inputs; others do not continue it."""
    described = (describe_file(version / MANIFEST), *inputs)
    return ProgressFile(directory / "progress.safetensors", sha256(repr(described).encode()).hexdigest())


def _teachers(trainer: PackageTrainer, data: Split, directory: Path, exchange: Exchange | None) -> Teachers:
    outputs = PeerOutputs(directory / "outputs" / data.examples.digest, data.examples)
    fetch = exchange.fetch if exchange else _no_packages
    packages = PeerModels(directory / "packages", trainer.manifest, fetch)
    return Teachers(trainer, data, outputs, packages)


def _install_if_better(shipped: Path, version: Path, progress: TuningProgress, validated: int) -> Path | None:
    """Install the best weights as the new version if they are better than the initial ones.

    Args:
        shipped: The directory of the shipped package.
        version: The directory of the tuned version.
        progress: The progress of the finished tuning.
        validated: The number of held-out examples.

    Returns:
        The directory of the new version; None if nothing was gained.
    """
    state = progress.state
    if state.best == progress.began:
        return None
    return install_tuned(shipped, version, state.best_weights, state.best, validated)


def withdraw(package: str | os.PathLike[str], peering: Peering) -> None:
    """Leave a group, so that the coordinator deletes the published model. Peers may have copies.

    Args:
        package: The directory of the shipped package.
        peering: Only the server, the group and the token are used.

    Raises:
        MistifyError: NOT_FOUND, the package was never tuned with peers; CONFLICT, it is being tuned;
            UNAVAILABLE, the coordinator is unreachable.
    """
    shipped = Path(package)
    directory = state_directory(shipped) / "tuning"
    if not (directory / _SECRET).exists():
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f"{directory / _SECRET} is missing: {shipped} was never tuned with peers; name one that was",
        )
    with (
        _tuning_directory(shipped),
        _exchange(peering, directory, Manifest.load(current(shipped))) as exchange,
    ):
        exchange.leave()


@contextmanager
def _tuning_directory(shipped: Path) -> Iterator[Path]:
    """Yield the directory of a package's tuner, created if necessary and locked for this process."""
    with damage_reported(state_directory(shipped)):
        directory = tuning_directory(shipped)
        with held_alone(directory, "the package is already being tuned"):
            yield directory


def _exchange(peering: Peering, directory: Path, manifest: Manifest) -> Exchange:
    digest = manifest.tuned_from or manifest.files[NETWORK].sha256
    package = PackageReference(manifest.job, manifest.goal, digest)
    return Exchange(peering, _secret(directory / _SECRET), package, directory / "weights")


def _secret(path: Path) -> bytes:
    """Return the member's secret, generated on the first call; anybody who has it can act as the member."""
    if not path.exists():
        write_bytes(path, secrets.token_bytes(SECRET_BYTES), durable=True, private=True)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        expected, fix = f"{SECRET_BYTES} bytes", "remove it: the device joins the group as a new one"
        problem = Problem(str(path), f"{len(secret)} bytes", expected, fix)
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, "the secret of this device is damaged", [problem])
    return secret


def _no_packages(package: PackageReference, directory: Path) -> None:
    raise MistifyError(ErrorCode.UNAVAILABLE, f"no server to fetch the goal {package.goal_id} from")
