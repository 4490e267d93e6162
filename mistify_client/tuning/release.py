"""The noisy data on which a private device trains its published model (paper 5.1)."""

from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Annotated
from zipfile import BadZipFile

import numpy as np
from pydantic import Field, model_validator

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.files.writing import replacing
from mistify.package.training import OutputEncoding
from mistify.parsing.validation import InvalidValue, Settings
from mistify_client.examples import Examples
from mistify_client.privacy.ledger import PrivacyLedger
from mistify_client.privacy.noise import Mechanism, Unit, privatize
from mistify_client.tuning.storage import stored_in
from mistify_client.tuning.trainer import PackageTrainer

Epsilon = Annotated[float, Field(gt=0, description="a number above 0", examples=[4])]


class Privacy(Settings):
    """The settings of the noise on training data; docs/privacy.md describes the protection.

    Attributes:
        lower: Lower bound of values; lower values are clipped.
        upper: Upper bound of values; higher values are clipped.
        unit: The unit that the epsilons protect: "value" or "example".
        epsilon: The epsilon of the inputs of one release.
        label_epsilon: The epsilon of the labels of one release; without it they are not protected.
        radius: The maximum L1 distance of an example from the middle of the bounds, for the unit "example".
        budget: The maximum total epsilon of all releases in the ledger.
        ledger: The file that records the spent epsilon; by default, a file next to the package.
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
            ValueError: The settings contradict each other or are out of range.
        """
        labels = None if self.label_epsilon is None else Fraction(str(self.label_epsilon))
        return Mechanism(self.lower, self.upper, self.unit, Fraction(str(self.epsilon)), labels, self.radius)


def noisy_examples(
    examples: Examples, trainer: PackageTrainer, privacy: Privacy, directory: Path
) -> Examples:
    """Return noisy data to replace the true data.

    They are drawn once for each data set and mechanism, debited to the ledger and stored; later calls read
    the stored data.

    Args:
        examples: The true data, [examples, ...] each.
        trainer: Trains the network on the noisy data.
        privacy: Settings of the noise.
        directory: For noisy data and the ledger.

    Returns:
        Noisy examples, the same number and in the same shapes.

    Raises:
        MistifyError: PRIVACY_BUDGET, the budget does not suffice, or the ledger is damaged, has another
            budget or cannot be written; INVALID_CONFIG, the network has more than one input or output, its
            input is not float32, or the targets are not one class for each example; INVALID_DATASET, inputs
            are not finite, or classes are unknown; UNAVAILABLE, the data cannot be written, or the ledger
            cannot be opened; CORRUPT_PACKAGE, the noisy data that were stored before are damaged.
    """
    check_takes_noise(examples, trainer)
    (name, inputs), (output, targets) = *examples.inputs.items(), *examples.targets.items()
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
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Examples({name: arrays["x"]}, {output: arrays["y"]})
    except (OSError, ValueError, EOFError, LookupError, BadZipFile) as error:
        fix = "restore it; if it is removed, noise is drawn again, and spends the budget once more"
        problem = Problem(str(path), str(error), "the noisy data that were released before", fix)
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, "the noisy data are damaged", [problem]) from error


def check_takes_noise(examples: Examples, trainer: PackageTrainer) -> None:
    """Check that a network can be trained on noisy data instead of these examples.

    Args:
        examples: The true data, [examples, ...] each.
        trainer: Describes the network.

    Raises:
        MistifyError: INVALID_CONFIG, it has more than one input or output, its input is not float32, or its
            targets are not one class for each example.
    """
    inputs = trainer.manifest.inputs
    takes_floats = [info.dtype for info in inputs] == ["float32"]
    has_classes = [*trainer.training.kinds.values()] in ([OutputEncoding.SOFTMAX], [OutputEncoding.LOGITS])
    if takes_floats and has_classes and all(targets.ndim == 1 for targets in examples.targets.values()):
        return
    listed_inputs = ", ".join(f"{info.name} ({info.dtype})" for info in inputs)
    value = f"{listed_inputs} and {', '.join(examples.targets)}"
    expected = "one float32 input, to which noise can be added, and one class for each example"
    raise invalid_config([Problem("privacy", value, expected, "tune without privacy, or alone")], "privacy")


def _digest(examples: Examples, privacy: Privacy) -> str:
    mechanism = privacy.model_dump_json(exclude={"budget", "ledger"})
    return sha256(f"{examples.digest}{mechanism}".encode()).hexdigest()
