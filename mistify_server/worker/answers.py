"""The source's answers, which stand for labels where there are none: of generated or unlabelled inputs."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import keras

from executors.data import Dataset, split
from executors.structure.signature import signature_of
from executors.training.answers import answered
from executors.training.evaluation import Evaluation
from executors.training.objectives import Objective, objectives_of
from executors.training.synthesis import generated
from mistify.config.dataset import generated_count
from mistify.jobs.job import ProgressUpdate
from mistify_server.tasks.messages import OnProgress
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.cache import DataPart, SourceCache, parts_of
from mistify_server.worker.checkpoints import Checkpoints

#: The share of unlabelled inputs that are set apart as test data, where there are no others.
TEST_SHARE: Final = 0.1


class SourceAnswers:
    """Makes files of inputs and the source's answers, for parts of the data without labels.

    Args:
        cache: Has the data.
        checkpoints: Where the files go to.
        on_progress: Takes the progress.
    """

    def __init__(self, cache: SourceCache, checkpoints: Checkpoints, on_progress: OnProgress) -> None:
        self._cache = cache
        self._checkpoints = checkpoints
        self._on_progress = on_progress

    def added(self, data: DataSource, source: keras.Model, seed: int) -> DataSource:
        """Return the data with such files; without, where all parts have labels.

        Args:
            data: As in the config.
            source: Answers.
            seed: Of what is generated.

        Raises:
            MistifyError: INVALID_DATASET, inputs cannot be used, or the source has no numbers for some.
        """
        learning, test = parts_of(data, signature_of(source))
        # Test data with labels say what the outputs learn; training data say it themselves.
        by_test_data = data.trains_on_answers and data.labelled
        objectives = objectives_of(source, self._cache.data(test)) if by_test_data else {}
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
        if not learning.train.labelled:
            self._report("asking the source", 0, 1)
            made["train"] = answers(source, self._cache.data(learning.train), learning.train, objectives)
            if not test.labelled:
                made["train"], made["test"] = split(made["train"], TEST_SHARE)
        files = {name: str(self._checkpoints.save_data(dataset)) for name, dataset in made.items()}
        return data.model_copy(update={"answered": files}) if files else data

    def _report(self, stage: str, step: int, steps: int) -> None:
        self._on_progress(ProgressUpdate(stage=stage, step=step, total_steps=steps))


def answers(
    source: keras.Model, data: Dataset, part: DataPart, objectives: Mapping[str, Objective]
) -> Dataset:
    """Return unlabelled inputs with the source's answers as targets.

    Args:
        source: Answers.
        data: The inputs.
        part: What they were read from.
        objectives: What outputs learn, where labelled data tell.

    Raises:
        MistifyError: INVALID_DATASET, it has no numbers for some of them.
    """
    outputs = Evaluation(source).outputs(data.inputs)
    return answered(data.inputs, outputs, part.signature, source=part.source, objectives=objectives)
