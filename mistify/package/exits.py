"""The exits of a package: its network in stages, each with a head that answers if it is confident.

Two files of a package are its exits: `exits.tflite` has a signature for each stage, which share no weights,
and `exits.json` describes them. The stages without heads are the network in `serve.tflite`.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.package.records import Record, Sha256, parse_record
from mistify.package.training import OutputEncoding

__all__ = ["EXITS", "EXIT_STAGES", "ExitChoice", "ExitStage", "ExitStore"]

EXITS_FORMAT: Final = 1

EXITS: Final = "exits.json"
EXIT_STAGES: Final = "exits.tflite"

#: The output of a stage that is the only input of the next one.
FEATURES: Final = "exit_features"

#: Largest difference of the sum of shares from 1.
_ROUNDING: Final = 1e-6

Share = Annotated[float, Field(ge=0, le=1)]


def stage_signature(stage: int) -> str:
    """Return the signature of a stage in `exits.tflite`."""
    return f"stage_{stage}"


class ExitStage(Record):
    """A stage of the network, with a head; the last one ends at the network's own output.

    Attributes:
        layer: The last layer before its head.
        multiply_adds: Cost of an example that is answered here, including all heads up to here.
        latency_ms: Milliseconds on the server's machine for such an example.
    """

    layer: str
    multiply_adds: Annotated[float, Field(ge=0)]
    latency_ms: Annotated[float, Field(gt=0)]


class ExitChoice(Record):
    """A confidence from which heads answer, for an allowed loss of accuracy.

    Attributes:
        loss: The allowed loss against the whole network.
        threshold: The largest probability of a class from which a head answers.
        bound: The loss that is not exceeded with 90 % confidence, by the validation data.
        rates: The share of the validation examples that each stage answers.
        multiply_adds: Expected multiply-adds of an example.
        latency_ms: Expected milliseconds of an example on the server's machine.
        validation_accuracy: The share of right answers to the validation data.
        accuracy: The share of right answers to the test data.
    """

    loss: Annotated[float, Field(gt=0, le=1)]
    threshold: Share
    bound: float
    rates: tuple[Share, ...]
    multiply_adds: Annotated[float, Field(ge=0)]
    latency_ms: Annotated[float, Field(gt=0)]
    validation_accuracy: Share
    accuracy: Share


class ExitStore(Record):
    """The content of `exits.json`.

    Attributes:
        format_version: The version of this file's format.
        network: SHA-256 of the `serve.tflite` whose stages these are. Exits do not apply to a network that a
            device has tuned, adapted or replaced since.
        output: The only output of the network.
        kind: The form of its values, such as logits.
        stages: In the order of the network.
        choices: By ascending loss.
    """

    format_version: Literal[1] = EXITS_FORMAT
    network: Sha256
    output: str
    kind: OutputEncoding
    stages: Annotated[tuple[ExitStage, ...], Field(min_length=2)]
    choices: Annotated[tuple[ExitChoice, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _choices_fit(self) -> "ExitStore":
        losses = [choice.loss for choice in self.choices]
        if losses != sorted(set(losses)):
            raise ValueError(f"the losses {losses} are not in ascending order")
        for choice in self.choices:
            if len(choice.rates) != len(self.stages) or abs(sum(choice.rates) - 1) > _ROUNDING:
                raise ValueError(f"the rates {list(choice.rates)} are not those of {len(self.stages)} stages")
        return self

    @classmethod
    def of(cls, package: Package) -> "ExitStore | None":
        """Return the description of a package's exits; None if it has none for its network.

        Raises:
            MistifyError: STORE_VERSION, a newer version of Mistify wrote it; CORRUPT_PACKAGE, it is missing
                or damaged, with every problem in it.
        """
        if EXITS not in package.manifest.files:
            return None
        store = parse_record(package.directory / EXITS, package.read(EXITS), cls, EXITS_FORMAT)
        network = package.manifest.files.get(NETWORK)
        return store if network is not None and network.sha256 == store.network else None

    def as_json(self) -> bytes:
        """Return the content of `exits.json`."""
        return (self.model_dump_json(indent=2) + "\n").encode()
