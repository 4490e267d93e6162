"""The peer in `benchmarks.porting.peer_torch_pruning`: a ResNet-8, pruned and trained in PyTorch.

Channels are ranked by the L2 norm over their group, normalised by the mean, and cut in many small steps until
the limit on multiply-adds is met, as in the examples of Torch-Pruning. They are ranked within each layer, or
over all layers with the same graph of operations (isomorphic pruning, ECCV 2024). Training has all elements
of Mistify's: flipped images, distillation from the source's outputs for original and flipped images, momentum
that persists across cuts, decoupled weight decay, and an average of the last weights. The caller chooses the
learning rate and the ranking.

With an earlier version, training between cuts without sparsity regularisation was the best on the test file;
it was not selected again on validation data.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cached_property, partial
from time import process_time
from typing import Final, NamedTuple

import keras
import torch
import torch_pruning
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.porting.torch_resnet8 import (
    accuracy,
    arrays_of,
    batches,
    multiply_adds,
    recalibrate,
    tensors,
    translated,
)
from executors.contract.params import Params
from executors.data import Array, Dataset
from executors.training.augmentation import mirrored
from executors.training.evaluation import Evaluation
from executors.training.trainer import constant, cosine

_MOMENTUM: Final = 0.9
_WEIGHT_DECAY: Final = 5e-4
_AVERAGE_DECAY: Final = 0.98
_WARM_UP: Final = 20

#: Number of cuts, and the share of the steps over which they are distributed.
_CUTS: Final = 8
_CUTTING_STEPS: Final = 1 / 3

#: Number of Torch-Pruning's steps from all channels to none.
_PRUNER_STEPS: Final = 400


class Ranking(Enum):
    """The channels that are compared with each other."""

    WITHIN_LAYERS = "within layers"
    ISOMORPHIC = "isomorphic"


class Taught(NamedTuple):
    """Probabilities of the source [examples, classes], for original images and for their mirror images."""

    as_they_are: Array
    mirrored: Array


class Cut(NamedTuple):
    """A network of the peer.

    Attributes:
        share: Multiply-adds, as a share of the source's.
        rate: The highest learning rate of its training.
        seconds: CPU seconds.
    """

    network: nn.Module
    share: float
    rate: float
    ranking: Ranking
    seconds: float


class Peer:
    """Torch-Pruning with a source, which is also the teacher, on one thread.

    Args:
        source: A Keras ResNet-8.
        validation: Data for selecting learning rates.
        seed: Seed for the order of the examples.
    """

    def __init__(self, source: keras.Model, train: Dataset, validation: Dataset, seed: int) -> None:
        self._source, self._train, self._validation, self._seed = source, train, validation, seed
        torch.set_num_threads(1)

    def cut(self, share: float, steps: int, rate: float, ranking: Ranking = Ranking.WITHIN_LAYERS) -> Cut:
        """Return the source cut to a share of its multiply-adds, and trained with a learning rate."""
        start = process_time()
        network = pruned(
            self._source,
            share,
            self._train,
            self._taught,
            steps=steps,
            learning_rate=rate,
            ranking=ranking,
            seed=self._seed,
        )
        seconds = process_time() - start
        image = tensors(arrays_of(self._train)[0][:1])
        whole = multiply_adds(translated(self._source), image)
        return Cut(network, multiply_adds(network, image) / whole, rate, ranking, seconds)

    def best(self, share: float, steps: int, rates: Sequence[float]) -> Cut:
        """Return the same with the best learning rate and then the better ranking on the validation data."""
        by_rate = [self.cut(share, steps, rate) for rate in rates]
        within_layers = max(by_rate, key=self._validated)
        isomorphic = self.cut(share, steps, within_layers.rate, Ranking.ISOMORPHIC)
        return max(within_layers, isomorphic, key=self._validated)

    def _validated(self, cut: Cut) -> float:
        return accuracy(cut.network, self._validation)

    @cached_property
    def _taught(self) -> Taught:
        inputs, evaluation = self._train.inputs, Evaluation(self._source)
        (as_they_are,) = evaluation.outputs(inputs).values()
        (of_mirrored,) = evaluation.outputs(mirrored(self._source, inputs)).values()
        return Taught(as_they_are, of_mirrored)


def pruned(
    source: keras.Model,
    share: float,
    data: Dataset,
    taught: Taught,
    *,
    steps: int,
    learning_rate: float,
    ranking: Ranking,
    seed: int,
) -> nn.Module:
    """Return a source cut to a share of its multiply-adds, trained, with recalibrated batch norms.

    Args:
        source: A Keras ResNet-8.
        share: Maximum multiply-adds, as a share of the source's.
        data: Training data.
        taught: The source's outputs for the training data, for distillation.
        steps: Total number of training steps.
        learning_rate: The highest learning rate.
        ranking: The channels that are compared with each other.
        seed: Seed for the order of the examples.
    """
    network = translated(source)
    image = tensors(arrays_of(data)[0][:1])
    full = multiply_adds(network, image)
    pruner = torch_pruning.pruner.BasePruner(
        network,
        image.float(),
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2, normalizer="mean"),
        global_pruning=ranking is Ranking.ISOMORPHIC,
        isomorphic=ranking is Ranking.ISOMORPHIC,
        pruning_ratio=1.0,
        iterative_steps=_PRUNER_STEPS,
        ignored_layers=[network.dense],
    )
    learner = _Learner(network, _batches(data, taught, seed), learning_rate)
    between = int(steps * _CUTTING_STEPS / _CUTS)
    for cut in range(1, _CUTS + 1):
        learner.train(constant(between))
        learner.change(partial(_cut, pruner, image, full * share ** (cut / _CUTS)))
    learner.train(cosine(steps - _CUTS * between))
    learner.settle()
    recalibrate(network, data)
    return network


class _Learner:
    """SGD that continues after channels are cut: only the momenta of cut channels are dropped.

    Args:
        batches: Images, classes, and the teacher's probabilities.
        learning_rate: The highest learning rate.
    """

    def __init__(
        self, network: nn.Module, batches: Iterator[tuple[Tensor, Tensor, Tensor]], learning_rate: float
    ) -> None:
        self._network, self._batches, self._rate = network, batches, learning_rate
        self._steps = 0
        self._start()

    def train(self, schedule: Array) -> None:
        """Train one step for each entry of the schedule, which are shares of the learning rate."""
        self._network.train()
        for share in schedule.tolist():
            self._steps += 1
            rate = self._rate * share * min(1.0, self._steps / _WARM_UP)
            images, classes, taught = next(self._batches)
            loss = _loss(self._network(images), classes, taught)
            self._optimizer.zero_grad()
            loss.backward()
            self._step(rate)

    def change(self, cut: Callable[[], object]) -> None:
        """Cut channels; momenta are cut as gradients, which Torch-Pruning cuts together with the weights."""
        for weight, state in self._optimizer.state.items():
            weight.grad = state["momentum_buffer"]
        cut()
        momenta = {weight: weight.grad for weight in self._network.parameters()}
        self._start()
        for weight, momentum in momenta.items():
            if momentum is not None:
                self._optimizer.state[weight]["momentum_buffer"] = momentum.clone()
                weight.grad = None

    def settle(self) -> None:
        """Set the network's weights to their average since the last cut."""
        with torch.no_grad():
            for weight, average in zip(self._network.parameters(), self._averages, strict=True):
                weight.copy_(average)

    def _start(self) -> None:
        """Start from the current weights, with a new average."""
        self._optimizer = torch.optim.SGD(
            self._network.parameters(), self._rate, momentum=_MOMENTUM, nesterov=True
        )
        self._averages = [weight.detach().clone() for weight in self._network.parameters()]
        self._averaged = 0

    def _step(self, rate: float) -> None:
        self._averaged += 1
        move = max(1 - _AVERAGE_DECAY, 1 / self._averaged)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        with torch.no_grad():
            for weight, average in zip(self._network.parameters(), self._averages, strict=True):
                weight.mul_(1 - rate * _WEIGHT_DECAY)
                average.lerp_(weight, move)


