"""The noisy data from which a private device makes the model that it publishes (paper 5.1)."""

from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from mistify.errors import Problem, invalid_config
from mistify.files import replacing
from mistify.package.training import OutputKind, Training
from mistify.parsing.validation import InvalidValue, Settings, shown
from mistify_client.privacy.ledger import PrivacyLedger
from mistify_client.privacy.noise import Mechanism, Unit, privatized
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.examples import Examples
from mistify_client.tuning.storage import stored_in
from mistify_client.tuning.trainer import Trainer

Epsilon = Annotated[float, Field(gt=0, description="a number above 0", examples=[4])]


class Privacy(Settings):
    """How the training data of what is published are made noisy; docs/privacy.md says what that protects.

    Attributes:
        lower: of values; what is below is clipped.
        upper: of values.
        unit: what the epsilons protect: "value" or "example".
        epsilon: of the inputs of one release.
        label_epsilon: of the labels of one release; None leaves them unprotected.
        radius: the most L1 distance of an example from the middle of the bounds, for the unit "example".
        budget: the most epsilon of all releases from this device.
        ledger: the file that keeps what was spent; beside the package where it is None.
    """

    lower: Annotated[float, Field(description="a number, such as 0 for pixels", examples=[0])]
    upper: Annotated[float, Field(description="a number, such as 255 for pixels", examples=[255])]
    unit: Unit = Field(description='"value" or "example"', examples=["value"])
    epsilon: Epsilon
    label_epsilon: Epsilon | None = None
    radius: Epsilon | None = None
    budget: Epsilon
    ledger: Path | None = None

    @model_validator(mode="after")
    def _is_a_mechanism(self) -> "Privacy":
        try:
            self.mechanism()
        except ValueError as error:
            raise InvalidValue(self.model_dump(mode="json"), "a mechanism", str(error)) from error
        return self

    def mechanism(self) -> Mechanism:
        """What makes data noisy.

        Raises:
            ValueError: there is none of these settings.
        """
        labels = None if self.label_epsilon is None else Fraction(str(self.label_epsilon))
        return Mechanism(self.lower, self.upper, self.unit, Fraction(str(self.epsilon)), labels, self.radius)


def noisy_examples(examples: Examples, trainer: Trainer, privacy: Privacy, directory: Path) -> Examples:
    """Noisy data in place of the true ones: those that were drawn before, or new ones, for which is paid.

    Args:
        examples: the true ones.
        trainer: of the network that is trained on them.
        privacy: how noisy.
        directory: where noisy data and the ledger are kept.

    Raises:
        MistifyError: PRIVACY_BUDGET, the ledger refuses; UNAVAILABLE, the data or the ledger cannot be
            written; INVALID_CONFIG, the network has more than one input and classes for each example.
    """
    (name, inputs), (output, targets) = _single(examples, trainer.training)
    path = directory / f"noisy-{_digest(examples, privacy)}.npz"
    if not path.is_file():
        classes = next(info.shape[-1] for info in trainer.manifest.outputs if info.name == output)
        ledger = PrivacyLedger(privacy.ledger or directory / "ledger", Fraction(str(privacy.budget)))
        labels = np.asarray(targets, np.int64)
        with stored_in(directory):
            noisy, told = privatized(inputs, labels, privacy.mechanism(), ledger, classes=classes)
            with replacing(path, durable=True) as file:
                np.savez(file, x=noisy, y=told)
    with np.load(path, allow_pickle=False) as arrays:
        return Examples({name: arrays["x"]}, {output: arrays["y"]})


def _single(examples: Examples, training: Training) -> tuple[tuple[str, Array], tuple[str, Array]]:
    """The one input and the one output, each with its name and array."""
    kinds = set(training.kinds.values())
    fits = len(examples.inputs) == len(examples.targets) == 1 and kinds <= {
        OutputKind.SOFTMAX,
        OutputKind.LOGITS,
    }
    if not fits or next(iter(examples.targets.values())).ndim != 1:
        given = f"{shown(list(examples.inputs))} and {shown(list(examples.targets))}"
        expected = "one input, and one class for each example"
        raise invalid_config(
            [Problem("privacy", given, expected, "tune without privacy, or alone")], "privacy"
        )
    return next(iter(examples.inputs.items())), next(iter(examples.targets.items()))


def _digest(examples: Examples, privacy: Privacy) -> str:
    mechanism = privacy.model_dump_json(exclude={"budget", "ledger"})
    return sha256(f"{examples.digest}{mechanism}".encode()).hexdigest()
