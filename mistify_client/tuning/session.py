"""Tuning a package from beginning to end: what lies beside it, its peers, the version that comes of it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files import try_lock, write_bytes
from mistify.package.manifest import MANIFEST, Manifest, describe_file
from mistify.peers.membership import SECRET_BYTES, PackageReference
from mistify_client.porting.progress import Display, LineDisplay
from mistify_client.rpc.connection import Traffic
from mistify_client.runtime.interpreter import NETWORK
from mistify_client.runtime.versions import current, state_directory
from mistify_client.tuning.examples import Examples, split
from mistify_client.tuning.fitting import Pace, Score
from mistify_client.tuning.installation import install_tuned
from mistify_client.tuning.peers.exchange import Exchange, Peering
from mistify_client.tuning.peers.models import PeerModels, PeerOutputs
from mistify_client.tuning.peers.teachers import Teachers
from mistify_client.tuning.progress import ProgressFile
from mistify_client.tuning.release import Privacy, noisy_examples
from mistify_client.tuning.trainer import load_trainer
from mistify_client.tuning.tuner import VALIDATION, Tuner

#: Below a tuner's directory: what makes it the member that it is.
_SECRET = "secret"  # noqa: S105 (a file's name)


@dataclass(frozen=True)
class TuningOutcome:
    """What came of a tuning.

    Attributes:
        began: how the network did at first on examples that were set apart.
        ended: how it does on them now, never worse in accuracy nor in loss.
        rounds: how often peers have taught.
        version: the directory of the new version; None where nothing was gained, and nothing installed.
        notes: what the user should know: peers that were left out, a server that was away.
        traffic: of all messages from and to the server.
    """

    began: Score
    ended: Score
    rounds: int
    version: Path | None
    notes: tuple[str, ...]
    traffic: Traffic


def tune(
    package: str | os.PathLike[str],
    examples: Examples,
    peering: Peering | None = None,
    privacy: Privacy | None = None,
    *,
    pace: Pace | None = None,
    threads: int | None = None,
    display: Display | None = None,
) -> TuningOutcome:
    """Tune a package on a device's data, which never leave it, and make the result its current version.

    A call that was broken off, also by a crash, goes on after the last pass through the data when it is made
    again with the same package, examples and settings. What the tuner keeps lies in `PACKAGE.state/tuning/`.

    Args:
        package: the directory of the package that was shipped; its current version is tuned.
        examples: of the device (`examples.read_examples`).
        peering: with whom it tunes; None to tune alone. A server that is away costs the peers, nothing else.
        privacy: makes what is published from noisy data; None publishes what was tuned on the true ones.
        pace: of the training.
        threads: how many LiteRT uses; its own choice if not given.
        display: where progress is shown.

    Raises:
        MistifyError: NOT_FOUND, the package cannot be trained, or there is no such group; INVALID_DATASET,
            the examples do not fit, or are too few; INVALID_PUBLICATION, the hints are not those of the
            group; CONFLICT, the package is being tuned already, or got another version meanwhile.
    """
    shipped, pace = Path(package), pace or Pace()
    version = current(shipped)
    trainer = load_trainer(version, threads)
    data = split(examples, VALIDATION, trainer.training.batch_size)
    with ExitStack() as stack:
        directory = stack.enter_context(_held(state_directory(shipped) / "tuning"))
        exchange = _exchange(peering, directory, trainer.manifest) if peering else None
        if exchange is not None:
            stack.enter_context(exchange)
        of = describe_file(version / MANIFEST), examples.digest, peering and peering.group, privacy, pace
        file = ProgressFile(directory / "progress.safetensors", sha256(repr(of).encode()).hexdigest())
        tuner = Tuner(
            trainer,
            data,
            pace,
            file,
            exchange=exchange,
            display=display or LineDisplay(lambda line: None),
        )
        teachers = Teachers(
            trainer,
            data,
            PeerOutputs(directory / "outputs" / examples.digest, examples),
            PeerModels(
                directory / "packages", trainer.manifest, exchange.fetch if exchange else _no_packages
            ),
        )
        noisy = partial(noisy_examples, examples, trainer, privacy, directory) if privacy else None
        progress = tuner.run(teachers, noisy)
        best, installed = progress.course.best, None
        if best != progress.began:
            weights = progress.course.best_weights
            installed = install_tuned(shipped, version, weights, best, len(data.validation))
        file.remove()
        traffic = exchange.traffic if exchange else Traffic()
        return TuningOutcome(progress.began, best, progress.round, installed, tuple(tuner.notes), traffic)


def withdraw(package: str | os.PathLike[str], peering: Peering) -> None:
    """Leave a group: the coordinator deletes what `tune` has published there. Peers may have copies.

    Args:
        package: the directory of the package that was shipped.
        peering: of which the server, the group and the token matter.

    Raises:
        MistifyError: NOT_FOUND, the package was never tuned with peers; CONFLICT, it is being tuned;
            UNAVAILABLE, the coordinator cannot be reached.
    """
    shipped = Path(package)
    directory = state_directory(shipped) / "tuning"
    if not (directory / _SECRET).exists():
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f"{directory / _SECRET} is missing: {shipped} was never tuned with peers; name one that was",
        )
    with _held(directory), _exchange(peering, directory, Manifest.load(current(shipped))) as exchange:
        exchange.leave()


def _exchange(peering: Peering, directory: Path, manifest: Manifest) -> Exchange:
    digest = manifest.tuned_from or manifest.files[NETWORK].sha256
    package = PackageReference(manifest.job, manifest.goal, digest)
    return Exchange(peering, _secret(directory / _SECRET), package, directory / "weights")


def _secret(path: Path) -> bytes:
    """The member's secret, made once; whoever has it is the member."""
    if not path.exists():
        write_bytes(path, secrets.token_bytes(SECRET_BYTES), durable=True, private=True)
    return path.read_bytes()


@contextmanager
def _held(directory: Path) -> Iterator[Path]:
    """A directory, made where there is none, of this process alone.

    Raises:
        MistifyError: CONFLICT, another process uses it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # weights that know the data lie there
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise MistifyError(
                ErrorCode.CONFLICT, f"the package is being tuned already ({directory}); wait for its end"
            )
        yield directory
    finally:
        os.close(descriptor)


def _no_packages(package: PackageReference, directory: Path) -> None:
    raise MistifyError(ErrorCode.UNAVAILABLE, f"no server to fetch the goal {package.goal_id} from")
