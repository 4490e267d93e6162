"""Forgetting: knowledge lost in a tuning, measured on other examples."""

import math
from dataclasses import dataclass

import numpy as np

from mistify.package.training import OutputEncoding
from mistify.wording import listed
from mistify_client.examples import Examples
from mistify_client.tuning.trainer import PackageTrainer
from mistify_client.tuning.training_loop import Score, score_of

_CLASSES = OutputEncoding.SOFTMAX, OutputEncoding.LOGITS

#: Minimum drop in a class's accuracy for the class to be named as forgotten.
_LOST = 0.1

#: Minimum relative rise of the loss that counts as forgetting if there is no accuracy.
_RISE = 0.1

#: Examples per batch for computing outputs.
_CHUNK = 256


@dataclass(frozen=True)
class Knowledge:
    """The performance of a network on the examples to keep.

    Attributes:
        score: The score on all examples.
        examples: Number of examples.
        by_class: Class -> accuracy, if the only output is a classification.
        has_accuracy: Whether an output is a classification; numeric outputs have no accuracy.
    """

    score: Score
    examples: int
    by_class: dict[int, float]
    has_accuracy: bool

    def __str__(self) -> str:
        loss = f"loss {self.score.loss:.4g}"
        return f"accuracy {self.score.accuracy:.1%}, {loss}" if self.has_accuracy else loss

    def forgotten(self, now: "Knowledge") -> str:
        """Describe the loss of knowledge compared with `now`; empty if it may be due to chance."""
        if not self.has_accuracy:
            rise = now.score.loss - self.score.loss
            return (
                f"the loss on the examples to keep rose from {self.score.loss:.4g} to {now.score.loss:.4g}"
                if rise > _RISE * abs(self.score.loss)
                else ""
            )
        before, after = self.score.accuracy, now.score.accuracy
        if before - after <= math.sqrt(before * (1 - before) / self.examples):
            return ""
        fell = f"accuracy on the {self.examples:,} examples to keep fell from {before:.1%} to {after:.1%}"
        lost = {name: share - now.by_class[name] for name, share in self.by_class.items()}
        most = [name for name in sorted(lost, key=lambda name: -lost[name]) if lost[name] >= _LOST]
        shown = [f"{name} ({self.by_class[name]:.0%} to {now.by_class[name]:.0%})" for name in most]
        if not shown:
            return fell
        return f"{fell}; of {'class' if len(shown) == 1 else 'classes'} {listed(shown)}"


def knowledge(trainer: PackageTrainer, keep: Examples) -> Knowledge:
    """Return the performance of the network on the examples to keep."""
    return Knowledge(
        score_of(trainer, keep), len(keep), _by_class(trainer, keep), trainer.training.has_accuracy
    )


def _by_class(trainer: PackageTrainer, keep: Examples) -> dict[int, float]:
    """Return the accuracy for each class; empty unless the only output is a classification."""
    kinds = trainer.training.kinds
    (name, kind), *others = kinds.items()
    if others or kind not in _CLASSES:
        return {}
    chosen = [trainer.infer(chunk.inputs)[name].argmax(axis=-1) for chunk in keep.chunks(_CHUNK)]
    truth, answers = keep.targets[name].ravel(), np.concatenate(chosen).ravel()
    return {
        int(label): float((answers[truth == label] == label).mean()) for label in np.unique(truth[truth >= 0])
    }
