"""What `mistify tune` is told in a file: `tuning.toml`."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from mistify.errors import MistifyError, Problem, invalid_config
from mistify.package.manifest import Manifest
from mistify.package.training import OutputKind, Training
from mistify.parsing.validation import Settings, problems_of
from mistify.peers.hints import Hints, invalid_hints
from mistify.peers.membership import MOST_PEERS
from mistify_client.files import read_text
from mistify_client.tuning.examples import Examples
from mistify_client.tuning.fitting import Pace
from mistify_client.tuning.release import Privacy

#: In place of a label histogram: count the labels of the data.
COUNTED = "counted"


class TuningFile(Settings):
    """With whom a device tunes, and how.

    Attributes:
        group: what to join at the server.
        peers: the most peers to learn from.
        hints: what is told of the data, as `mistify.hints.Hints`; `labels = "counted"` tells the share of
            each class among the examples.
        privacy: how noisy the data are from which the published model is made; None for not at all.
        learning_rate: of every step.
        patience: passes through the data without gain after which steps become smaller, or it has converged.
    """

    group: str = Field(description="the name of a group", examples=["cameras"])
    peers: Annotated[int, Field(ge=1, le=MOST_PEERS, description=f"1 to {MOST_PEERS}", examples=[4])] = 4
    hints: dict[str, Any] = Field(default={}, description="a table", examples=[{"view_degrees": 90}])
    privacy: Privacy | None = None
    learning_rate: Annotated[float, Field(gt=0, description="above 0", examples=[0.001])] = Pace.learning_rate
    patience: Annotated[int, Field(ge=1, description="1 or more", examples=[5])] = Pace.patience

    def pace(self) -> Pace:
        """How the network is trained."""
        return Pace(learning_rate=self.learning_rate, patience=self.patience)


def read_tuning_file(path: Path) -> TuningFile:
    """The settings in a TOML file.

    Raises:
        MistifyError: INVALID_CONFIG, with every problem.
    """
    try:
        settings = TuningFile.model_validate(tomllib.loads(read_text(path)))
    except tomllib.TOMLDecodeError as error:
        problem = Problem(str(path), "no TOML", "a tuning.toml", f"mend it: {error}")
        raise invalid_config([problem], str(path)) from error
    except ValidationError as error:
        raise invalid_config(problems_of(error, TuningFile), str(path)) from error
    if settings.privacy is not None and settings.privacy.ledger is not None:
        ledger = path.parent.resolve() / settings.privacy.ledger
        privacy = settings.privacy.model_copy(update={"ledger": ledger})
        settings = settings.model_copy(update={"privacy": privacy})
    return settings


def hints_of(given: Mapping[str, Any], examples: Examples, manifest: Manifest, training: Training) -> Hints:
    """The hints that a file gives, the labels counted where it says so.

    Raises:
        MistifyError: INVALID_PUBLICATION, with every problem.
    """
    if given.get("labels") != COUNTED:
        return Hints.of(given)
    classes = [
        name for name, kind in training.kinds.items() if kind in (OutputKind.SOFTMAX, OutputKind.LOGITS)
    ]
    if len(classes) != 1:
        raise _uncountable(f"{len(classes)} outputs that tell classes")
    targets = np.asarray(examples.targets[classes[0]], np.int64).ravel()
    size = next(info.shape[-1] for info in manifest.outputs if info.name == classes[0])
    counts = np.bincount(targets[targets >= 0], minlength=size)
    if not counts.sum():
        raise _uncountable("no example with a class")
    return Hints.of({**given, "labels": (counts / counts.sum()).tolist()})


def _uncountable(given: str) -> MistifyError:
    return invalid_hints([Problem("hints.labels", given, "one, to count its classes", "give the shares")])
