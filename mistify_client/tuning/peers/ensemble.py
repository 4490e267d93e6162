"""The teacher made of peers: the mean of those that can be trusted, some of them skipped (paper 5.1).

A peer may be broken or hostile. What its network says of this device's own data tells: it is left out where
that is far from what the others say, or has little to do with the true classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify.package.training import OutputKind
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.fitting import Lesson

#: What a network says of examples, by output: probabilities, or figures, [examples, ...].
Told: TypeAlias = Mapping[str, Array]

#: A peer is left out that is so many times as far from the others as half of the peers are.
FAR: Final = 2.0

#: A peer is left out whose agreement with the true classes is less than this share of the device's own.
_LEAST_AGREEMENT: Final = 0.25

#: A tenth of the peers, and one at least, is skipped in a pass.
_SKIPPED_OF: Final = 10


@dataclass(frozen=True)
class Judgement:
    """Which peers teach, and why others do not: peer -> reason."""

    trusted: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


class Ensemble:
    """The mean of what peers say of the device's data.

    Args:
        told: what each of them says of all of the data.
    """

    def __init__(self, told: Sequence[Told]) -> None:
        self._told = told

    def __call__(self, rng: np.random.Generator) -> Lesson:
        """The teacher of one pass: some peers are skipped, so that none is relied upon."""
        count = len(self._told)
        skipped = min(max(count // _SKIPPED_OF, 1), count - 1)
        chosen = [self._told[peer] for peer in rng.permutation(count)[skipped:]]

        def lesson(rows: npt.NDArray[np.int64]) -> Told:
            return {
                name: np.asarray(np.mean([told[name][rows] for told in chosen], axis=0), np.float32)
                for name in chosen[0]
            }

        return lesson


def judge(
    peers: Mapping[str, Told],
    own: Told,
    targets: Mapping[str, Array],
    kinds: Mapping[str, OutputKind],
    own_agreement: float,
) -> Judgement:
    """Tell the peers that can be trusted.

    Args:
        peers: what each of them says of some of the device's examples.
        own: what the device's own network says of them.
        targets: their targets.
        kinds: what the outputs tell.
        own_agreement: as `agreement`, of the device's own network on examples it was not trained on.
    """
    left_out = {peer: "its outputs are not finite" for peer, told in peers.items() if not _is_finite(told)}
    finite = {peer: told for peer, told in peers.items() if peer not in left_out}
    for peer, ratio in _remoteness(finite, own).items():
        if math.isinf(ratio):
            left_out[peer] = "the own network and most peers say the same, and it says something else"
        elif ratio > FAR:
            left_out[peer] = f"its outputs are {ratio:.1f} times as far from the others' as is usual"
    for peer in finite.keys() - left_out.keys():
        agreed = agreement(finite[peer], targets, kinds)
        if agreed < _LEAST_AGREEMENT * max(own_agreement, 0.0):
            left_out[peer] = f"it hardly agrees with the true classes ({agreed:.2f}, own {own_agreement:.2f})"
    return Judgement(tuple(peer for peer in peers if peer not in left_out), left_out)


def agreement(told: Told, targets: Mapping[str, Array], kinds: Mapping[str, OutputKind]) -> float:
    """Cohen's kappa, the mean over the outputs: how far classes are told beyond chance; 0 is chance.

    Whoever names the most frequent class for all examples is right often, and agrees by 0. Figures do not
    count.
    """
    kappas = [
        _kappa(_named(told[name], kind), targets[name])
        for name, kind in kinds.items()
        if kind is not OutputKind.FIGURES
    ]
    return float(np.mean(kappas)) if kappas else 0.0


def _is_finite(told: Told) -> bool:
    return all(bool(np.isfinite(output).all()) for output in told.values())


def _remoteness(peers: Mapping[str, Told], own: Told) -> dict[str, float]:
    """How far each peer is from the median of all networks, the own one included; 1 for half of the peers.

    Where half of them are the median, 1 is how far the own network is from it; where that is the median, too,
    any other peer is infinitely far. Of several outputs the one counts that is furthest.
    """
    ratios = dict.fromkeys(peers, 0.0)
    for name in own if peers else ():
        outputs = {peer: told[name] for peer, told in peers.items()}
        middle = np.median([own[name], *outputs.values()], axis=0)
        distances = {peer: _distance(output, middle) for peer, output in outputs.items()}
        usual = float(np.median(list(distances.values()))) or _distance(own[name], middle)
        for peer, distance in distances.items():
            if distance:
                ratios[peer] = max(ratios[peer], distance / usual if usual else math.inf)
    return ratios


def _distance(output: Array, middle: Array) -> float:
    return float(np.abs(output - middle).mean())


def _named(output: Array, kind: OutputKind) -> Array:
    """The classes that an output names."""
    if kind in (OutputKind.SIGMOID, OutputKind.LOGIT):
        return np.asarray(output > 0.5, np.int64)
    return np.asarray(output.argmax(axis=-1))


def _kappa(named: Array, true: Array) -> float:
    true = np.asarray(true).reshape(named.shape)
    named, true = named[true >= 0], true[true >= 0].astype(np.int64)
    if not len(true):
        return 0.0
    shares = [_shares(classes, 1 + max(named.max(), true.max())) for classes in (named, true)]
    chance = float(shares[0] @ shares[1])
    return (float(np.mean(named == true)) - chance) / (1 - chance) if chance < 1 else 0.0


def _shares(classes: Array, count: int) -> npt.NDArray[np.float64]:
    return np.bincount(classes, minlength=count) / len(classes)
