"""Loading of data for an inspection, with pseudo-labels for a few examples if labels are missing."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from executors.data import Dataset, class_counts, unusable_answers
from executors.data.errors import SchemaSourceError, invalid
from executors.outputs.metrics import check_labels, check_metric, check_output_metric, default_metric
from executors.outputs.objectives import OutputObjective, objectives_for, with_unlabelled
from executors.structure.signature import Signature
from mistify.config.data.dataset import generated_count
from mistify.config.data.metric import Metric
from mistify.errors import Problem
from mistify.wording import counted
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.cache import DataPart, LearningData, SourceCache, parts_of
from mistify_server.worker.pseudo_labels import Outputs, pseudo_labelled

#: Number of inputs that get pseudo-labels in an inspection.
_ANSWERED: Final = 64

#: Generates an example with the source's pseudo-label, for outputs with known objectives.
Generator = Callable[[Mapping[str, OutputObjective]], Dataset]


class Loaded(NamedTuple):
    """Loaded training, validation and test data; no test data if these need pseudo-labels."""

    train: Dataset
    validation: Dataset
    test: Dataset | None


class InspectedData:
    """The data of a config, with the problems of unusable parts.

    Args:
        cache: Loads the data.
        problems: Collects the problems.
        signature: The inputs and outputs of the source.
        outputs: Computes the source's outputs.
        generator: Generates inputs for parts that need them; None if no inputs can be generated for the
            source.
    """

    def __init__(
        self,
        cache: SourceCache,
        problems: ProblemCollector,
        data: DataSource,
        signature: Signature,
        outputs: Outputs,
        *,
        generator: Generator | None = None,
    ) -> None:
        self._cache = cache
        self._problems = problems
        self._data = data
        self._signature = signature
        self._outputs = outputs
        self._generator = generator
        self._class_counts: dict[str, str] = {}
        self._left_out: dict[str, str] = {}

    @property
    def class_counts(self) -> tuple[str, ...]:
        """The number of examples per class in the loaded data, by part."""
        return tuple(f"dataset.{part}: {counts}" for part, counts in self._class_counts.items())

    @property
    def left_out(self) -> tuple[str, ...]:
        """The ignored files in the loaded data, by part."""
        return tuple(f"dataset.{part}: {files}" for part, files in self._left_out.items())

    def load(self) -> Loaded | None:
        """Return the data; None if any part cannot be used."""
        learning, test_part = parts_of(self._data, self._signature)
        # Labels define the form of pseudo-labels; unlabelled inputs are not test data yet.
        test = None
        if self._data.labelled:
            test = self._load("test", partial(self._part, test_part, {}))
        objectives = {} if test is None else objectives_for(self._signature, test)
        learned = self._learning(learning, objectives)
        if learned is None or (self._data.labelled and test is None):
            return None
        return Loaded(*learned, test)

    def checked_metric(self, loaded: Loaded, objectives: Mapping[str, OutputObjective]) -> Metric:
        """Return the metric that compares networks, after checking it and the outputs' metrics."""
        problems, settings = self._problems, self._data.settings
        default = default_metric(objectives, loaded.train.targets)
        if loaded.train.answers is not None:
            default = Metric.BALANCED_ACCURACY
        metric = settings.metric or (default if self._data.labelled else default.without_labels)
        if not self._data.labelled:
            problems.check("dataset.metric", partial(check_labels, settings.metric))
        # A few pseudo-labels say nothing about the final set of classes.
        labelled = {"validation": loaded.validation} if self._data.has_validation_labels else {}
        labelled |= {} if loaded.test is None else {"test": loaded.test}
        problems.check("dataset.metric", partial(check_metric, metric, objectives, labelled))
        for name, own in settings.metrics.items():
            checking = partial(check_output_metric, name, own, objectives, labelled)
            problems.check(f"dataset.metrics.{name}", checking)
        return metric

    def _learning(
        self, learning: LearningData, objectives: Mapping[str, OutputObjective]
    ) -> tuple[Dataset, Dataset] | None:
        """Return training and validation data."""
        problems = self._problems
        name = "train" if learning.train.labelled else "unlabelled"
        if not self._data.trains_on_pseudo_labels and not isinstance(learning.validation, DataPart):
            learned = problems.load(f"dataset.{name}", partial(self._cache.learning, learning))
            self._note(name, *(learned or ()))
        else:
            train = self._load(name, partial(self._part, learning.train, objectives))
            validation = train
            if isinstance(learning.validation, DataPart):
                validation = self._load("validation", partial(self._part, learning.validation, {}))
            learned = None if train is None or validation is None else (train, validation)
        if learned is not None:
            problems.add(unusable_answers(*learned, f"dataset.{name}"))
        beside = learning.unlabelled
        if beside is not None:
            inputs = self._load("unlabelled", partial(self._cache.data, beside))
            if inputs is not None and learned is not None:
                joining = partial(with_unlabelled, learned[0], inputs.inputs)
                problems.load("dataset.unlabelled", joining)
        elif learned is not None and not learning.train.labelled:
            problems.load(f"dataset.{name}", partial(self._check_number, learning.train))
        return learned

    def _load(self, name: str, load: Callable[[], Dataset]) -> Dataset | None:
        """Return a part of the data, or None; problems in the data that define its schema belong to those."""

        def loaded() -> Dataset | None:
            with suppress(SchemaSourceError):
                return load()
            return None

        data = self._problems.load(f"dataset.{name}", loaded)
        self._note(name, *(() if data is None else (data,)))
        return data

    def _note(self, name: str, *parts: Dataset) -> None:
        """Record the contents of a part of the data, which may be split."""
        if parts and parts[0].left_out:
            self._left_out[name] = parts[0].left_out
        if parts and (counts := class_counts(parts)):
            self._class_counts[name] = counts

    def _part(self, part: DataPart, objectives: Mapping[str, OutputObjective]) -> Dataset:
        """Return a part of the data, or some pseudo-labelled examples if it has no labels."""
        if self._generator and generated_count(part.source):
            return self._generator(objectives)
        data = self._cache.data(part)
        if part.labelled:
            return data
        some = data.subset(np.arange(min(len(data), _ANSWERED)))
        return replace(pseudo_labelled(self._outputs, some, part, objectives), left_out=data.left_out)

    def _check_number(self, part: DataPart) -> None:
        """Check that there are at least as many unlabelled inputs as parts that they replace.

        Raises:
            MistifyError: INVALID_DATASET, there are too few.
        """
        parts = ["for training"]
        parts += [] if isinstance(self._data.settings.validation, str) else ["for validation"]
        parts += [] if self._data.test else ["for testing"]
        count = len(self._cache.data(part))
        if count < len(parts):
            expected = f"at least {len(parts)}, one {', one '.join(parts)}"
            raise invalid(Problem(part.source, counted(count, "input"), expected, "add some"))
