"""The scores of subnets on the data of a device: accuracy, or agreement with the original network."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mistify.config.data.metric import Metric
from mistify.package.blocks import BlockStore
from mistify.package.training import OutputEncoding
from mistify_client.runtime.inputs import Array
from mistify_client.subnets.scoring.output_criteria import RegressionCriterion, criterion_for
from mistify_client.subnets.scoring.reuse import GroupEvaluation
from mistify_client.subnets.search.candidates import SubnetScore
from mistify_client.subnets.space import Subnet

#: The loss of a subnet with NaN outputs: larger than any other, but small enough to keep the order of sums.
_NAN_LOSS: Final = 1e9


class SubnetScorer:
    """Scores subnets against labels, or against the predictions of the original network.

    For several outputs, scores are averaged. `output_criteria` defines an output's score.

    Attributes:
        metric: The metric of `figure`: `accuracy`; without labels, `agreement` with the original network; for
            numeric outputs alone, `mse` or `mae` if that is the package's metric; otherwise `mean_score`.
    """

    def __init__(
        self,
        evaluation: GroupEvaluation,
        store: BlockStore,
        original: Subnet,
        targets: Mapping[str, Array],
        metric: Metric | None = None,
    ) -> None:
        """Determine the targets.

        Args:
            evaluation: Runs subnets on the data.
            original: The subnet whose predictions replace missing labels.
            targets: Output -> targets, in the form that `criterion_for` takes. Empty without labels.
            metric: The package's metric; None if it has none.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file of a block that is missing or damaged, or that
                LiteRT cannot run; INVALID_DATASET, the data do not fit the network, or all classes are
                unknown.
        """
        self._evaluation = evaluation
        self._infos = {info.name: info for info in store.outputs}
        self._kinds = {name: store.kind_of(name) for name in self._infos}
        self.metric = _metric(list(self._kinds.values()), metric, labelled=bool(targets))
        right = targets or self._predictions(original)
        self._criteria = {
            name: criterion_for(self._kinds[name], own, self.metric) for name, own in right.items()
        }

    def __call__(self, subnets: Sequence[Subnet]) -> list[SubnetScore]:
        """Return the score of each subnet.

        Args:
            subnets: Subnets without duplicates.

        Raises:
            MistifyError: CORRUPT_PACKAGE, naming the file of a block that is missing or damaged, or that
                LiteRT cannot run; INVALID_DATASET, the data do not fit the network.
        """
        sums = [dict.fromkeys(self._criteria, np.zeros(())) for _ in subnets]
        for number, rows, outputs in self._evaluation(subnets):
            for name, criterion in self._criteria.items():
                values = self._infos[name].dequantized(outputs[name])
                sums[number][name] = sums[number][name] + criterion.sums(values, rows)
        return [self._score(own) for own in sums]

    def figure(self, score: SubnetScore) -> float:
        """Convert a score to a value of the metric."""
        errors = [
            criterion.error
            for criterion in self._criteria.values()
            if isinstance(criterion, RegressionCriterion)
        ]
        return score.accuracy if self.metric.is_share else score.loss * errors[0]

    def _score(self, sums: Mapping[str, Array]) -> SubnetScore:
        scores = [criterion.score(sums[name]) for name, criterion in self._criteria.items()]
        accuracy, loss = map(float, np.mean(scores, axis=0))
        return SubnetScore(accuracy, loss) if np.isfinite(loss) else SubnetScore(0.0, _NAN_LOSS)

    def _predictions(self, subnet: Subnet) -> dict[str, Array]:
        """Return a subnet's predictions for all examples: probabilities, or numeric values."""
        batches = [outputs for _, _, outputs in self._evaluation([subnet])]
        return {
            name: self._kinds[name].predictions(
                info.dequantized(np.concatenate([outputs[name] for outputs in batches]))
            )
            for name, info in self._infos.items()
        }


def _metric(kinds: Sequence[OutputEncoding], of_package: Metric | None, *, labelled: bool) -> Metric:
    """Return the metric behind the scores."""
    if kinds == [OutputEncoding.FIGURES] and of_package in (Metric.MSE, Metric.MAE):
        return of_package
    if len(kinds) > 1 or kinds == [OutputEncoding.FIGURES]:
        return Metric.MEAN_SCORE
    return Metric.ACCURACY if labelled else Metric.AGREEMENT
