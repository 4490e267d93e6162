"""Training and test data: reading them, checking them against a model, and storing large arrays."""

from executors.data.dataset import ClassNames, Dataset, HeldOut, class_counts, joined, split
from executors.data.storage import Array
from executors.data.tasks import one_sided_tasks

__all__ = ["Array", "ClassNames", "Dataset", "HeldOut", "class_counts", "joined", "one_sided_tasks", "split"]
