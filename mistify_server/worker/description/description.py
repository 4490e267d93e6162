"""Descriptions of a package's inputs and outputs for apps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from executors.data import Dataset
from executors.outputs.objectives import OutputObjective
from executors.structure.signature import Signature
from mistify.config.data.dataset import DataSettings
from mistify.config.data.preparation import Preparation
from mistify.errors import ErrorCode, MistifyError
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.worker.description.inputs import (
    preparation_as_read,
    preparation_of,
    vocabularies_of,
)
from mistify_server.worker.description.labels import label_count, labels_of


@dataclass(frozen=True)
class Description:
    """The description of a package's inputs and outputs for apps.

    Attributes:
        labels: Output -> names of its classes, in order.
        preparation: Input -> its preparation; vocabularies are among the `files`.
        files: Name -> content of additional package files.
    """

    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preparation: Mapping[str, Preparation] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def description_of(
    settings: DataSettings, signature: Signature, objectives: Mapping[str, OutputObjective], train: Dataset
) -> Description:
    """Return the description of a package for apps.

    Args:
        settings: The `dataset` of the config, with labels and preparations.
        signature: The inputs and outputs of the network.
        objectives: Output -> its objective.
        train: Training data, which may contain class names.

    Raises:
        MistifyError: INVALID_CONFIG with every problem, at its place in the config.
    """
    problems = ProblemCollector()
    counts = {output.name: label_count(output, objectives[output.name]) for output in signature.outputs}
    labels = labels_of(settings.labels, counts, train.classes, problems)
    declared = preparation_of(settings.preparation, signature.inputs, problems)
    taken = vocabularies_of(declared, ProblemCollector())
    as_read = preparation_as_read(train.origins, settings.text, signature.inputs, taken)
    preparation = as_read | declared
    vocabularies = vocabularies_of(preparation, problems)
    if problems:
        raise MistifyError(ErrorCode.INVALID_CONFIG, "the package cannot be described", problems.problems)
    return Description(
        labels,
        {name: prepared.with_vocabulary(_file_name) for name, prepared in preparation.items()},
        {name: path.read_bytes() for name, path in vocabularies.items()},
    )


def _file_name(path: str) -> str:
    return Path(path).name
