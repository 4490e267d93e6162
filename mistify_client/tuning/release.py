"""The noisy data on which a private device trains the model that it publishes (paper 5.1)."""

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
from mistify_client.examples import Examples
from mistify_client.privacy.ledger import PrivacyLedger
from mistify_client.privacy.noise import Mechanism, Unit, privatize
from mistify_client.runtime.inputs import Array
from mistify_client.tuning.storage import stored_in
from mistify_client.tuning.trainer import Trainer

Epsilon = Annotated[float, Field(gt=0, description="a number above 0", examples=[4])]


class Privacy(Settings):
    """The settings of the noise on training data; docs/privacy.md describes what it protects.

    Attributes:
        lower: bound of values; lower ones are clipped.
        upper: bound of values; higher ones are clipped.
        unit: what the epsilons protect: "value" or "example".
        epsilon: for the inputs of one release.
        label_epsilon: for the labels of one release; without it they are not protected.
        radius: the most L1 distance of an example from the middle of the bounds, for the unit "example".
        budget: the most epsilon of all releases from this device.
        ledger: the file that records the spent epsilon; by default one beside the package.
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
        """Return the mechanism with these settings.

        Raises:
            ValueError: the settings contradict each other or are out of range.
        """
        labels = None if self.label_epsilon is None else Fraction(str(self.label_epsilon))
        return Mechanism(self.lower, self.upper, self.unit, Fraction(str(self.epsilon)), labels, self.radius)


def noisy_examples(examples: Examples, trainer: Trainer, privacy: Privacy, directory: Path) -> Examples:
    """Return noisy data in place of the true data.

    They are drawn once for each data set and mechanism, debited to the ledger and stored; later calls read
    them from the file.

    Args:
        examples: the true data, [examples, ...] each.
        trainer: of the network that is trained on them.
        privacy: settings of the noise.
        directory: for noisy data and the ledger.

    Returns:
        As many examples in the same shapes.

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
            noisy_inputs, noisy_labels = privatize(
                inputs, labels, privacy.mechanism(), ledger, classes=classes
            )
            with replacing(path, durable=True) as file:
                np.savez(file, x=noisy_inputs, y=noisy_labels)
    with np.load(path, allow_pickle=False) as arrays:
        return Examples({name: arrays["x"]}, {output: arrays["y"]})


def _single(examples: Examples, training: Training) -> tuple[tuple[str, Array], tuple[str, Array]]:
    """Return the only input and the only output, each with its name and array.

    Raises:
        MistifyError: INVALID_CONFIG, there are more, or the targets are not one class for each example.
    """
    kinds = set(training.kinds.values())
    fits = len(examples.inputs) == len(examples.targets) == 1 and kinds <= {
        OutputKind.SOFTMAX,
        OutputKind.LOGITS,
    }
    if not fits or next(iter(examples.targets.values())).ndim != 1:
        value = f"{shown(list(examples.inputs))} and {shown(list(examples.targets))}"
        expected = "one input, and one class for each example"
        raise invalid_config(
            [Problem("privacy", value, expected, "tune without privacy, or alone")], "privacy"
        )
    return next(iter(examples.inputs.items())), next(iter(examples.targets.items()))


def _digest(examples: Examples, privacy: Privacy) -> str:
    mechanism = privacy.model_dump_json(exclude={"budget", "ledger"})
    return sha256(f"{examples.digest}{mechanism}".encode()).hexdigest()
