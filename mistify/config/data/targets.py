"""Targets of goals: the accuracies that a network and its outputs have to reach."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from mistify.config.data.metric import Metric, OutputScore
from mistify.parsing.validation import InvalidValue

#: Used instead of an output's name for the metric by which networks are compared.
OVERALL: Final = ""


def above_all_shares(figure: float, output: str, metric: Metric | None) -> InvalidValue | None:
    """Return the problem of a target above 1 for a share; None if there is none.

    Args:
        output: The output's name, or `OVERALL`.
        metric: None if the config does not name one.
    """
    if figure <= 1 or not (metric is None or metric.is_share):
        return None
    setting, error = ("metric", '"mse"') if output == OVERALL else ("metrics", f'{{"{output}": "mse"}}')
    in_percent = f'write "{figure:g}%" or "{figure / 100:g}"; ' if figure <= 100 else ""
    return InvalidValue(
        figure,
        f"{f'{metric}, ' if metric else ''}a share above 0 and up to 1",
        f'{in_percent}if the target limits an error, say so in the dataset: "{setting}": {error}',
    )


@dataclass(frozen=True)
class Scores:
    """The scores of a network on one part of the data.

    Attributes:
        overall: By the metric for comparing networks.
        outputs: Output -> score, by its own metric.
    """

    overall: float
    outputs: tuple[OutputScore, ...] = ()

    def of(self, output: str, metric: Metric) -> float | None:
        """Return the score of an output, or of the network for `OVERALL`; None if there is none."""
        if output == OVERALL:
            return self.overall
        own = (score.value for score in self.outputs if (score.output, score.metric) == (output, metric))
        return next(own, None)


@dataclass(frozen=True)
class Target:
    """A target for an output, or for the network with `OVERALL`.

    Attributes:
        output: An output's name, or `OVERALL`.
        value: A lower limit on a share, an upper limit on an error.
    """

    output: str
    metric: Metric
    value: float

    def missed(self, scores: Scores) -> str:
        """Describe how far scores miss the target; empty if they reach it."""
        figure = scores.of(self.output, self.metric)
        if figure is None:
            return f"{self.output}: no {self.metric} was measured"
        missed = self.metric.missed(figure, self.value)
        return f"{self.output}: {missed}" if missed and self.output != OVERALL else missed


def missed(targets: Iterable[Target], scores: Scores) -> str:
    """Describe the targets that scores miss; empty if they reach all."""
    return ", ".join(filter(None, (target.missed(scores) for target in targets)))


def reached(targets: Iterable[Target], scores: Scores) -> bool:
    """Check whether scores reach all targets."""
    return not missed(targets, scores)


def serves_better(
    metric: Metric, scores: Scores, present: Scores, targets: Iterable[Target], *, by: float = 0.0
) -> bool:
    """Check whether a network is preferable to another: only it reaches all targets, or it is more accurate.

    Args:
        metric: The metric by which networks are compared.
        present: The scores of the network to beat.
        targets: All targets of the goals for which both networks are candidates.
        by: Minimum difference, as a share, if both networks or neither reach the targets.
    """
    targets = tuple(targets)
    able, other_able = reached(targets, scores), reached(targets, present)
    if able != other_able:
        return able
    least = metric.after(present.overall, -by) if by else present.overall
    return metric.better(scores.overall, least)


def strictest(*targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the targets that imply all of these: at most one for each output."""
    best: dict[tuple[str, Metric], Target] = {}
    for target in chain.from_iterable(targets):
        key = target.output, target.metric
        if key not in best or target.metric.better(target.value, best[key].value):
            best[key] = target
    return tuple(best.values())
