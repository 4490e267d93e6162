"""Training of networks wider than their source, which should surpass it (paper 4.3)."""

from dataclasses import replace

import keras

from executors.contract.assignment import Assignment
from executors.structure import analyse
from executors.training.augmentation import suitable_augmentation
from executors.training.setup import TrainingSetup
from mistify.config.data.dataset import Augmentation
from mistify.costs.axes import costs_of
from mistify.costs.budget import meets
from mistify_server.worker.adaptation.source import FLIPS


def is_widened(assignment: Assignment) -> bool:
    """Check whether an edge's network was widened and its budget exceeds the source."""
    source = assignment.source.network()
    if not meets(costs_of(source, assignment.profiles), assignment.budget):
        return False
    return analyse(assignment.model).network().flops > source.flops


def for_widened(assignment: Assignment, source: keras.Model) -> Assignment:
    """Return the assignment with a setup that lets a widened network surpass its source.

    The same images with the same predictions of the source would teach little new. So images are augmented at
    every step, in ways that do not confuse the source, and the source predicts the augmented images.

    Args:
        source: The tuned source.
    """
    setup = assignment.setup
    settings = setup.settings
    augment = settings.augment
    if augment in (None, FLIPS):  # including the value when the config leaves it open
        augment = suitable_augmentation(source, setup.validation, setup.metric, augment)
    if augment in (None, Augmentation()):
        return assignment
    changed = TrainingSetup(
        setup.train,
        setup.validation,
        None,
        setup.params,
        settings.model_copy(update={"augment": augment}),
        teacher_model=source if setup.teacher is not None and setup.params.distillation else None,
    )
    return replace(assignment, setup=changed)
