"""A single run of a device in the benchmarks of tuning with peers; needs no TensorFlow."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mistify.package.manifest import NETWORK, Manifest
from mistify.package.records import describe_file
from mistify.package.training import with_weights
from mistify.package.weights import write_weights
from mistify.peers.membership import PackageReference, Peer
from mistify_client.examples import Examples
from mistify_client.privacy.ledger import PrivacyLedger
from mistify_client.privacy.noise import Mechanism, Unit, privatize
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.interpreter import Network
from mistify_client.tuning.examples import Split, split
from mistify_client.tuning.peers.ensemble import Ensemble
from mistify_client.tuning.peers.models import PeerModels, PeerOutputs
from mistify_client.tuning.peers.teachers import Teachers
from mistify_client.tuning.suitability import suitable_augmentation
from mistify_client.tuning.trainer import PackageTrainer, Weights, load_trainer
from mistify_client.tuning.training_loop import Score, Teacher, TrainingSettings, TrainingState, fit, score_of
from mistify_client.tuning.tuner import VALIDATION

#: Kinds of training data.
TRUE, NOISY, RANDOM = "true", "noisy", "random labels"

CLASSES: Final = 10

_CHUNK: Final = 200


class Published(NamedTuple):
    """A model that teaches: the name of its run, its device, and the scale of its last layer."""

    run: str
    device: int
    scale: float = 1.0


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Attributes:
        part: The division of the images.
        kind: The kind of run.
        device: The device whose package and images are used.
        teachers: Devices whose models teach.
        ideal: Whether a pretrained network teaches instead.
        start: The run from whose final weights it starts; empty for the package's weights.
        data: The change to the images or labels.
        epsilon: Privacy budget of noisy images; it protects single pixel values (docs/privacy.md).
        most_passes: Maximum number of passes through the images.
        patience: Passes without improvement after which the learning rate is lowered.
        seed: Seed for the order of the examples.
    """

    part: str
    kind: str
    device: int
    teachers: tuple[Published, ...] = ()
    ideal: bool = False
    start: str = ""
    data: str = TRUE
    epsilon: int = 4
    most_passes: int = TrainingSettings.most_passes
    patience: int = TrainingSettings.patience
    seed: int = 0

    @property
    def name(self) -> str:
        """Return the name of the run and of its files."""
        return f"{self.part} {self.kind} {self.device}"


@dataclass(frozen=True)
class Run:
    """The results of a plan.

    Attributes:
        accuracy: Accuracy of the best weights on the test images, with equally frequent classes.
        own_accuracy: The same with class frequencies as on the device.
        began: Accuracy of the initial weights.
        own_began: The same with class frequencies as on the device.
        curve: Accuracy of the best weights so far, after each pass.
        steps: Steps per pass.
        trusted: Number of peers that taught.
        seconds: CPU time of the training.
        weights_bytes: Size of the weights as sent.
    """

    accuracy: float
    own_accuracy: float
    began: float
    own_began: float
    curve: tuple[float, ...]
    steps: int
    trusted: int
    seconds: float
    weights_bytes: int


def load_run(work: Path, name: str) -> Run | None:
    """Load an earlier run; return None if there is none."""
    path = work / "runs" / f"{name}.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_bytes())
    return Run(**{**content, "curve": tuple(content["curve"])})


def load_weights(work: Path, name: str) -> Weights:
    """Load the weights saved by a run."""
    with np.load(work / "runs" / f"{name}.npz") as arrays:
        return dict(arrays)


def train(work: Path, plan: Plan) -> Run:
    """Execute a run in a separate process, and save its results."""
    trainer = load_trainer(work / "packages" / str(plan.device), threads=1)
    images = np.load(work / "images.npz")
    rows = _rows(plan, work)
    data = _data(plan, trainer, images["train_x"][rows], images["train_y"][rows])
    test = Tester(work, trainer, Examples({"x": images["test_x"]}, {"y": images["test_y"]}))
    own = _weights(images["test_y"], images["train_y"][rows])
    floor = score_of(trainer, data.held_out)
    # As the client: it does not augment noise, and random labels are not known.
    augmentation = suitable_augmentation(trainer, data.held_out) if plan.data == TRUE else None
    if plan.start:
        trainer.restore(load_weights(work, plan.start))
    with TemporaryDirectory() as directory:
        teacher, trusted = _teacher(plan, trainer, data, work, Path(directory))
        began = test(trainer.weights())
        curve = [float(began.mean())]

        def after_pass(state: TrainingState, score: Score) -> None:
            better = state.best is score
            curve.append(float(test(state.best_weights).mean()) if better else curve[-1])

        settings = TrainingSettings(
            patience=plan.patience, most_passes=plan.most_passes, seed=plan.seed, augmentation=augmentation
        )
        if plan.teachers or plan.ideal:
            settings = settings.with_peers()
        started, tested = process_time(), test.seconds
        first = score_of(trainer, data.held_out)
        state = TrainingState.initial(first, trainer.weights(), floor, len(data.validation))
        state = fit(trainer, data, settings, state, after_pass=after_pass, teacher=teacher)
        seconds = process_time() - started - (test.seconds - tested)
    # For a network trained on random labels, no weights are meaningfully the best.
    weights = state.weights if plan.data == RANDOM else state.best_weights
    right = test(weights)
    run = Run(
        float(right.mean()),
        float(right @ own),
        float(began.mean()),
        float(began @ own),
        tuple(curve[1:]),
        len(data.training) // trainer.training.batch_size,
        trusted,
        seconds,
        len(write_weights(weights)),
    )
    (work / "runs").mkdir(exist_ok=True)
    np.savez(work / "runs" / f"{plan.name}.npz", **weights)  # type: ignore[arg-type]
    (work / "runs" / f"{plan.name}.json").write_text(json.dumps(asdict(run)))
    return run


