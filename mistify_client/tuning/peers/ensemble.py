"""The teacher from peers: the mean of trusted peers, with a few skipped at random (paper 5.1).

A peer may be broken or hostile. This shows in its predictions for this device's own data: a peer is left out
if they are far from the others' predictions, or if they hardly agree with the true classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify.package.training import OutputEncoding
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.training_loop import TeacherTargets

#: The predictions of a network by output: probabilities, or numeric values, [examples, ...] each.
Predictions: TypeAlias = Mapping[str, Array]

#: A peer is left out if its distance to the median exceeds the usual distance by this factor.
FAR: Final = 2.0

#: A peer is left out if its agreement with the true classes is below this share of the device's own.
_LEAST_AGREEMENT: Final = 0.25

#: One in this many peers, and at least one, is skipped in each pass.
_SKIPPED_OF: Final = 10


@dataclass(frozen=True)
class Judgement:
    """The peers that teach, and the reasons for excluding the others.

    Attributes:
        trusted: Peers that teach.
        left_out: Peer -> reason.
    """

    trusted: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


class Ensemble:
    """The mean of the predictions of peers.

    Args:
        predictions: Peer -> predictions for all of the device's data.
    """

    def __init__(self, predictions: Sequence[Predictions]) -> None:
        self._predictions = predictions

    def __call__(self, rng: np.random.Generator) -> TeacherTargets:
        """Return the teacher's targets for one pass.

        A few peers are skipped in each pass, so that the network does not rely on any single one.

        Args:
            rng: Chooses the peers to skip.

        Returns:
            A function from rows of the data to the mean predictions for them, [rows, ...] for each output.
        """
        count = len(self._predictions)
        skipped = min(max(count // _SKIPPED_OF, 1), count - 1)
        chosen = [self._predictions[peer] for peer in rng.permutation(count)[skipped:]]

        def targets(rows: npt.NDArray[np.int64]) -> Predictions:
            return {
                name: np.asarray(np.mean([peer[name][rows] for peer in chosen], axis=0), np.float32)
                for name in chosen[0]
            }

        return targets


def judge(
    peers: Mapping[str, Predictions],
    own: Predictions,
    targets: Mapping[str, Array],
    kinds: Mapping[str, OutputEncoding],
    own_agreement: float,
) -> Judgement:
    """Decide which peers are trusted.

    Args:
        peers: The predictions of each peer for a sample of the device's examples, [examples, ...] by output.
        own: The predictions of the device's own network for the same examples, in the same shapes.
        targets: The targets of these examples, [examples, ...] by output.
        own_agreement: The `agreement` of the device's own network on held-out examples.

    Returns:
        The trusted peers in order, and a reason for each of the others.
    """
    left_out = {
        peer: "its outputs are not finite"
        for peer, predictions in peers.items()
        if not _is_finite(predictions)
    }
    finite = {peer: predictions for peer, predictions in peers.items() if peer not in left_out}
    for peer, ratio in _relative_distances(finite, own).items():
        if math.isinf(ratio):
            left_out[peer] = "this device and most peers predict the same, and it predicts something else"
        elif ratio > FAR:
            left_out[peer] = f"its outputs are {ratio:.1f} times as far from the others' as is usual"
    for peer in finite.keys() - left_out.keys():
        agreed = agreement(finite[peer], targets, kinds)
        if agreed < _LEAST_AGREEMENT * max(own_agreement, 0.0):
            left_out[peer] = f"it hardly agrees with the true classes ({agreed:.2f}, own {own_agreement:.2f})"
    return Judgement(tuple(peer for peer in peers if peer not in left_out), left_out)


def agreement(
    predictions: Predictions, targets: Mapping[str, Array], kinds: Mapping[str, OutputEncoding]
) -> float:
    """Return Cohen's kappa: the agreement of predicted and true classes beyond chance.

    A network that always predicts the most frequent class is often right, and has a kappa of 0.

    Args:
        predictions: Predictions of a network, [examples, ...] by output.
        targets: Targets of the same examples, [examples, ...] by output; a class of -1 is ignored.
        kinds: Encodings of the outputs; numeric outputs are ignored.

    Returns:
        The mean over the outputs with classes, at most 1; 0 is chance level, or means no such outputs.
    """
    kappas = [
        _kappa(_classes(predictions[name], kind), targets[name])
        for name, kind in kinds.items()
        if kind is not OutputEncoding.FIGURES
    ]
    return float(np.mean(kappas)) if kappas else 0.0


def _is_finite(predictions: Predictions) -> bool:
    return all(bool(np.isfinite(output).all()) for output in predictions.values())


def _relative_distances(peers: Mapping[str, Predictions], own: Predictions) -> dict[str, float]:
    """Return the distance of each peer from the median of all networks, relative to the usual distance.

    The median includes the device's own network. The usual distance is the median distance of the peers. If
    that is 0, because at least half of them equal the median, it is the distance of the own network; if that
    is 0 as well, any peer that differs is infinitely far. With several outputs, the largest distance counts.
    """
    ratios = dict.fromkeys(peers, 0.0)
    for name in own if peers else ():
        outputs = {peer: predictions[name] for peer, predictions in peers.items()}
        middle = np.median([own[name], *outputs.values()], axis=0)
        distances = {peer: _distance(output, middle) for peer, output in outputs.items()}
        usual = float(np.median(list(distances.values()))) or _distance(own[name], middle)
        for peer, distance in distances.items():
            if distance:
                ratios[peer] = max(ratios[peer], distance / usual if usual else math.inf)
    return ratios


def _distance(output: Array, middle: Array) -> float:
    return float(np.abs(output - middle).mean())


def _classes(output: Array, kind: OutputEncoding) -> Array:
    """Return the classes that an output predicts."""
    if kind in (OutputEncoding.SIGMOID, OutputEncoding.LOGIT):
        return np.asarray(output > 0.5, np.int64)
    return np.asarray(output.argmax(axis=-1))


def _kappa(predicted: Array, true: Array) -> float:
    true = np.asarray(true).reshape(predicted.shape)
    predicted, true = predicted[true >= 0], true[true >= 0].astype(np.int64)
    if not len(true):
        return 0.0
    shares = [_shares(classes, 1 + max(predicted.max(), true.max())) for classes in (predicted, true)]
    chance = float(shares[0] @ shares[1])
    return (float(np.mean(predicted == true)) - chance) / (1 - chance) if chance < 1 else 0.0


def _shares(classes: Array, count: int) -> npt.NDArray[np.float64]:
    return np.bincount(classes, minlength=count) / len(classes)
