"""Training and test data: reading them, checking them against a model, and storing large arrays."""

from executors.data.dataset import ClassNames, Dataset, HeldOut, class_counts, joined, split
from executors.data.storage import Array
from executors.data.tasks import unusable_answers

__all__ = ["Array", "ClassNames", "Dataset", "HeldOut", "class_counts", "joined", "split", "unusable_answers"]
