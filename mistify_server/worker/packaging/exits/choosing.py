"""The confidences from which exits answer, for each allowed loss, and why others do not pay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from executors.exits.choice import Answers, Outcome, outcomes, within
from mistify.package.exits import ExitChoice, ExitStage
from mistify.parsing.quantities import format_share

#: The least share of the multiply-adds that exits have to save.
_LEAST_SAVED: Final = 0.02

#: Digits of shares in notes.
_DIGITS: Final = 3


@dataclass(frozen=True)
class Rival:
    """Another network of the package.

    Attributes:
        name: Its name in notes.
        share: Its multiply-adds, as a share of those of the network with exits.
        accuracy: The share of right answers to the validation data.
    """

    name: str
    share: float
    accuracy: float


@dataclass(frozen=True)
class Choices:
    """The choices that pay, and a remark for each allowed loss."""

    choices: tuple[ExitChoice, ...]
    notes: tuple[str, ...]


class _DoesNotPayError(Exception):
    """Exits do not pay at an allowed loss; the message says why."""


@dataclass(frozen=True)
class MeasuredExits:
    """The exits of a network, measured in LiteRT.

    Attributes:
        validation: Their answers to the validation data, by which thresholds are chosen.
        test: Their answers to the test data.
        stages: The stages, with their costs.
        whole: Multiply-adds of the network without heads.
        whole_ms: Its latency in milliseconds.
        rivals: The other networks of the package.
    """

    validation: Answers
    test: Answers
    stages: tuple[ExitStage, ...]
    whole: float
    whole_ms: float
    rivals: Sequence[Rival]

    def choices(self, losses: Sequence[float]) -> Choices:
        """Return the choice for each allowed loss at which exits pay, by ascending loss."""
        choices, notes = list[ExitChoice](), list[str]()
        for loss in sorted(losses):
            try:
                choice = self._choice(loss)
                if choices and choices[-1].threshold == choice.threshold:
                    raise _DoesNotPayError("they answer no more examples")
            except _DoesNotPayError as error:
                notes.append(f"within a loss of {_share(loss)}, {error}")
            else:
                choices.append(choice)
                notes.append(f"within a loss of {_share(loss)}, {self._described(choice)}")
        return Choices(tuple(choices), tuple(notes))

    def _choice(self, loss: float) -> ExitChoice:
        outcome = within(self.validation, loss)
        if outcome is None:
            count = len(self.validation.right[-1])
            raise _DoesNotPayError(
                f"no confidence is safe according to the {count:,} validation examples ({self._least_loss()})"
            )
        choice = self._priced(loss, outcome)
        share = choice.multiply_adds / self.whole
        if 1 - share < _LEAST_SAVED:
            saved = _share(max(0.0, 1 - share))
            raise _DoesNotPayError(f"they save {saved} of the multiply-adds ({self._least_loss()})")
        for rival in self.rivals:
            if rival.share <= share and rival.accuracy >= choice.validation_accuracy:
                raise _DoesNotPayError(
                    f"{rival.name} is as good at the same cost: {_share(rival.accuracy)} of the validation "
                    f"data at {_share(rival.share)} of the multiply-adds, against "
                    f"{_share(choice.validation_accuracy)} at {_share(share)}"
                )
        return choice

    def _least_loss(self) -> str:
        """Describe the smallest allowed loss at which exits would save enough."""
        least = -1.0
        for outcome in outcomes(self.validation):
            least = max(least, outcome.bound)
            if 1 - self._multiply_adds(outcome) / self.whole >= _LEAST_SAVED:
                return f"the least loss with which they save {_share(_LEAST_SAVED)} is {_share(least)}"
        return f"they never save {_share(_LEAST_SAVED)}"

    def _multiply_adds(self, outcome: Outcome) -> float:
        return float(outcome.rates(len(self.stages)) @ [stage.multiply_adds for stage in self.stages])

    def _priced(self, loss: float, outcome: Outcome) -> ExitChoice:
        rates = outcome.rates(len(self.stages))
        test = self.test.at(outcome.threshold)
        return ExitChoice(
            loss=loss,
            threshold=outcome.threshold,
            bound=outcome.bound,
            rates=tuple(rates.tolist()),
            multiply_adds=self._multiply_adds(outcome),
            latency_ms=float(rates @ [stage.latency_ms for stage in self.stages]),
            validation_accuracy=float(outcome.right.mean()),
            accuracy=float(test.right.mean()),
        )

    def _described(self, choice: ExitChoice) -> str:
        saved, early = 1 - choice.multiply_adds / self.whole, 1 - choice.rates[-1]
        faster = max(0.0, 1 - choice.latency_ms / self.whole_ms)
        return (
            f"they answer {_share(early)} of the examples early, which saves {_share(saved)} of the "
            f"multiply-adds and {_share(faster)} of the latency (accuracy {_share(choice.accuracy)} against "
            f"{_share(float(np.mean(self.test.right[-1])))} of the whole network)"
        )


def _share(value: float) -> str:
    return format_share(value, _DIGITS)
