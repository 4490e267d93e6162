"""Pseudo-labels: the source's predictions as labels for generated or unlabelled inputs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import keras

from executors.data import Array, Dataset, split
from executors.outputs.empty_classes import check_balanced
from executors.outputs.metrics import check_metric
from executors.outputs.objectives import OutputObjective, objectives_for
from executors.outputs.pseudo_labels import with_pseudo_labels
from executors.structure.signature import Signature, signature_of
from executors.synthesis.inputs import generated
from executors.training.evaluation import Evaluation
from mistify.config.data.dataset import generated_count
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.cache import DataPart, SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints

#: Computes a source's outputs by name from its inputs by name, both [examples, ...].
Outputs = Callable[[Mapping[str, Array]], Mapping[str, Array]]

#: Share of unlabelled inputs that become test data if there are no others.
TEST_SHARE: Final = 0.1


class PseudoLabeller:
    """Writes files with inputs and the source's predictions, for parts of the data without labels.

    Args:
        cache: Loads the data.
        checkpoints: Stores the files.
        on_progress: Receives the progress.
    """

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints, on_progress: OnProgress) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._on_progress = on_progress

    def label(self, data: DataSource, source: keras.Model, seed: int) -> DataSource:
        """Return the data with files of pseudo-labels for the parts without labels.

        Args:
            source: The network that predicts the pseudo-labels.
            seed: Seed for generated inputs.

        Raises:
            MistifyError: INVALID_DATASET, inputs cannot be used, or the source has no numbers for some.
        """
        signature = signature_of(source)
        objectives = self._objectives(data, signature)
        learning, test = parts_of(data, signature)
        made: dict[str, Dataset] = {}
        for number, (name, part) in enumerate({"train": learning.train, "test": test}.items()):
            count = generated_count(part.source)
            if count:
                made[name] = generated(
                    source,
                    count,
                    seed + number,
                    to_train=name == "train",
                    objectives=objectives,
                    on_step=partial(self._report, f"generating {name} data"),
                )
        made |= self._label_unlabelled(data, signature, Evaluation(source).outputs, objectives)
        return self._with_files(data, made)

    def label_by_outputs(self, data: DataSource, signature: Signature, outputs: Outputs) -> DataSource:
        """Return the data with files of pseudo-labels, for a source without generated inputs.

        Args:
            outputs: Computes the source's outputs.

        Raises:
            MistifyError: INVALID_DATASET, inputs cannot be used, or some outputs are not finite.
        """
        objectives = self._objectives(data, signature)
        return self._with_files(data, self._label_unlabelled(data, signature, outputs, objectives))

    def check(self, data: DataSource, signature: Signature) -> None:
        """Raise an error unless pseudo-labelled data have the classes that their settings need.

        Args:
            data: The data, including any files of pseudo-labels.

        Raises:
            MistifyError: INVALID_DATASET, with all problems.
        """
        learning, test = parts_of(data, signature)
        train, validation = self._cache.learning(learning)
        parts = {} if data.has_validation_labels else {"validation": validation}
        parts |= {} if data.labelled else {"test": self._cache.data(test)}
        problems = ProblemCollector()
        checking = partial(check_metric, data.metric, objectives_for(signature, train), parts)
        problems.check("dataset.metric", checking)
        if data.trains_on_pseudo_labels:
            balanced = partial(check_balanced, signature, train, data.settings.class_weights)
            problems.check("dataset.class_weights", balanced)
        if problems:
            raise MistifyError(
                ErrorCode.INVALID_DATASET,
                "the source's predictions cannot be used as labels",
                problems.problems,
            )

    def _objectives(self, data: DataSource, signature: Signature) -> Mapping[str, OutputObjective]:
        """Return the outputs' objectives according to the test data, if only these have labels."""
        if not data.trains_on_pseudo_labels or not data.labelled:
            return {}
        return objectives_for(signature, self._cache.data(parts_of(data, signature)[1]))

    def _label_unlabelled(
        self,
        data: DataSource,
        signature: Signature,
        outputs: Outputs,
        objectives: Mapping[str, OutputObjective],
    ) -> dict[str, Dataset]:
        """Return unlabelled inputs with pseudo-labels, by the parts that they replace."""
        learning, test = parts_of(data, signature)
        if learning.train.labelled:
            return {}
        self._report("asking the source", 0, 1)
        train = pseudo_labelled(outputs, self._cache.data(learning.train), learning.train, objectives)
        if test.labelled:
            return {"train": train}
        return dict(zip(("train", "test"), split(train, TEST_SHARE), strict=True))

    def _with_files(self, data: DataSource, made: Mapping[str, Dataset]) -> DataSource:
        files = {name: str(self._checkpoints.save_data(dataset)) for name, dataset in made.items()}
        return data.model_copy(update={"answered": files}) if files else data

    def _report(self, stage: str, step: int, steps: int) -> None:
        self._on_progress(ProgressUpdate(stage=stage, step=step, total_steps=steps))


def pseudo_labelled(
    outputs: Outputs, data: Dataset, part: DataPart, objectives: Mapping[str, OutputObjective]
) -> Dataset:
    """Return unlabelled inputs with the source's predictions as targets.

    Args:
        outputs: Computes the source's outputs.
        data: The inputs.
        part: The part of the data with the inputs.
        objectives: Output -> its objective, if known from labelled data.

    Raises:
        MistifyError: INVALID_DATASET, some outputs are not finite.
    """
    return with_pseudo_labels(
        data.inputs, outputs(data.inputs), part.signature, source=part.source, objectives=objectives
    )
