"""The settings file of `mistify tune`: `tuning.toml`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, model_validator

from mistify.errors import MistifyError, Problem, invalid_config
from mistify.package.manifest import Manifest
from mistify.package.training import OutputEncoding, Training
from mistify.parsing.validation import InvalidValue, Settings, problems_of, together
from mistify.peers.hints import Hints, invalid_hints
from mistify.peers.membership import MOST_PEERS
from mistify_client.examples import Examples
from mistify_client.files import read_toml
from mistify_client.tuning.release import Privacy
from mistify_client.tuning.training_loop import TrainingSettings

#: Replaces a label histogram: count the labels of the data.
COUNTED = "counted"


class TuningFile(Settings):
    """The group that a device tunes with, and the settings of the training.

    Attributes:
        group: The name of the group on the server.
        peers: Maximum number of peers to learn from.
        hints: Facts about the data, as required by the group; `labels = "counted"` stands for the share of
            each class among the examples.
        privacy: The noise on the data for training the published model; without it there is none.
        learning_rate: The initial learning rate.
        patience: Passes through the data without gain after which the learning rate is lowered, or training
            ends.
        most_passes: Maximum number of passes through the data, alone and in each round with peers.
        rehearsal: The weight of the network's earlier predictions, to reduce forgetting; 0 turns it off.
    """

    group: str = Field(description="the name of a group", examples=["cameras"])
    peers: Annotated[int, Field(ge=1, le=MOST_PEERS, description=f"1 to {MOST_PEERS}", examples=[4])] = 4
    hints: dict[str, Any] = Field(default={}, description="a table", examples=[{"view_degrees": 90}])
    privacy: Privacy | None = None
    learning_rate: float = Field(
        default=TrainingSettings.learning_rate, gt=0, description="above 0", examples=[0.001]
    )
    patience: int = Field(default=TrainingSettings.patience, ge=1, description="1 or more", examples=[5])
    most_passes: int = Field(
        default=TrainingSettings.most_passes, ge=1, description="1 or more", examples=[60]
    )
    rehearsal: float = Field(
        default=TrainingSettings.rehearsal, ge=0, le=100, description="0 to 100", examples=[1]
    )

    @model_validator(mode="after")
    def _protects_labels(self) -> "TuningFile":
        if self.hints.get("labels") == COUNTED and self.privacy and self.privacy.label_epsilon is not None:
            expected = "no exact counts of the labels that label_epsilon protects"
            fix = "give shares that do not depend on the data, or remove one of the two"
            raise together(type(self).__name__, [(("hints", "labels"), InvalidValue(COUNTED, expected, fix))])
        return self

    def training_settings(self) -> TrainingSettings:
        """Return the settings of the training."""
        return TrainingSettings(
            learning_rate=self.learning_rate,
            patience=self.patience,
            most_passes=self.most_passes,
            rehearsal=self.rehearsal,
        )


def read_tuning_file(path: Path) -> TuningFile:
    """Read the settings from a TOML file.

    Raises:
        MistifyError: INVALID_CONFIG, with every problem.
    """
    content = read_toml(path, "a tuning.toml")
    try:
        settings = TuningFile.model_validate(content)
    except ValidationError as error:
        raise invalid_config(problems_of(error, TuningFile, value=content), str(path)) from error
    if settings.privacy is not None and settings.privacy.ledger is not None:
        ledger = path.parent.resolve() / settings.privacy.ledger
        privacy = settings.privacy.model_copy(update={"ledger": ledger})
        settings = settings.model_copy(update={"privacy": privacy})
    return settings


def hints_of(raw: Mapping[str, Any], examples: Examples, manifest: Manifest, training: Training) -> Hints:
    """Return the hints of a settings file, with labels counted if requested.

    Args:
        raw: The table `hints` of the file.
        examples: Examples with the labels to count.

    Raises:
        MistifyError: INVALID_PUBLICATION, with every problem.
    """
    if raw.get("labels") != COUNTED:
        return Hints.of(raw)
    classes = [
        name
        for name, kind in training.kinds.items()
        if kind in (OutputEncoding.SOFTMAX, OutputEncoding.LOGITS)
    ]
    if len(classes) != 1:
        raise _uncountable(f"{len(classes)} outputs that name classes")
    targets = np.asarray(examples.targets[classes[0]], np.int64).ravel()
    size = next(info.shape[-1] for info in manifest.outputs if info.name == classes[0])
    counts = np.bincount(targets[targets >= 0], minlength=size)
    if not counts.sum():
        raise _uncountable("no example with a class")
    return Hints.of({**raw, "labels": (counts / counts.sum()).tolist()})


def _uncountable(value: str) -> MistifyError:
    return invalid_hints([Problem("hints.labels", value, "one, to count its classes", "give the shares")])