class Tester:
    """A test of weights in the package's served network."""

    def __init__(self, work: Path, trainer: PackageTrainer, examples: Examples) -> None:
        self._content = (work / "packages" / trainer.manifest.goal / NETWORK).read_bytes()
        self._trainer = trainer
        self._examples = examples
        self.seconds = 0.0

    def __call__(self, weights: Weights) -> npt.NDArray[np.bool_]:
        """Return which test images are classified correctly."""
        started = process_time()
        manifest, training = self._trainer.manifest, self._trainer.training
        network = Network(manifest, with_weights(self._content, training, weights), manifest.latency.threads)
        right = [
            _classes(network, chunk.inputs["x"]) == chunk.targets["y"]
            for chunk in self._examples.chunks(_CHUNK)
        ]
        self.seconds += process_time() - started
        return np.concatenate(right)


def _weights(tested: Array, own: Array) -> npt.NDArray[np.float64]:
    """Return a weight for each test image that emulates a device's class frequencies; they sum to 1."""
    on_device, in_test = (np.bincount(classes, minlength=CLASSES) / len(classes) for classes in (own, tested))
    weights: npt.NDArray[np.float64] = (on_device / in_test)[tested] / len(tested)
    return weights


def _classes(network: Network, images: Array) -> Array:
    inputs = {network.manifest.inputs[0].name: images.astype(np.float32)}
    return np.asarray(network(inputs, 0)[network.manifest.outputs[0].name].argmax(axis=1))


def _data(plan: Plan, trainer: PackageTrainer, images: Array, labels: Array) -> Split:
    if plan.data == RANDOM:
        labels = np.random.default_rng(plan.device).integers(0, CLASSES, len(labels))
    if plan.data == NOISY:
        with TemporaryDirectory() as directory:
            epsilon = Fraction(plan.epsilon)
            ledger = PrivacyLedger(Path(directory) / "ledger", epsilon)
            mechanism = Mechanism(0.0, 255.0, Unit.VALUE, epsilon)
            images, labels = privatize(images, labels, mechanism, ledger, classes=CLASSES)
    (image,), (output,) = trainer.manifest.inputs, trainer.training.targets
    examples = Examples({image.name: images}, {output: labels})
    return split(examples, VALIDATION, trainer.training.batch_size)


def _teacher(
    plan: Plan, trainer: PackageTrainer, data: Split, work: Path, directory: Path
) -> tuple[Teacher | None, int]:
    """Return the teacher that the client's code makes from peers' files, and the number of trusted peers."""
    if plan.ideal:
        (output,) = trainer.training.targets
        return Ensemble([{output: np.load(work / "ideal.npy")[_rows(plan, work)]}]), 0
    if not plan.teachers:
        return None, 0
    packages = PeerModels(directory / "packages", trainer.manifest, partial(_copy, work))
    outputs = PeerOutputs(directory / "outputs" / "data", data.examples)
    teachers = Teachers(trainer, data, outputs, packages)
    files = [_file(work, published, directory) for published in plan.teachers]
    trusted = teachers.gather(files).teachers
    return (teachers.ensemble(trusted) if trusted else None), len(trusted)


def _rows(plan: Plan, work: Path) -> Array:
    """Return the device's images."""
    with np.load(work / f"{plan.part}.npz") as parts:
        return np.asarray(parts[str(plan.device)])


def _copy(work: Path, package: PackageReference, directory: Path) -> None:
    """Copy a package, in place of a download."""
    shutil.copytree(work / "packages" / package.goal_id, directory, dirs_exist_ok=True)


def _file(work: Path, published: Published, directory: Path) -> PeerFile:
    """Return the weights of a peer after their transfer."""
    manifest = Manifest.load(work / "packages" / str(published.device))
    weights = scaled(load_weights(work, published.run), manifest.outputs[0].name, published.scale)
    path = directory / f"{published.run} {published.scale}"
    path.write_bytes(write_weights(weights))
    package = PackageReference(manifest.job, manifest.goal, manifest.files[NETWORK].sha256)
    file = describe_file(path)
    peer = Peer(path.name, package, 1, 0.0, 0.0, 0.0, file.size, file.sha256)
    return PeerFile(peer, path)


def scaled(weights: Mapping[str, npt.NDArray[np.float32]], layer: str, scale: float) -> Weights:
    """Return weights with the logits of the last layer scaled by a factor."""
    return {
        name: values * np.float32(scale if name.startswith(f"{layer}/") else 1)
        for name, values in weights.items()
    }
