"""Early exits of a package: their heads, their files and their figures (CrowdHMTware III-A1)."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import keras
import numpy as np

from executors.data import Dataset
from executors.data.dataset import split
from executors.exits.choice import Answers, best_exits, costs_of
from executors.exits.heads import Head, train_heads
from executors.exits.trunk import Trunk
from executors.outputs.objectives import Categorical, OutputObjective, objectives_of
from executors.structure.signature import Output, signature_of
from executors.training.evaluation import Evaluation, evaluate
from executors.training.setup import TrainingSetup
from mistify.config.data.metric import Metric
from mistify.config.package.exits import ExitsConfig
from mistify.costs.budget import FLOPS
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.exits import EXIT_STAGES, EXITS, ExitStage, ExitStore
from mistify.package.manifest import branch_signature
from mistify.wording import listed
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.packaging.conversion.branches import Branches
from mistify_server.worker.packaging.conversion.exits import convert_exits
from mistify_server.worker.packaging.conversion.representative import Examples
from mistify_server.worker.packaging.conversion.trainable import kind_of
from mistify_server.worker.packaging.exits.choosing import MeasuredExits, Rival
from mistify_server.worker.packaging.exits.staged import StagedNetwork
from mistify_server.worker.packaging.measurement.comparison import COMPARED_EXAMPLES
from mistify_server.worker.packaging.measurement.isolated import latency_of
from mistify_server.worker.packaging.tflite.isolation import LiteRtError
from mistify_server.worker.packaging.tflite.runner import SIGNATURE, Runner

#: The share of the training examples that choose the exits. Heads are not trained on them.
_CHOOSING: Final = 0.1

#: Largest difference of probabilities between the stages and the network, in float32.
_TOLERANCE: Final = 1e-4


@dataclass(frozen=True)
class ExitFiles:
    """The files of a package's exits.

    Attributes:
        files: Name -> content; none if no exit pays.
        note: A remark on the exits, or the reason why there are none.
    """

    files: Mapping[str, bytes]
    note: str


@dataclass(frozen=True)
class ServedNetwork:
    """The network of a goal, before and after conversion.

    Attributes:
        model: The network in Keras.
        content: Content of `serve.tflite`.
        objectives: Output -> its objective.
        examples: Input -> training data for calibrating integer activations; empty for floats.
        branches: The branches of the package, one of which is the network; None without branches.
    """

    model: keras.Model
    content: bytes
    objectives: Mapping[str, OutputObjective]
    examples: Examples
    branches: Branches | None = None

    @property
    def signature(self) -> str:
        """The signature of `serve.tflite` that runs the network."""
        return SIGNATURE if self.branches is None else branch_signature(self.branches.default)


class _NoExitsError(Exception):
    """The package gets no exits; the message says why."""


def exit_files(
    network: ServedNetwork, asked: ExitsConfig, task: PackageTask, setup: TrainingSetup, test: Dataset
) -> ExitFiles:
    """Train heads on a network, and return the files of the exits that pay.

    Args:
        asked: Settings of the exits in the config, such as the allowed losses.
        setup: The data and settings for training, and for the choice of thresholds.
        test: The test data for the report.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the stages differ from the network.
    """
    try:
        return _exit_files(network, asked, task, setup, test)
    except _NoExitsError as error:
        return ExitFiles({}, f"has no exits: {error}")
    except LiteRtError as error:
        return ExitFiles({}, f"has no exits: LiteRT cannot run the stages ({error.reason})")


def _exit_files(
    network: ServedNetwork, asked: ExitsConfig, task: PackageTask, setup: TrainingSetup, test: Dataset
) -> ExitFiles:
    output, trunk = _classification(network), Trunk(network.model)
    if (metric := task.recipe.data.metric) not in (Metric.ACCURACY, Metric.AGREEMENT):
        raise _NoExitsError(
            f"they are chosen by accuracy, and the goal is scored by {metric.replace('_', ' ')}"
        )
    if not trunk.positions:
        raise _NoExitsError("its data pass through a single image or vector nowhere but near the ends")
    if asked.after:
        trunk = _restricted(trunk, asked.after)
    heads = _heads(network.model, trunk, asked.loss, setup, task.recipe.seed)
    positions = [head.position for head in heads]
    content = convert_exits(
        trunk.stages(positions),
        [head.model for head in heads],
        output.name,
        task.spec.quantization,
        network.examples or None,
    )
    kind = kind_of(network.objectives[output.name])
    staged = StagedNetwork(content, len(heads) + 1, output.name, kind)
    if task.spec.quantization.precision is Quantization.NONE:
        _require_same(staged, network, setup.validation)
    measured = MeasuredExits(
        validation=_answers(staged, setup.validation),
        test=_answers(staged, test),
        stages=tuple(_stages(heads, trunk, output, staged.latencies_ms(task.spec.threads))),
        whole=trunk.multiply_adds,
        whole_ms=latency_of(network.content, task.spec.threads, signature=network.signature).median_ms,
        rivals=tuple(_rivals(network, setup.validation)),
    )
    chosen = measured.choices(asked.loss)
    if not chosen.choices:
        raise _NoExitsError("; ".join(chosen.notes))
    store = ExitStore(
        network=hashlib.sha256(network.content).hexdigest(),
        output=output.name,
        kind=kind,
        stages=measured.stages,
        choices=chosen.choices,
    )
    return ExitFiles({EXITS: store.as_json(), EXIT_STAGES: content}, f"has exits: {'; '.join(chosen.notes)}")


def _classification(network: ServedNetwork) -> Output:
    """Return the only output of a network, which has to classify whole examples."""
    outputs = signature_of(network.model).outputs
    single = len(outputs) == 1 and len(outputs[0].shape) == 1
    if not single or not isinstance(network.objectives[outputs[0].name], Categorical):
        raise _NoExitsError("a head needs a network with a single output, one of several classes")
    return outputs[0]


def _restricted(trunk: Trunk, layers: Sequence[str]) -> Trunk:
    """Return a trunk with heads only behind some layers."""
    names = [position.name for position in trunk.positions]
    if unknown := [layer for layer in layers if layer not in names]:
        raise _NoExitsError(f"no head can follow {listed(unknown)}, only {listed(names)}")
    return trunk.restricted(layers)


def _heads(
    model: keras.Model, trunk: Trunk, losses: Sequence[float], setup: TrainingSetup, seed: int
) -> list[Head]:
    """Return the heads of the best exits, by training examples that no head is trained on."""
    learned, held = split(setup.train, _CHOOSING, seed)
    heads = train_heads(model, trunk, replace(setup, train=learned), seed)
    *features, outputs = Evaluation(trunk.pooled()).outputs(held.inputs).values()
    (objective,) = objectives_of(model, held).values()
    answers = Answers.of(
        [
            objective.predictions(head.classifier.predict(pooled, verbose=0))
            for head, pooled in zip(heads, features, strict=True)
        ]
        + [objective.predictions(outputs)],
        *held.targets.values(),
    )
    costs = [head.position.multiply_adds for head in heads], [head.multiply_adds for head in heads]
    return [heads[number] for number in best_exits(answers, *costs, trunk.multiply_adds, losses)]


def _answers(staged: StagedNetwork, data: Dataset) -> Answers:
    (labels,) = data.targets.values()
    return Answers.of(staged.probabilities(data.inputs), labels)


def _stages(
    heads: Sequence[Head], trunk: Trunk, output: Output, latencies_ms: Sequence[float]
) -> Iterator[ExitStage]:
    positions = [head.position for head in heads]
    costs = costs_of(
        [position.multiply_adds for position in positions],
        [head.multiply_adds for head in heads],
        trunk.multiply_adds,
    )
    names = [*(position.name for position in positions), output.name]
    for name, cost, latency in zip(names, costs.tolist(), latencies_ms, strict=True):
        yield ExitStage(layer=name, multiply_adds=cost, latency_ms=latency)


def _rivals(network: ServedNetwork, validation: Dataset) -> Iterator[Rival]:
    """Yield the other branches of the package, if it has any."""
    if network.branches is None:
        return
    own = network.branches.networks[network.branches.default].costs[FLOPS]
    for number, branch in enumerate(network.branches.networks):
        if number != network.branches.default:
            accuracy = evaluate(branch.model, validation, Metric.ACCURACY)
            yield Rival(f"branch {number}", branch.costs[FLOPS] / own, accuracy)


def _require_same(staged: StagedNetwork, network: ServedNetwork, validation: Dataset) -> None:
    """Check that the stages together compute what the network computes.

    Raises:
        MistifyError: CORRUPT_PACKAGE, they do not.
    """
    inputs = {name: array[:COMPARED_EXAMPLES] for name, array in validation.inputs.items()}
    (output,) = network.objectives
    *_, actual = staged.probabilities(inputs)
    objective = network.objectives[output]
    expected = objective.predictions(Runner(network.content, network.signature).run_all(inputs)[output])
    difference = float(np.abs(actual - expected).max())
    if not difference <= _TOLERANCE:
        message = f"the stages of its exits differ from its network by {difference:.2g}; expected at most "
        raise MistifyError(
            ErrorCode.CORRUPT_PACKAGE, f"the package cannot be used: {message}{_TOLERANCE:.0e}"
        )
