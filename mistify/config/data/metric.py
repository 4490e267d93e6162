"""The metric of a network on the test data: the `accuracy` of goals, tasks and manifests."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final, cast

from mistify.plugins import plug_ins

#: The entry points of metrics that plug-ins add.
METRICS: Final = "mistify.metrics"

#: Names of metrics; errors of plug-ins end in `_error`.
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ERROR: Final = "_error"


class Metric(StrEnum):
    """A metric by its name in a config. All but `mse` and `mae` are shares, for which higher is better.

    A goal's `accuracy` is its target: a lower limit on a share, an upper limit on an error.

    - `accuracy`: the share of correct predictions.
    - `agreement`: the same without labels: the share of predictions that agree with the source.
    - `balanced_accuracy`: the mean recall over the classes.
    - `balanced_agreement`: the same with the source's predictions in place of labels.
    - `f1`, `roc_auc`: means over the classes.
    - `mean_iou`: intersection over union, mean over the classes, for a class at each position of an image.
    - `mse`, `mae`: the mean squared and the mean absolute error of numeric outputs.
    - `exact_match`: the share of examples for which all outputs are correct at all positions.
    - `mean_score`: for several outputs, the mean of their scores between 0 and 1: accuracy or `mean_iou` of
      classes, the share of explained variance of numeric outputs.

    Any other word is the metric of a plug-in: `Metric("pinball_error")`. It is an error if it ends in
    `_error`, and otherwise a share, so its direction is known without the plug-in.
    """

    ACCURACY = "accuracy"
    AGREEMENT = "agreement"
    BALANCED_ACCURACY = "balanced_accuracy"
    BALANCED_AGREEMENT = "balanced_agreement"
    F1 = "f1"
    EXACT_MATCH = "exact_match"
    ROC_AUC = "roc_auc"
    MEAN_IOU = "mean_iou"
    MSE = "mse"
    MAE = "mae"
    MEAN_SCORE = "mean_score"

    @classmethod
    def _missing_(cls, value: object) -> "Metric | None":
        if not (isinstance(value, str) and _NAME.fullmatch(value)):
            return None
        metric = str.__new__(cls, value)
        metric._name_, metric._value_ = value.upper(), value
        return cast(Metric, cls._value2member_map_.setdefault(value, metric))

    def __reduce_ex__(self, protocol: object) -> tuple[type["Metric"], tuple[str]]:
        """Copy and pickle by value. Python 3.11.2 would look up the name."""
        return Metric, (self.value,)

    @property
    def plugged_in(self) -> bool:
        """True if it comes from a plug-in."""
        return self.name not in Metric.__members__

    @property
    def is_share(self) -> bool:
        """True if it lies between 0 and 1, and higher is better."""
        return self not in (Metric.MSE, Metric.MAE) and not self.endswith(_ERROR)

    @property
    def of_all_outputs(self) -> bool:
        """True if it scores all outputs together."""
        return self in (Metric.EXACT_MATCH, Metric.MEAN_SCORE)

    @property
    def without_labels(self) -> "Metric":
        """The equivalent metric when the source's predictions replace labels."""
        agreement = {
            Metric.ACCURACY: Metric.AGREEMENT,
            Metric.BALANCED_ACCURACY: Metric.BALANCED_AGREEMENT,
        }
        return agreement.get(self, self)

    @property
    def worst(self) -> float:
        """The figure that every network reaches."""
        return 0.0 if self.is_share else inf

    @property
    def perfect(self) -> float:
        """The figure of a network that is never wrong."""
        return 1.0 if self.is_share else 0.0

    def reaches(self, figure: float, target: float | None) -> bool:
        """Check whether a figure is at least as good as the target; every figure is if there is no target."""
        if target is None:
            return True
        return figure >= target if self.is_share else figure <= target

    def missed(self, figure: float, target: float | None) -> str:
        """Describe how far a figure misses its target; empty if it reaches it."""
        if target is None or self.reaches(figure, target):
            return ""
        return f"{self} {figure:.4f} {'below' if self.is_share else 'above'} {target:.4f}"

    def better(self, figure: float, reference: float) -> bool:
        """Check whether a figure is better than a reference."""
        return figure > reference if self.is_share else figure < reference

    def best(self, figures: Iterable[float]) -> float:
        """Return the best of several figures, `worst` if there are none."""
        figures = list(figures)
        if not figures:
            return self.worst
        return max(figures) if self.is_share else min(figures)

    def lost(self, figure: float, reference: float) -> float:
        """Return by which share of a reference a figure is worse; negative if it is better."""
        less, more = (figure, reference) if self.is_share else (reference, figure)
        return 1 - less / more if more else 0.0

    def after(self, reference: float, lost: float) -> float:
        """Return the figure that is worse than a reference by a share of it; the inverse of `lost`."""
        if self.is_share:
            return min(max(reference * (1 - lost), 0.0), 1.0)
        return reference / max(1 - lost, 1e-6)

    def shown(self, figure: float) -> str:
        """Format a figure for people: a share in per cent, an error as a number."""
        return f"{figure:.1%}" if self.is_share else f"{figure:.4g}"


@dataclass(frozen=True)
class OutputScore:
    """The score of one output of a network, by a metric of that output."""

    output: str
    metric: Metric
    value: float


def known_metrics() -> tuple[str, ...]:
    """Return the names of all known metrics, without importing plug-ins."""
    return tuple(dict.fromkeys([*Metric, *filter(_NAME.fullmatch, plug_ins(METRICS))]))
