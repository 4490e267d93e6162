"""Class names of outputs."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from executors.data import ClassNames, Dataset
from executors.outputs.objectives import Binary, Categorical, OutputObjective, objectives_for
from executors.structure.signature import Output, Signature
from mistify.config.data.dataset import DataSettings
from mistify.config.data.preparation import Labels
from mistify.config.data.targets import OVERALL
from mistify.parsing.validation import InvalidValue, json_path, unknown_name
from mistify_server.tasks.problems import ProblemCollector

#: Output -> number of class names.
Counts = Mapping[str, int]


def label_count(output: Output, objective: OutputObjective) -> int:
    """Return the number of an output's class names: 0 without classes, 2 for a binary output."""
    if not isinstance(objective, Categorical | Binary):
        return 0
    count = (output.shape or (1,))[-1] or 0
    return 2 if isinstance(objective, Binary) and count == 1 else count


def labels_of(
    declared: Labels | None, counts: Counts, classes: ClassNames, problems: ProblemCollector
) -> dict[str, tuple[str, ...]]:
    """Return the class names by output, without outputs that have none.

    Args:
        declared: Labels in the config; their files are readable.
        counts: Output -> number of its classes.
        classes: Names in the training data, in the order of class indices.
        problems: Collects mistakes in the config's labels.
    """
    names = {output: classes.get(output, ()) for output in counts}
    for key, labels in (declared or {}).items():
        place = json_path([] if key == OVERALL else [key], "dataset.labels")
        output = problems.check(place, partial(_output, key, counts))
        if output is not None:
            of_output = partial(_names, labels, counts[output], classes.get(output, ()))
            names[output] = problems.check(place, of_output) or ()
    return {
        output: names[output] for output, count in counts.items() if count and len(names[output]) == count
    }


def with_labels(data: Dataset, settings: DataSettings, signature: Signature) -> Dataset:
    """Return data whose classes have the names in the config, if it has any.

    Args:
        settings: Settings of the data, whose labels were checked in the inspection; their files are readable.
    """
    if settings.labels is None:
        return data
    objectives = objectives_for(signature, data, settings)
    counts = {output.name: label_count(output, objectives[output.name]) for output in signature.outputs}
    labels = labels_of(settings.labels, counts, data.classes, ProblemCollector())
    return replace(data, classes={**data.classes, **labels})


def _output(key: str, counts: Counts) -> str:
    """Return the output to which a key of the labels refers.

    Raises:
        InvalidValue: No output has classes, or the key is ambiguous.
    """
    with_classes = [output for output, count in counts.items() if count]
    if not with_classes:
        raise InvalidValue("class names", "none, because no output predicts classes", "remove them")
    if key == OVERALL and len(with_classes) > 1:
        example = f'for example {{"{with_classes[0]}": [...]}}'
        raise InvalidValue("one list", f"names by output, of {', '.join(with_classes)}", example)
    if key != OVERALL and key not in with_classes:
        raise InvalidValue(key, *unknown_name(key, with_classes))
    return key if key != OVERALL else with_classes[0]


def _names(labels: tuple[str, ...] | str, count: int, classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of an output's classes.

    Raises:
        InvalidValue: The number of names is wrong, or their order differs from the training data.
    """
    names = _read(Path(labels)) if isinstance(labels, str) else labels
    if len(names) != count:
        fix = "name every class, in the order of the model's output"
        raise InvalidValue(f"{len(names)} names", f"{count}, one for each class", fix)
    if names != classes and sorted(names) == sorted(classes):
        expected = f"the order of the training data: {', '.join(classes[:10])}"
        raise InvalidValue(names, expected, "remove the names: they are in the data")
    return names


def _read(path: Path) -> tuple[str, ...]:
    """Return the names in a file, one per line."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\r\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(path.name, f"names in UTF-8 ({error})", "give another file") from error
    return tuple(line.strip() for line in lines)