def _cut(pruner: torch_pruning.pruner.BasePruner, image: Tensor, limit: float) -> None:
    """Cut layer by layer, no further than needed.

    The last layers come first: their channels cost least, so that the limit is only just met.
    """
    while multiply_adds(pruner.model, image) > limit:
        for group in reversed(list(pruner.step(interactive=True))):
            group.prune()
            if multiply_adds(pruner.model, image) <= limit:
                break


def _batches(data: Dataset, taught: Taught, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield batches of images, about half of them flipped, classes, and probabilities of the source."""
    images, classes = tensors(arrays_of(data)[0]), torch.from_numpy(arrays_of(data)[1])
    as_they_are, mirrored = map(torch.from_numpy, taught)
    generator = torch.Generator().manual_seed(seed)
    for indices in batches(len(data), Params().batch_size, seed):
        flipped = torch.rand(len(indices), generator=generator) < 0.5
        batch = images[indices].float()
        yield (
            torch.where(flipped[:, None, None, None], batch.flip(3), batch),
            classes[indices],
            torch.where(flipped[:, None], mirrored[indices], as_they_are[indices]),
        )


def _loss(logits: Tensor, classes: Tensor, taught: Tensor) -> Tensor:
    """Return cross entropy plus distillation, as in `executors.training.trainer`."""
    loss = functional.cross_entropy(logits, classes)
    share, heat = Params().distillation, Params().temperature
    soft = (taught.clamp_min(1e-7).log() / heat).softmax(dim=1)
    return (1 - share) * loss + share * heat**2 * functional.cross_entropy(logits / heat, soft)
